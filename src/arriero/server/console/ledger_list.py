"""Ledgers: how far each is, and how its tasks stand."""

from typing import Annotated, Any, Literal

from fastapi import Query

from ..calls import Call
from ..cursors import CURSOR_INVALID
from ..parameters import LIMIT, Cursor, Limit
from ..problems import Problem
from ..routes.ledgers import LedgerPageAnswer
from ..scopes import Needs, Scope
from .asking import ask
from .page import Page, page


@page("/ledgers", Needs(Scope.READ), "Ledgers, and how their tasks stand.", is_live=True)
async def show_ledgers(
    call: Call,
    state: Annotated[Literal["unfinished", "all"], Query()] = "unfinished",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed, refused = LedgerPageAnswer((), None), ""
    try:
        listed = await ask(call, "list_ledgers", state=state, limit=limit, cursor=cursor)
    except Problem as problem:
        if problem.kind is not CURSOR_INVALID:
            raise
        refused = "This page of the list is not there: its address is of another list, or from before a restore."
    given: dict[str, Any] = {"state": None if state == "unfinished" else state}
    context = {
        "listed": listed,
        "refused": refused,
        "state": state,
        "cursor": cursor,
        "given": {**given, "limit": None if limit == LIMIT else limit},
    }
    return Page("ledgers.html", "Ledgers", context, status=422 if refused else 200)
