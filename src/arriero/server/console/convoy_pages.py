"""Convoys: a board of keys by state, and one key in detail with the verbs that its state allows."""

from typing import Annotated

from fastapi import Query
from starlette.responses import RedirectResponse, Response

from ...client.convoy import ConvoyView
from ...client.verb_offers import offer_convoy_verbs
from ...explain.convoys import format_ranges
from ..calls import Call
from ..parameters import ConvoyKey, Cursor, write_id
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

STATES = {  # tone, symbol and meaning, in the order of the board
    "stopped": ("bad", "!", "A held task blocks the key."),
    "gap": ("warn", "…", "A number of the sequence has not come."),
    "parked": ("wait", "‖", "Nothing begins until an operator releases the key."),
    "open": ("run", "▶", "A task has its turn."),
    "idle": ("wait", "·", "No task has its turn."),
}
BOARD = ("stopped", "gap", "parked", "open")
CARDS = 12  # of a state on the board
PAGE = 48
NAMED = 50  # tasks of each kind that the page of a key names


@page("/convoys", Needs(Scope.READ), "Keys by state: what each waits for, and what needs an operator.", is_live=True)
async def show_convoys(
    call: Call,
    state: Annotated[str | None, Query(max_length=20)] = None,
    key: Annotated[str | None, Query(max_length=1_000)] = None,
    cursor: Cursor = None,
) -> Page | Response:
    if key is not None:
        return RedirectResponse(f"{call.root}/convoys/{write_id(key)}", 303)
    states = BOARD if state is None else (state,)
    limit = CARDS if state is None else PAGE
    groups = [(one, await ask(call, "list_convoys", state=one, limit=limit, cursor=state and cursor)) for one in states]
    context = {"state": state, "states": STATES, "groups": groups, "cursor": cursor, "ranges": format_ranges}
    return Page("convoys.html", "Convoys", context)


@page(
    "/convoys/{key}",
    Needs(Scope.READ),
    "A key: its head, who comes next, what is missing or set aside, and its verbs.",
    is_live=True,
)
async def show_convoy_page(call: Call, key: ConvoyKey) -> Page:
    answer = await ask(call, "show_convoy", key=key, limit=NAMED)
    view: ConvoyView = answer.convoy
    context = {
        "convoy": view,
        "payloads": answer.payloads,
        "mark_of": STATES.get(view.state, ("wait", "", "")),
        "missing": format_ranges(view.missing),
        "policy": _list_policy(view),
        "offers": offer_convoy_verbs(view),
        "prefilled": {"skip": _prefill_skip(view), "set": _prefill_set(view), "move-to-head": _prefill_move(view)},
        "may_operate": may_ask(call, "release_convoy"),
    }
    return Page("convoy.html", view.key, context)


def _list_policy(view: ConvoyView) -> list[tuple[str, str | float | None, str | float | None]]:
    """List the parts of the policy: name, value in force, value that is set for the key."""
    names = ("head", "gap", "gap_within")
    return [(name, getattr(view.policy, name, view.own_policy.get(name)), view.own_policy.get(name)) for name in names]


def _prefill_skip(view: ConvoyView) -> dict[str, str]:
    """Fill in what the page shows as the obstacle, so that no other one is skipped."""
    if view.open_task is not None:
        return {"seen": view.open_task}
    return {"seen": str(view.missing[0][0])} if view.missing else {}


def _prefill_set(view: ConvoyView) -> dict[str, str]:
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in view.own_policy.items()}


def _prefill_move(view: ConvoyView) -> dict[str, str]:
    return {"task_id": view.next_tasks[1]} if len(view.next_tasks) > 1 else {}
