"""Ledgers: one message with operations on many keys becomes one task each, all of them or none."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from ..core.ledger_batches import LedgerBatch, LedgerEntry, extend_digest, start_digest
from ..declare.steps import StepCall
from ..declare.workflows import WorkflowCall
from ..errors import InvalidInput, NotAllowed, TooManyOpenTasks, UnknownName, WorkflowPaused
from ..model import STEP_PREFIX, LedgerRow, LedgerState
from ..model.answers import TOO_MANY_OPEN_TASKS, WORKFLOW_PAUSED
from ..model.commands import Submit
from ..payloads import codec
from ..text.format import format_count, format_count_with_verb
from .session import Session
from .submission import PRIORITY_DEFAULT, SubmitOptions, build_submission

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

ID_LENGTH_MAX = 235  # of a ledger's id: an entry's task may be named after it
BATCH = 500  # entries in one transaction, and
BATCH_CHARACTERS = 4_000_000  # of their arguments, whatever comes first
AGAIN_SECONDS = 0.05  # while another process lets the tasks go
ACTOR = "client"
REFUSED = "refused"  # why it is discarded, in the store's history

_REFUSALS: dict[str, type[InvalidInput]] = {TOO_MANY_OPEN_TASKS: TooManyOpenTasks, WORKFLOW_PAUSED: WorkflowPaused}


class Entry:
    """One operation of a ledger.

    Args:
        call: of a workflow or of one step of the App.
        convoy: the key; entries of one key are handled one after the other, in the order of their lines.
        task_id: your business id; without one, the task is named LEDGER_ID:LINE.
        sequence: the producer's own number in the convoy, 1, 2, ...
        priority, tags: as of ``App.submit``.
    Nothing is checked before it is submitted: then what is wrong with it is reported with its line.
    """

    __slots__ = ("call", "convoy", "priority", "reason", "sequence", "tags", "task_id")

    def __init__(
        self,
        call: WorkflowCall[Any] | StepCall[Any],
        *,
        convoy: str | None = None,
        task_id: str | None = None,
        sequence: int | None = None,
        priority: int = PRIORITY_DEFAULT,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.call: WorkflowCall[Any] | StepCall[Any] | None = call
        self.convoy = convoy
        self.task_id = task_id
        self.sequence = sequence
        self.priority = priority
        self.tags: Any = tags  # checked with its line
        self.reason = ""

    @classmethod
    def bad(cls, reason: str) -> "Entry":
        """Stands for a line that cannot be read as an operation. ``reason``: what is wrong with it, for operators."""
        made = cls.__new__(cls)
        made.call = made.convoy = made.task_id = made.sequence = made.tags = None
        made.priority = PRIORITY_DEFAULT
        made.reason = codec.recordable_text(str(reason).strip()) or "it cannot be read"
        return made

    def __repr__(self) -> str:
        return f"<bad entry: {self.reason}>" if self.reason else f"<entry {self.call!r}>"


class Ledger(msgspec.Struct, frozen=True):
    """The result of a submitted ledger.

    Args:
        accepted: entries that became tasks with this call.
        duplicates: entries whose tasks were there before.
        set_aside: the others, each as ``line 7: reason``.
    """

    accepted: int
    duplicates: int
    set_aside: list[str]


class LedgerSubmission:
    """One submission of a ledger.

    Args:
        bad: ``refuse``: one bad entry means that nothing of the ledger is kept.
        on_progress: called with ``written`` or ``let go``, and the number of such entries.
        batch: entries in one transaction; None: ``BATCH``.
    """

    def __init__(
        self,
        session: Session,
        ledger_id: str,
        *,
        bad: Literal["refuse", "set_aside"] = "refuse",
        on_progress: Callable[[str, int], None] = lambda what, count: None,
        batch: int | None = None,
    ) -> None:
        if bad not in ("refuse", "set_aside"):
            raise InvalidInput(f"bad is {bad!r}; it must be 'refuse' or 'set_aside'")
        self._id = codec.check_id(ledger_id, "ledger_id")
        if len(ledger_id) > ID_LENGTH_MAX:
            raise InvalidInput(f"ledger_id has {len(ledger_id)} characters; it may have {ID_LENGTH_MAX}")
        self._session = session
        self._store = session.store
        self._refuses = bad == "refuse"
        self._on_progress = on_progress
        self._batch = BATCH if batch is None else batch
        self._pending: list[LedgerEntry] = []
        self._characters = 0  # of their arguments
        self._line = 0  # entries read
        self._digest = start_digest(session.app)  # over them
        self._digest_without_app = ""  # as releases that did not record the App have it; over what they wrote

    async def run(self, entries: Iterable[Entry] | AsyncIterable[Entry]) -> Ledger:
        """See ``App.submit_ledger``."""
        ledger = await self._begin_ledger()
        was_open = ledger.is_open
        async with aclosing(_iterate_entries(entries)) as each:
            async for entry in each:
                ledger = await self._read_entry(entry, ledger)
        ledger = await self._write_pending(ledger)
        if self._line < ledger.written:
            self._refuse_other(ledger)
        if not was_open:
            ledger, was_open = await self._open_ledger(ledger)
        ledger = await self._let_all_go(ledger)
        return await self._build_result(ledger, was_open=was_open)

    # --- writing
    async def _begin_ledger(self) -> LedgerRow:
        while (ledger := await self._store.begin_ledger(self._id)).state is LedgerState.DISCARDING:
            await discard_ledger(self._store, ledger, ACTOR, REFUSED)
        return ledger

    async def _read_entry(self, entry: Entry, ledger: LedgerRow) -> LedgerRow:
        if not isinstance(entry, Entry):
            raise InvalidInput(
                f"ledger {self._id!r}: what comes after line {self._line} is {entry!r}; entries are made with Entry(call),"
                " or Entry.bad(reason) for a line that cannot be read"
            )
        self._line += 1
        self._digest = _digest_after(self._digest, entry)
        if self._line <= ledger.written:
            self._digest_without_app = _digest_after(self._digest_without_app, entry)
            if self._line == ledger.written and self._digest != ledger.digest:
                self._digest = self._digest_without_app
                if self._digest != ledger.digest:
                    self._refuse_other(ledger)
            if self._line == ledger.written and self._refuses and ledger.aside and not ledger.is_open:
                # It was begun with bad="set_aside". Only who sends the same content is notified of it, and discards it.
                ((line, reason),) = await self._store.ledger_aside(ledger.ledger_no, limit=1)
                await self._refuse(ledger, line, reason)
            return ledger
        if ledger.is_open:
            self._refuse_other(ledger)
        self._add_entry(entry)
        if len(self._pending) < self._batch and self._characters < BATCH_CHARACTERS:
            return ledger
        return await self._write_pending(ledger)

    def _add_entry(self, entry: Entry) -> None:
        submit, bad = None, entry.reason
        if not bad:
            try:
                submit = self._build_submission(entry)
            except InvalidInput as error:
                bad = str(error)
        self._pending.append(LedgerEntry(line=self._line, digest=self._digest, submit=submit, bad=bad))
        self._characters += 0 if submit is None else len(submit.arguments)

    def _build_submission(self, entry: Entry) -> Submit:
        task_id = f"{self._id}:{self._line}" if entry.task_id is None else entry.task_id
        options = SubmitOptions(
            task_id=task_id, convoy=entry.convoy, sequence=entry.sequence, priority=entry.priority, tags=entry.tags
        )
        return build_submission(self._session, entry.call, options)

    async def _write_pending(self, ledger: LedgerRow) -> LedgerRow:
        """Write all entries that were read so far, unless another submitter of the same ledger has."""
        while self._pending:
            batch = LedgerBatch(
                ledger_no=ledger.ledger_no, after=ledger.written, entries=tuple(self._pending), refuses=self._refuses
            )
            answer = await self._store.write_ledger(batch)
            if answer.refused is not None:
                await self._refuse(ledger, *answer.refused, answer.verdict)
            ledger = self._require_present(answer.ledger)
            ahead = [entry for entry in self._pending if entry.line > ledger.written]
            if ledger.written < self._pending[0].line - 1 or (ahead and ledger.is_open):
                self._refuse_other(ledger)
            for entry in self._pending:
                if entry.line == ledger.written and entry.digest != ledger.digest:
                    self._refuse_other(ledger)
            self._pending = ahead
            self._on_progress("written", min(ledger.written, self._line))
        self._characters = 0
        return ledger

    # --- opening
    async def _open_ledger(self, ledger: LedgerRow) -> tuple[LedgerRow, bool]:
        """Open the ledger, so that its tasks exist. Returns it, and True if another submitter opened it."""
        digest = self._digest if self._line else ""  # a ledger without entries was never written
        answer = await self._store.open_ledger(ledger.ledger_no, self._line, digest, ACTOR)
        ledger = self._require_present(answer.ledger)
        if not ledger.is_open or (ledger.written, ledger.digest) != (self._line, digest):
            self._refuse_other(ledger)
        return ledger, not answer.opened

    async def _let_all_go(self, ledger: LedgerRow) -> LedgerRow:
        while ledger.state is LedgerState.OPENED:
            answer = await self._store.let_go(ledger.ledger_no, self._batch, ACTOR)
            if answer is None:
                await self._session.ports.clock.sleep(AGAIN_SECONDS)
                answer = await self._store.find_ledger(self._id)
            ledger = self._require_present(answer)
            self._on_progress("let go", ledger.let_go)
            self._session.hint()
        return ledger

    async def _build_result(self, ledger: LedgerRow, *, was_open: bool) -> Ledger:
        lines = await self._store.ledger_aside(ledger.ledger_no) if ledger.aside else []
        aside = [f"line {line}: {reason}" for line, reason in lines]
        if was_open:
            return Ledger(0, ledger.accepted + ledger.duplicates, aside)
        return Ledger(ledger.accepted, ledger.duplicates, aside)

    # --- refusing
    async def _refuse(self, ledger: LedgerRow, line: int, reason: str, verdict: str = "") -> NoReturn:
        await discard_ledger(self._store, ledger, ACTOR, REFUSED)
        if (kind := _REFUSALS.get(verdict)) is not None:
            raise kind(f"ledger {self._id!r}, line {line}: {reason}. Nothing of the ledger was submitted")
        raise InvalidInput(
            f"ledger {self._id!r}, line {line}: {reason}. Nothing of the ledger was submitted; fix it, or have bad entries"
            " set aside"
        )

    def _require_present(self, ledger: LedgerRow | None) -> LedgerRow:
        if ledger is None or ledger.state is LedgerState.DISCARDING:
            raise UnknownName(f"ledger {self._id!r} was discarded meanwhile; submit it again")
        return ledger

    def _refuse_other(self, ledger: LedgerRow) -> NoReturn:
        what = (
            f"is known with another content or of another App, {format_count(ledger.written, 'entry')}; use another ledger_id"
            if ledger.is_open
            else f"was begun with another content or by another App, of which {format_count_with_verb(ledger.written, 'entry')}"
            " written and nothing is visible; use another ledger_id, or discard it with `arriero ledger discard`"
        )
        raise NotAllowed(f"ledger {self._id!r} {what}")


async def discard_ledger(store: "StateStore", ledger: LedgerRow, actor: str, reason: str) -> LedgerRow | None:
    """Remove a ledger that is not opened, batch by batch. Returns: the ledger, if it was opened meanwhile."""
    left: LedgerRow | None = ledger
    while left is not None and not left.is_open:
        left = await store.discard_ledger(ledger.ledger_no, BATCH, actor, reason)
    return left


async def _iterate_entries(entries: Iterable[Entry] | AsyncIterable[Entry]) -> AsyncGenerator[Entry, None]:
    if isinstance(entries, AsyncIterable):
        async for entry in entries:
            yield entry
        return
    if not isinstance(entries, Iterable):
        raise InvalidInput(f"entries is {entries!r}; give an iterable of Entry")
    for count, entry in enumerate(entries):
        if count % BATCH == 0:
            await asyncio.sleep(0)  # others on the loop continue, also while nothing is written
        yield entry


def _digest_after(before: str, entry: Entry) -> str:
    call = entry.call
    workflow = arguments = ""
    if isinstance(call, WorkflowCall):
        workflow, arguments = call.workflow.name, call.arguments
    elif isinstance(call, StepCall):
        changed = msgspec.json.encode(call.changed).decode()
        workflow, arguments = STEP_PREFIX + call.step.name, f"{call.arguments}{changed}"
    return extend_digest(
        before,
        workflow=workflow,
        arguments=arguments,
        convoy=_make_plain(entry.convoy),
        sequence=_make_plain(entry.sequence),
        task_id=_make_plain(entry.task_id),
        bad=entry.reason,
        priority=None if entry.priority == PRIORITY_DEFAULT else _make_plain(entry.priority),
        tags=repr(sorted(entry.tags.items(), key=repr) if isinstance(entry.tags, Mapping) else entry.tags)
        if entry.tags
        else "",
    )


def _make_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int) else repr(value)
