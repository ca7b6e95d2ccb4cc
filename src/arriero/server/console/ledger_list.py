"""Ledgers: how far each is, and how its tasks stand."""

from typing import Annotated, Any, Literal

from fastapi import Query

from ..calls import Call
from ..parameters import LIMIT, Cursor, Limit
from ..routes.ledgers import LedgerPageAnswer
from ..scopes import Needs, Scope
from .asking import ask_for_list
from .page import Page, page


@page("/ledgers", Needs(Scope.READ), "Ledgers, and how their tasks stand.", is_live=True)
async def show_ledgers(
    call: Call,
    state: Annotated[Literal["unfinished", "all"], Query()] = "unfinished",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed, refused = await ask_for_list(
        call, "list_ledgers", LedgerPageAnswer((), None), state=state, limit=limit, cursor=cursor
    )
    given: dict[str, Any] = {"state": None if state == "unfinished" else state}
    context = {
        "listed": listed,
        "refused": refused,
        "state": state,
        "cursor": cursor,
        "given": {**given, "limit": None if limit == LIMIT else limit},
    }
    return Page("ledgers.html", "Ledgers", context, status=422 if refused else 200)
