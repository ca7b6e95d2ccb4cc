"""Alerts: what needs an operator, one by one, with their delivery to the sinks."""

from typing import Annotated, Any, Literal

from fastapi import Query

from ..calls import Call
from ..cursors import Order
from ..parameters import LIMIT, Cursor, Limit
from ..routes.leases import AlertPageAnswer
from ..scopes import Needs, Scope
from .asking import ask_for_list
from .failures import describe_cause, find_place
from .page import Page, page


@page("/alerts", Needs(Scope.READ), "Alerts, the newest first, and who has heard of them.", is_live=True)
async def show_alerts(
    call: Call,
    state: Annotated[Literal["open", "all"], Query()] = "open",
    order: Order = "newest",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed, refused = await ask_for_list(
        call, "list_alerts", AlertPageAnswer((), None), state=state, order=order, limit=limit, cursor=cursor
    )
    given: dict[str, Any] = {"state": None if state == "open" else state, "order": None if order == "newest" else order}
    context = {
        "listed": listed,
        "refused": refused,
        "state": state,
        "order": order,
        "cursor": cursor,
        "given": {**given, "limit": None if limit == LIMIT else limit},
        "describe": describe_cause,
        "place": find_place,
    }
    return Page("alerts.html", "Alerts", context, status=422 if refused else 200)
