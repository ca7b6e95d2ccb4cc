"""Ledgers: one message with operations on many keys, all of them or none."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query
from starlette.requests import Request

from ...client.json_payloads import build_named_call
from ...client.ledger import Entry, Ledger, LedgerSubmission
from ...client.ledger_handle import UNFINISHED, LedgerView, list_ledger_views, load_ledger_view, wait_for_ledger
from ...client.session import Session
from ...client.submission import PRIORITY_DEFAULT
from ...errors import InvalidInput
from ...model import LedgerState
from ...operations.problems import INVALID_REQUEST, TOO_MANY_OPEN_TASKS, UNKNOWN_NAME, WORKFLOW_PAUSED
from ..calls import Call, HttpCall
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, WAIT_SECONDS_MAX, Cursor, LedgerId, Limit
from ..problems import BODY_TOO_SLOW, Problem
from ..request_body import TurnBudget, refuse_doubtful_text, require_media, run_on_text
from ..routing import CONFIRM_SECONDS, RouteGroup
from ..scopes import Needs, Scope
from .submissions import wait_until_shutdown

ledgers = RouteGroup("ledgers")

NDJSON = "application/x-ndjson"
LINE_BYTES_MAX = 2 * 1024 * 1024  # as for the body of one submission
PART_SECONDS = 30.0  # in which the next part of a body must come


class LedgerEntryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation: a task to start. Without an id it is named after the ledger and its line."""

    workflow: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    convoy: str | None = None
    id: str | None = None
    sequence: int | None = None
    priority: int = PRIORITY_DEFAULT
    tags: dict[str, Any] | None = None  # judged with the entry: a bad one may be set aside


class LedgerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operations in their order. ``bad``: ``refuse`` the whole ledger for one bad entry, or ``set_aside`` bad entries."""

    entries: list[LedgerEntryBody]
    bad: Literal["refuse", "set_aside"] = "refuse"


class LedgerPageAnswer(msgspec.Struct, frozen=True):
    """A page of ledgers, in the order in which they were begun. ``next``: the cursor of the next page; None: this was the last one."""

    ledgers: tuple[LedgerView, ...]
    next: str | None


ENTRY_EXAMPLE = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "convoy": "customer-7"}


def build_entry(session: Session, body: LedgerEntryBody) -> Entry:
    """Build an entry; one with an unknown workflow or arguments that do not fit is a bad one."""
    try:
        call = build_named_call(session, body.workflow, body.arguments)
    except InvalidInput as error:
        return Entry.bad(str(error))
    return Entry(
        call, convoy=body.convoy, task_id=body.id, sequence=body.sequence, priority=body.priority, tags=body.tags
    )


@ledgers.operation(
    "PUT",
    "/v1/ledgers/{ledger_id}",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Submit a ledger: a task for each entry, all of them or none. The same ledger again changes nothing.",
    body=LedgerBody,
    problems=(TOO_MANY_OPEN_TASKS, WORKFLOW_PAUSED),
    examples={"one": {"entries": [ENTRY_EXAMPLE]}, "set aside": {"entries": [ENTRY_EXAMPLE], "bad": "set_aside"}},
)
async def submit_ledger(call: Call, ledger_id: LedgerId) -> Ledger:
    asked = call.read(LedgerBody)
    return await LedgerSubmission(call.session, ledger_id, bad=asked.bad).run(build_entries(call, asked.entries))


async def build_entries(call: HttpCall, bodies: Sequence[LedgerEntryBody]) -> AsyncIterator[Entry]:
    """Build the entries of a ledger one by one; the event loop has a turn after some of them."""
    session, budget = call.session, TurnBudget()
    for body in bodies:
        size = 0 if isinstance(body.arguments, msgspec.UnsetType) else len(bytes(body.arguments))
        yield await run_on_text(
            session.ports, call.place.thread_turn, size, functools.partial(build_entry, session, body)
        )
        if budget.is_spent(size):
            await asyncio.sleep(0)


@ledgers.operation(
    "POST",
    "/v1/ledgers/{ledger_id}:stream",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Submit a ledger of any length, an entry a line. After a lost connection, send the same again: it continues where it stood.",
    body=LedgerEntryBody,
    body_media=NDJSON,
    streams_body=True,
    problems=(TOO_MANY_OPEN_TASKS, WORKFLOW_PAUSED),
    examples={"one line": ENTRY_EXAMPLE},
)
async def stream_ledger(
    call: Call,
    ledger_id: LedgerId,
    bad: Annotated[
        Literal["refuse", "set_aside"], Query(description="One bad entry refuses the whole ledger, or is set aside.")
    ] = "refuse",
) -> Ledger:
    require_media(call.request, NDJSON)
    return await LedgerSubmission(call.session, ledger_id, bad=bad).run(iterate_entries(call))


async def iterate_entries(call: HttpCall) -> AsyncIterator[Entry]:
    """Iterate over the lines of a body as they come. A line that is not an entry is a bad one; empty lines are left out.

    Raises: Problem - a line is too long, or the caller's token was revoked meanwhile. Nothing of the ledger is then visible.
    """
    monotonic = call.session.ports.clock.monotonic
    confirmed_at = monotonic()
    async for line in iterate_lines(call.request):
        if (now := monotonic()) - confirmed_at >= CONFIRM_SECONDS:
            await call.confirm(now - confirmed_at)
            confirmed_at = now
        if line.strip():
            yield await read_line(call, line)


async def read_line(call: HttpCall, line: bytes) -> Entry:
    """Read one line; what is wrong with it is the reason of a bad entry."""
    session, turn = call.session, call.place.thread_turn
    try:
        await refuse_doubtful_text(session.ports, turn, line, "the line")
        body = msgspec.json.decode(line, type=LedgerEntryBody)
        return await run_on_text(session.ports, turn, len(line), functools.partial(build_entry, session, body))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as error:
        return Entry.bad(str(error))


async def iterate_lines(request: Request) -> AsyncIterator[bytes]:
    """Iterate over the lines of a body. Raises Problem - one is longer than ``LINE_BYTES_MAX``, or nothing comes."""
    rest: list[bytes] = []  # of a line that is not complete; joined once
    size, budget = 0, TurnBudget()
    parts = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(PART_SECONDS):
                part = await anext(parts, None)
        except TimeoutError:
            raise Problem(BODY_TOO_SLOW, f"no more of the body came within {PART_SECONDS:g} s") from None
        if part is None:
            break
        *ends, begun = part.split(b"\n")
        for end in ends:
            line = b"".join((*rest, end))
            rest, size = [], 0
            yield line
            if budget.is_spent(len(line)):
                await asyncio.sleep(0)
        rest.append(begun)
        size += len(begun)
        if size > LINE_BYTES_MAX:
            raise Problem(
                INVALID_REQUEST, f"a line has more than {LINE_BYTES_MAX:,} bytes; nothing of the ledger is visible"
            )
    yield b"".join(rest)


@ledgers.operation(
    "GET",
    "/v1/ledgers",
    Needs(Scope.READ),
    summary="List the ledgers that are not done, or all, in pages.",
    problems=(CURSOR_INVALID,),
)
async def list_ledgers(
    call: Call,
    state: Annotated[
        Literal["unfinished", "all"], Query(description="Only those that are not done, or all.")
    ] = "unfinished",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> LedgerPageAnswer:
    store, listing = call.session.store, ["ledgers", state]
    cursors = await open_cursors(store)
    after = cursors.read_number(cursor, listing)
    states = UNFINISHED if state == "unfinished" else tuple(LedgerState)
    rows = await store.list_ledgers(states, after=after, limit=limit + 1)
    more = cursors.write(listing, rows[limit - 1].ledger_no) if len(rows) > limit else None
    return LedgerPageAnswer(tuple(await list_ledger_views(store, rows[:limit])), more)


@ledgers.operation(
    "GET",
    "/v1/ledgers/{ledger_id}",
    Needs(Scope.READ),
    summary="How far a ledger is, how its tasks stand, and which entries were set aside; the end of all its tasks may be waited for.",
    problems=(UNKNOWN_NAME,),
)
async def show_ledger(
    call: Call,
    ledger_id: LedgerId,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=WAIT_SECONDS_MAX,
            allow_inf_nan=False,
            description="Seconds to wait at most until all its tasks have ended.",
        ),
    ] = 0.0,
) -> LedgerView:
    session = call.session
    if wait:
        call.place.begin_wait()
        clock = session.ports.clock
        began_at = clock.monotonic()
        await wait_until_shutdown(call, wait_for_ledger(session.store, session.waiting, clock, ledger_id, wait))
        await call.confirm(clock.monotonic() - began_at)
    return await load_ledger_view(session.store, ledger_id)
