"""Acts of operators in the whole store: who, on which thing, why and when."""

from typing import Annotated

import msgspec
from fastapi import Query

from ...client.operator_acts import ActView, load_act_page
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, Cursor, Limit
from ..routing import RouteGroup
from ..scopes import Needs, Scope, may_list_tokens

acts = RouteGroup("acts")


class ActPageAnswer(msgspec.Struct, frozen=True):
    """A page of acts, the newest first. ``next``: the cursor of the next page; None: this was the last one."""

    acts: tuple[ActView, ...]
    next: str | None


@acts.operation(
    "GET",
    "/v1/acts",
    Needs(Scope.READ),
    summary="List what operators did, the newest first, in pages. Acts on tokens are for holders of the scope admin.",
    problems=(CURSOR_INVALID,),
)
async def list_operator_acts(
    call: Call,
    by: Annotated[
        str | None,
        Query(max_length=255, description="Only of this operator. A page may then be empty and not be the last one."),
    ] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> ActPageAnswer:
    store, listing = call.session.store, ["acts", by]
    cursors = await open_cursors(store)
    before = cursors.read_number(cursor, listing) or None
    tokens = may_list_tokens(call.caller.scopes)
    page = await load_act_page(store, by=by, before=before, limit=limit, tokens=tokens)
    return ActPageAnswer(page.acts, None if page.before is None else cursors.write(listing, page.before))
