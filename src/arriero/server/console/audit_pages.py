"""Audit: what operators did in the whole store."""

from typing import Annotated

from fastapi import Query

from ...client.operator_acts import ActView
from ..calls import Call
from ..parameters import Cursor, write_id
from ..scopes import Needs, Scope
from .asking import ask
from .page import Page, page

PLACES = {
    "task": "/tasks/",
    "convoy": "/convoys/",
    "agent": "/agents/",
    "schedule": "/schedules/",
    "workflow": "/workflows/",
}
LISTS = {"lease": "/leases", "token": "/tokens"}  # of things without a page


@page("/audit", Needs(Scope.READ), "What operators did: who, what, on which thing, why and when.", is_live=True)
async def show_audit(
    call: Call, by: Annotated[str | None, Query(max_length=255)] = None, cursor: Cursor = None
) -> Page:
    listed = await ask(call, "list_operator_acts", by=by, cursor=cursor)
    context = {
        "acts": [(one, _find_place(one)) for one in listed.acts],
        "given": {} if by is None else {"by": by},
        "cursor": cursor,
        "next": listed.next,
    }
    return Page("audit.html", "Audit", context)


def _find_place(act: ActView) -> str:
    """Find the page of the thing that an act was on; empty: there is none."""
    if act.kind in LISTS or not act.subject:
        return LISTS.get(act.kind, "")
    name = act.subject.partition("[")[0] if act.kind == "agent" else act.subject
    return PLACES[act.kind] + write_id(name) if act.kind in PLACES else ""
