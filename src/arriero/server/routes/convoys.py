"""Convoys: the tasks of one key, which are handled one after the other."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query

from ...client.convoy import (
    NAMED,
    NAMED_MAX,
    Convoy,
    ConvoyOutcome,
    ConvoyView,
    check_state,
    list_convoy_views,
    show_outcome,
)
from ...model import ConvoyVerb
from ..answers import Payloads
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, ConvoyKey, Cursor, Limit
from ..problems import TASK_UNKNOWN, UNKNOWN_NAME, VERB_REFUSED
from ..routing import RouteGroup
from ..scopes import Needs, Scope

convoys = RouteGroup("convoys")


class ShownConvoy(ConvoyView, frozen=True, kw_only=True):
    """A convoy as it stands. ``value``: the state of the key, as workflows keep it; only for tokens with read-payloads."""

    value: Any = msgspec.UNSET


class ConvoyAnswer(msgspec.Struct, frozen=True):
    """A convoy as it stands. ``payloads``: ``withheld`` if the token lacks the scope read-payloads."""

    convoy: ShownConvoy
    payloads: Payloads


class ConvoyPageAnswer(msgspec.Struct, frozen=True):
    """A page of convoys, in the order of their first submission. ``next``: the cursor of the next page; None: this was the last one."""

    convoys: tuple[ShownConvoy, ...]
    next: str | None
    payloads: Payloads


class ConvoyActRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``reason``: why; kept in the convoy's history. Who asks is the token's name."""

    reason: str


class SkipRequest(ConvoyActRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``seen``: the id of the task in error, or the first missing number, as the caller saw it: no other is skipped."""

    seen: str | int | None = None


class SetRequest(ConvoyActRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of the key: ``wait``, ``skip`` or ``park``. What is left out stays; null: the workflow's holds again."""

    head: str | msgspec.UnsetType | None = msgspec.UNSET
    gap: str | msgspec.UnsetType | None = msgspec.UNSET
    gap_within: float | msgspec.UnsetType | None = msgspec.UNSET


class MoveToHeadRequest(ConvoyActRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``task_id``: of a task that waits; it comes before all others that wait."""

    task_id: str


class ConvoyActAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``convoy``: its state afterwards."""

    key: str
    verb: str
    outcome: Literal["done"]
    convoy: ShownConvoy
    payloads: Payloads


EXAMPLE: dict[str, Any] = {
    "no": 1,
    "key": "customer-7",
    "state": "open",
    "waiting_for": "task order-1001",
    "ordering": "place",
    "waiting": 2,
    "set_aside": 0,
    "open_task": "order-1001",
    "next_tasks": ["order-1002", "order-1003"],
    "set_aside_tasks": [],
    "missing": [],
    "since": "2026-11-20T14:15:17.5Z",
    "policy": None,
    "own_policy": {},
    "gap_until": None,
}


def build_shown_convoy(view: ConvoyView) -> ShownConvoy:
    """Build a convoy as it is shown."""
    return ShownConvoy(**msgspec.structs.asdict(view))


@convoys.operation(
    "GET",
    "/v1/convoys",
    Needs(Scope.READ),
    summary="List the convoys in a state, or all that are not idle, in pages.",
    answer=ConvoyPageAnswer,
    problems=(CURSOR_INVALID,),
    answer_example={"convoys": [EXAMPLE], "next": None, "payloads": "withheld"},
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
    found: list[ShownConvoy] = []
    async with aclosing(list_convoy_views(store, shown, after=after)) as views:  # type: ignore[type-var]  # a generator
        async for view in views:
            if len(found) == limit:
                position = cursors.write(listing, found[-1].no)
                return ConvoyPageAnswer(tuple(found), position, call.payloads)
            found.append(build_shown_convoy(view))
    return ConvoyPageAnswer(tuple(found), None, call.payloads)


@convoys.operation(
    "GET",
    "/v1/convoys/{key}",
    Needs(Scope.READ),
    summary="A convoy: what it does, what it waits for, and who comes next.",
    answer=ConvoyAnswer,
    problems=(UNKNOWN_NAME,),
    answer_example={"convoy": EXAMPLE, "payloads": "withheld"},
)
async def show_convoy(
    call: Call,
    key: ConvoyKey,
    limit: Annotated[int, Query(ge=1, le=NAMED_MAX, description="Tasks of each kind that it names at most.")] = NAMED,
) -> ConvoyAnswer:
    view = await call.client.convoy(key).view(limit=limit)
    return ConvoyAnswer(build_shown_convoy(view), call.payloads)


# --- verbs
Act = Callable[[Convoy, Any, str], Awaitable[ConvoyOutcome]]


def _declare_verb(verb: ConvoyVerb, summary: str, body: type[ConvoyActRequest], example: Any, act: Act) -> None:
    async def run(call: Call, key: ConvoyKey) -> ConvoyActAnswer:
        asked = call.read(body)
        convoy = call.client.convoy(key)
        outcome = await act(convoy, asked, call.caller.name)
        view = build_shown_convoy(show_outcome(await convoy.view(), outcome))
        return ConvoyActAnswer(key, str(verb), "done", view, call.payloads)

    word = verb.replace("_", "-")
    run.__name__ = f"{verb}_convoy"
    convoys.operation(
        "POST",
        f"/v1/convoys/{{key}}:{word}",
        Needs(Scope.OPERATE),
        summary=summary,
        body=body,
        answer=ConvoyActAnswer,
        problems=(UNKNOWN_NAME, VERB_REFUSED, *([TASK_UNKNOWN] if verb is ConvoyVerb.MOVE_TO_HEAD else [])),
        examples={"do it": {"reason": "it was checked", **example}},
        answer_example={
            "key": "customer-7",
            "verb": str(verb),
            "outcome": "done",
            "convoy": EXAMPLE,
            "payloads": "withheld",
        },
    )(run)


_declare_verb(
    ConvoyVerb.RELEASE,
    "Let a parked convoy go on.",
    ConvoyActRequest,
    {},
    lambda convoy, asked, by: convoy.release(by=by, reason=asked.reason),
)
_declare_verb(
    ConvoyVerb.SKIP,
    "Set the task in error aside, or what is missing, and go on.",
    SkipRequest,
    {"seen": "order-1001"},
    lambda convoy, asked, by: convoy.skip(by=by, reason=asked.reason, seen=asked.seen),
)
_declare_verb(
    ConvoyVerb.PARK,
    "Begin nothing more in a convoy until it is released.",
    ConvoyActRequest,
    {},
    lambda convoy, asked, by: convoy.park(by=by, reason=asked.reason),
)
_declare_verb(
    ConvoyVerb.SET,
    "Give a convoy a policy of its own.",
    SetRequest,
    {"head": "park", "gap_within": 60.0},
    lambda convoy, asked, by: convoy.set(
        by=by, reason=asked.reason, head=asked.head, gap=asked.gap, gap_within=asked.gap_within
    ),
)
_declare_verb(
    ConvoyVerb.MOVE_TO_HEAD,
    "Let a task that waits come before all others that wait.",
    MoveToHeadRequest,
    {"task_id": "order-1003"},
    lambda convoy, asked, by: convoy.move_to_head(asked.task_id, by=by, reason=asked.reason),
)
