"""Convoys: the tasks of one key, which are handled one after the other."""

from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import Query

from ...client.convoy import NAMED, NAMED_MAX, ConvoyView, check_state, list_convoy_views
from ...client.task_shapes import Payloads
from ...operations import convoys as operations
from ...operations.problems import UNKNOWN_NAME
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..operation_routes import add_operations_of
from ..parameters import LIMIT, ConvoyKey, Cursor, Limit
from ..routing import RouteGroup
from ..scopes import Needs, Scope

convoys = RouteGroup("convoys")


class ConvoyAnswer(msgspec.Struct, frozen=True):
    """A convoy as it stands. ``payloads``: ``withheld`` if the token lacks the scope read-payloads."""

    convoy: ConvoyView
    payloads: Payloads


class ConvoyPageAnswer(msgspec.Struct, frozen=True):
    """A page of convoys, in the order of their first submission. ``next``: the cursor of the next page; None: this was the last one."""

    convoys: tuple[ConvoyView, ...]
    next: str | None
    payloads: Payloads


@convoys.operation(
    "GET",
    "/v1/convoys",
    Needs(Scope.READ),
    summary="List the convoys in a state, or all that are not idle, in pages.",
    problems=(CURSOR_INVALID,),
)
async def list_convoys(
    call: Call,
    state: Annotated[
        str | None, Query(max_length=20, description="idle, open, stopped, gap or parked; else all that are not idle.")
    ] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> ConvoyPageAnswer:
    store, listing = call.session.store, ["convoys", state]
    shown = check_state(state)
    cursors = await open_cursors(store)
    after = cursors.read_number(cursor, listing)
    found: list[ConvoyView] = []
    async with aclosing(list_convoy_views(store, shown, after=after)) as views:  # type: ignore[type-var]  # a generator
        async for view in views:
            if len(found) == limit:
                position = cursors.write(listing, found[-1].no)
                return ConvoyPageAnswer(tuple(found), position, call.payloads)
            found.append(view)
    return ConvoyPageAnswer(tuple(found), None, call.payloads)


@convoys.operation(
    "GET",
    "/v1/convoys/{key}",
    Needs(Scope.READ),
    summary="A convoy: what it does, what it waits for, and who comes next.",
    problems=(UNKNOWN_NAME,),
)
async def show_convoy(
    call: Call,
    key: ConvoyKey,
    limit: Annotated[int, Query(ge=1, le=NAMED_MAX, description="Tasks of each kind that it names at most.")] = NAMED,
) -> ConvoyAnswer:
    view = await call.client.convoy(key).view(limit=limit)
    return ConvoyAnswer(view, call.payloads)


add_operations_of(convoys, *operations.VERBS)
