"""The code of an App, replayed over the records of stored tasks: what would be held, and where in the code. Nothing is carried out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from ..audit.export import ExportedRecords
from ..core.apps import find_code
from ..core.replay_judgement import ALL, OPEN, STATES, Judgement, KnownCode, is_meant, judge_task
from ..errors import InvalidInput, UnreadableRow
from ..model import TASK_OPEN, Instant, Loaded, TaskState
from ..model.failures import Frame
from ..payloads import codec
from ..store import existing_store
from ..store.readable import refuse_unreadable_task
from ..store.task_filter import TaskFilter
from ..system.traceback_capture import capture_definition
from ..text.format import find_raising_frame
from .session import Session

if TYPE_CHECKING:
    from ..store.state_store import StateStore

PAGE = 500  # rows of tasks that one look at the store lists
ROWS_AT_ONCE = 5_000  # rows of steps, about, that are in memory at a time
SKIPPED_UNREADABLE = "with a row that cannot be read"


class HeldOnReplay(msgspec.Struct, frozen=True):
    """A task that today's code would hold.

    Args:
        state: as it is stored.
        step: label of the step at which code and record disagree; empty: it is about no step.
        reason: the sentence that the held task would have.
        kind, code: of the failure that it would have.
        at: the line of the workflow where its code stood; None: it has no code here.
    """

    id: str
    workflow: str
    state: TaskState
    step: str
    reason: str
    kind: str
    code: str
    at: Frame | None

    @property
    def where(self) -> str:
        """The line as text: ``shop.py:41 in fulfil``; empty if none is known."""
        return "" if self.at is None else f"{self.at.file}:{self.at.line} in {self.at.function}"

    @property
    def cause(self) -> tuple[str, ...]:
        """Workflow, failure, step and line: equal for tasks that one change of the code would hold."""
        return (self.workflow, self.kind, self.code, self.step.partition("[")[0], self.where)


class ReplayReport(msgspec.Struct, frozen=True):
    """The result of a replay.

    Args:
        replayed: number of tasks whose code ran, or whose undo was looked at.
        held: those that would be held, in the order in which they were read.
        skipped: numbers of the others, by the reason.
    """

    replayed: int
    held: tuple[HeldOnReplay, ...]
    skipped: dict[str, int]

    @property
    def causes(self) -> list[list[HeldOnReplay]]:
        """Those that would be held, put together by cause, the largest group first."""
        groups: dict[tuple[str, ...], list[HeldOnReplay]] = {}
        for one in self.held:
            groups.setdefault(one.cause, []).append(one)
        return sorted(groups.values(), key=len, reverse=True)


class Replayer:
    """Replays the code of one App over tasks, one after the other, and collects the report.

    Args:
        session: of the App; it need not be open.
        state: of the tasks that are meant: a state, ``open`` or ``all``. ``workflow``: None: any.
        advance: called after each task.
    Raises: InvalidInput - an unknown state or workflow; DefinitionError - of the App.
    """

    def __init__(
        self, session: Session, state: str, workflow: str | None, advance: Callable[[], None] | None = None
    ) -> None:
        if state not in STATES:
            raise InvalidInput(f"state {state!r} is not known; states are {', '.join(STATES)}")
        if workflow is not None:
            codec.check_id(workflow, "workflow")
        self._state = state
        self._workflow = workflow
        self._advance = advance
        self._codes = session.codes
        definitions = frozenset(one.definition for code in session.codes.values() for one in code.list_versions())
        agents = {agent.name: agent for agent in session.agents}
        self._known = KnownCode(session.app, session.codes, definitions, agents)
        self._replayed = 0
        self._held: list[HeldOnReplay] = []
        self._skipped: Counter[str] = Counter()
        self._shared: dict[
            tuple[str, Frame | None], tuple[str, Frame | None]
        ] = {}  # by thousands of tasks of one cause

    async def replay_store(self, store: "StateStore") -> ReplayReport:
        """Replay the tasks of a store. Raises StoreError."""
        async for page in list_records(store, self._state, self._workflow):
            for loaded in page:
                self._take(loaded, store.now())
            await asyncio.sleep(0)
        return self._report()

    async def replay_lines(self, lines: Iterable[bytes | str]) -> ReplayReport:
        """Replay the tasks whose payloads an export carries.

        Raises: MutilatedExport - it was cut or changed; InvalidInput - it does not carry the payloads.
        """
        records = ExportedRecords(lines)
        for loaded in records:
            self._take(loaded, records.last_at)
            await asyncio.sleep(0)
        records.refuse_without(self._state, is_carried=_carries(records.carried, self._state))
        return self._report()

    def _take(self, loaded: Loaded, now: Instant) -> None:
        task = loaded.task
        if self._workflow not in (None, task.workflow) or not is_meant(task.state, self._state):
            return
        try:
            judged = judge_task(refuse_unreadable_task(loaded), self._known, now)
        except UnreadableRow:
            judged = Judgement(skipped=SKIPPED_UNREADABLE)
        if judged.skipped:
            self._skipped[judged.skipped] += 1
        else:
            self._replayed += 1
        if judged.failure is not None:
            self._held.append(self._build_held(loaded, judged))
        if self._advance is not None:
            self._advance()

    def _build_held(self, loaded: Loaded, judged: Judgement) -> HeldOnReplay:
        task, failure = loaded.task, judged.failure
        assert failure is not None
        at = find_raising_frame(judged.trace)
        code = find_code(self._codes, task)
        if at is None and code is not None:
            at = find_raising_frame(capture_definition(code.definition.signature.function))
        reason, at = self._shared.setdefault((failure.reason, at), (failure.reason, at))
        return HeldOnReplay(
            task.task_id, task.workflow, task.state, judged.step, reason, failure.kind, failure.code, at
        )

    def _report(self) -> ReplayReport:
        return ReplayReport(self._replayed, tuple(self._held), dict(self._skipped))


def _carries(carried: str, asked: str) -> bool:
    """Returns True if the tasks in the state that was asked for are among those carried."""
    if carried in (ALL, asked):
        return True
    with suppress(ValueError):
        return carried == OPEN and TaskState(asked) in TASK_OPEN
    return False


async def list_records(store: "StateStore", state: str, workflow: str | None = None) -> AsyncIterator[list[Loaded]]:
    """All that is recorded of each task in a state, as it stands, some tasks at a time: a task with many steps comes with few others.

    Args:
        state: one of ``STATES``. A task that changes its state meanwhile comes once, or not at all.
    """
    states = [str(one) for one in TaskState if is_meant(one, state)]
    seen: set[int] = set()
    for one in [None] if state == ALL else states:
        after = 0
        while rows := await store.list_tasks(TaskFilter(state=one, workflow=workflow), after=after, limit=PAGE):
            after = rows[-1].task_no
            batch: list[int] = []
            size = 0
            for row in rows:
                if row.task_no in seen:
                    continue
                seen.add(row.task_no)
                batch.append(row.task_no)
                size += 1 + row.opened_count
                if size >= ROWS_AT_ONCE:
                    yield await store.load_all(batch)
                    batch, size = [], 0
            if batch:
                yield await store.load_all(batch)


def open_export(path: str | Path) -> IO[bytes]:
    """Open an export. Raises InvalidInput: it cannot be read."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidInput(f"the export {path} cannot be read: {error.strerror}") from error


async def replay_app(
    session: Session, store: str | None, export: str | Path | None, state: str, workflow: str | None
) -> ReplayReport:
    """See ``App.replay``."""
    replayer = Replayer(session, state, workflow)
    if store is not None and export is not None:
        raise InvalidInput("replay takes its records from a store or from an export: give store= or export=, not both")
    if export is not None:
        with open_export(export) as lines:
            return await replayer.replay_lines(lines)
    if store is None and session.is_open:
        return await replayer.replay_store(session.store)
    opened = existing_store(session.configure(store=store).store, reads_only=True)
    await opened.open()
    try:
        return await replayer.replay_store(opened)
    finally:
        await opened.close()
