"""The state of an App: its code and ports, and while it is open its store, submissions and result waiters."""

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from ..core.deduplication import answer_known_id
from ..core.lease import is_alive, read_process_about
from ..declare.steps import Agent
from ..errors import InvalidInput, OutcomeUnknown, StoreError
from ..model import NOT_SAID, Loaded, TailRow, later
from ..model.answers import Answer, Refusal, Submitted
from ..model.commands import CommandOfPerson, Operate, OperateAgent, Submit
from ..runtime import crash_points
from ..runtime.admission_queue import refuse_later
from ..runtime.code import Code
from ..runtime.ports import Ports, SystemPorts
from ..runtime.result_waiters import ResultWaiters
from ..runtime.settings import Settings
from ..runtime.shutdown import finish
from ..runtime.submissions import Submissions
from ..store import open_store
from ..store.committer import CommitCounts, apply_patiently
from ..store.contract import Busy, Unanswered, Unwritten
from .replies import Acknowledger
from .task_view import TaskViews

if TYPE_CHECKING:  # only who runs an App pays for loading these
    from ..config import Configuration
    from ..core.alerts import Alert
    from ..model.schedules import ScheduleDeclaration
    from ..model.tokens import OpenTaskCap
    from ..runtime.node import Node
    from ..runtime.process_context import Substitutes
    from ..store.state_store import StateStore
    from ..tracing.tracer import TracingOptions

T = TypeVar("T")
OperatorCommand = CommandOfPerson | OperateAgent


class ReadDeclared(Protocol):
    """Checks and reads what an App has declared. ``opening``: it is complete."""

    def __call__(self, *, opening: bool = False) -> tuple[tuple[Agent, ...], Mapping[str, Code]]: ...


class _ReadUntilOpen(Generic[T]):
    """A part of what the App has declared. While the App is open it is an attribute of the session, and this is not called."""

    def __init__(self, choose: Callable[[tuple[tuple[Agent, ...], Mapping[str, Code]]], T]) -> None:
        self._choose = choose

    def __get__(self, session: "Session", owner: type) -> T:
        return self._choose(session.read_declared())


class Session:
    """An App's access to its state store. The App, its handles and ``app.sync`` share one.

    Several may open it, one after the other or at once, on one event loop; it is closed when the last one has left.

    Args:
        app: the App's name.
        declared: checks and reads what the App has declared: its Agents, and its code by the name in a task's row. Steps and
            workflows may be declared until the App is opened.
        given_store: URL of the store that the App's code names; None: it names none.
    """

    agents = _ReadUntilOpen(lambda declared: declared[0])  # whose steps the App's workflows await
    codes = _ReadUntilOpen(lambda declared: declared[1])  # what the App runs, by the name in a task's row

    def __init__(self, app: str, declared: ReadDeclared, given_store: str | None) -> None:
        self.app = app
        self.read_declared = declared
        self.users = 0
        self.given_store = given_store
        self.ports: Ports = SystemPorts()
        self.settings: Settings | None = None  # set by tests; else as configured
        self.substitutes: Substitutes | None = None
        self.on_alert: list[Callable[[Alert], Any]] = []
        self.schedules: dict[str, ScheduleDeclaration] = {}  # that the App's code declares, by name
        self.tracing: TracingOptions | None = None  # set by App.trace
        self.cap: OpenTaskCap | None = None  # on what is submitted through it; set for a request of the HTTP API
        self.node: Node | None = None  # while the App runs in this process
        self.draining_node: Node | None = None  # while it ends: it takes nothing new, and programs still report to it
        self.mutex_durations: dict[str, float | None] = {}  # seconds, by name of the lease
        self.http_requests: Counter[tuple[str, int]] = Counter()  # that the HTTP API answered, by operation and status
        self.http_problems: Counter[str] = Counter()  # its refusals and failures, by code
        self.commit_counts = CommitCounts()  # of what runs in this process, and of its submissions
        self.submission_counts = CommitCounts()
        self.waiting = ResultWaiters(
            lambda: self.store,
            lambda: self.ports,
            lambda number: self.node is not None and self.node.is_driving(number),
        )
        self._submissions: Submissions | None = None  # made for the first one: who only looks or acts needs none
        self._loop: asyncio.AbstractEventLoop | None = None  # the one it is open on
        self._store: StateStore | None = None
        self._views: TaskViews | None = None
        self._acknowledger: Acknowledger | None = None
        self.configuration: Configuration | None = None  # as they were read last

    # --- opening and closing
    def configure(self, **flags: Any) -> "Configuration":
        """The settings of the App. ``flags``: those given by a caller. Raises InvalidInput."""
        from ..config import load_configuration  # only an App that is opened pays for loading it

        self.configuration = load_configuration(app_store=self.given_store, flags=flags)
        return self.configuration

    @property
    def is_open(self) -> bool:
        """Returns True if it has a store."""
        return self._store is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it is open on; None: it is not open."""
        return self._loop if self.is_open else None

    @property
    def store(self) -> "StateStore":
        """The open store. Raises InvalidInput."""
        if self._store is None:
            raise InvalidInput(
                f"App {self.app} is not open: use `async with app:` or `async with app.running():` around it"
            )
        return self._store

    @property
    def views(self) -> TaskViews:
        """Makes views of the store's tasks. Raises InvalidInput - the App is not open."""
        if self._views is None:
            self._views = TaskViews(self.store, self.codes, self.app)
        return self._views

    @property
    def submissions(self) -> Submissions | None:
        """Sends submissions to the store; None: the App is not open."""
        if self._submissions is None and self._store is not None:
            self._submissions = Submissions(self._store, self.ports, lambda: self.node, self.submission_counts)
        return self._submissions

    def narrow(self, store: "StateStore", codes: Mapping[str, Code], cap: "OpenTaskCap | None") -> "Session":
        """Return this open session as one sees it who reaches only a part of its store and code, or whose open tasks are capped."""
        _ = self.submissions  # both have the same ones
        narrowed = copy.copy(self)
        vars(narrowed).update(codes=codes, _store=store, _views=None, cap=cap)
        return narrowed

    def count_submissions_waiting(self) -> int:
        """Count the submissions that have no answer yet."""
        return 0 if self._submissions is None else self._submissions.count_waiting()

    @property
    def acknowledger(self) -> Acknowledger:
        """Writes acknowledgements of replies. Raises InvalidInput - the App is not open."""
        if self._acknowledger is None:
            self._acknowledger = Acknowledger(self.store, self.ports)
        return self._acknowledger

    async def open(self, store: "StateStore") -> None:
        """Open the store, or join those who have it open. Raises InvalidInput, StoreError, SchemaOutdated."""
        loop = asyncio.get_running_loop()
        if self.users and self._loop is not loop:
            raise InvalidInput(
                f"App {self.app} is open on another event loop (app.sync has one of its own): use one of the two, or a"
                " second App"
            )
        if self.users == 0:
            declared = self.read_declared(opening=True)
            crash_points.read_environment()
            self._loop = loop
            store.on_wake_up(self.waiting.look)
            await store.open()
            self._store = store
            vars(self)["agents"], vars(self)["codes"] = declared
        elif self._store is not None and store.url != self._store.url:
            raise InvalidInput(f"App {self.app} is open on {self._store.url}; close it before opening {store.url}")
        self.users += 1

    async def close(self) -> None:
        """Close the App when its last user leaves. If cancelled, it sends nothing more, but threads end and waiters get an answer."""
        self.users -= 1
        if self.users == 0:
            await finish(self._close_all(), hurry=self._hurry)

    def _hurry(self) -> None:
        if self._submissions is not None:
            self._submissions.hurry()

    async def _close_all(self) -> None:
        """Close all parts, even if one of them raises."""
        assert self._store is not None
        async with AsyncExitStack() as stack:  # the last one first
            if isinstance(self.ports, SystemPorts):
                stack.callback(self.ports.close)
            stack.push_async_callback(self._store.close)
            stack.callback(self._forget)
            if self._acknowledger is not None:
                stack.push_async_callback(self._acknowledger.close)
            stack.push_async_callback(self.waiting.close)
            if self._submissions is not None:
                stack.push_async_callback(self._submissions.close)

    def _forget(self) -> None:
        self._store = self._views = self._submissions = self._acknowledger = None
        del vars(self)["agents"], vars(self)["codes"]

    async def __aenter__(self) -> "Session":
        """Open the configured store. Raises StoreError, SchemaOutdated, InvalidInput."""
        await self.open(open_store(self.configure().store))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- asking the store
    async def submit(self, command: Submit) -> Submitted | Refusal:
        """Commit a submission. If the answer was lost, ask whether the task is there.

        Raises: OutcomeUnknown - nobody can tell; StoreError - the task is not there.
        """
        store = self.store
        if self._submissions is None and self.users == 0:
            await refuse_later()  # it is being closed
        submissions = self.submissions
        assert submissions is not None
        try:
            return await submissions.ask(command)
        except Unanswered as error:
            raise OutcomeUnknown(command.task_id) from error
        except (Unwritten, Busy):
            raise
        except StoreError as error:
            try:
                found = await store.find(command.task_id)
            except StoreError:
                raise OutcomeUnknown(command.task_id) from error
            if found is None:
                raise
            return answer_known_id(found.task, command, lambda: found.arguments, _find_named_tail(found, command))

    async def operate(self, commands: Sequence[OperatorCommand]) -> Sequence[Answer]:
        """Carry out verbs, each whole or refused, in one transaction."""
        commands = [self._require_persons(command) for command in commands]
        answers = await apply_patiently(self.store, commands, self.ports.clock) if commands else []
        self.hint()
        return answers

    def _require_persons(self, command: OperatorCommand) -> OperatorCommand:
        """Say in a task's verb how many persons must ask for it, by the settings."""
        if not isinstance(command, Operate):
            return command
        configuration = self.configuration or self.configure()
        persons = configuration.count_persons(command.verb)
        if persons == 1:
            return command
        since = later(self.store.now(), -configuration.approvals_keep_seconds)
        return replace(command, persons=persons, approved_since=since)

    def hint(self) -> None:
        """Let the Scheduler of this process, if there is one, claim tasks now."""
        if self.node is not None:
            self.node.hint()

    async def describe_missing_scheduler(self, *, of: str | None = None) -> str:
        """Build the sentence that no Scheduler is alive on the store; empty if one is. ``of``: one of this App."""
        if self.node is not None:
            return ""
        now, processes = await self.store.known_processes()
        alive = [read_process_about(process).app for process in processes if is_alive(process, "scheduler", now)]
        if alive if of is None else any(app in (NOT_SAID, of) for app in alive):
            return ""
        whose = "" if of is None or not alive else f" of App {of!r}"
        return f"no Scheduler{whose} is alive on the store {self.store.url}: run the App there (arriero run MODULE:APP)"


def _find_named_tail(found: Loaded, command: Submit) -> TailRow | None:
    """Build the tail of a task's convoy, to compare it with the one that the command names."""
    convoy = found.convoy
    if convoy is None or convoy.key != command.convoy:
        return None
    # An end mark was submitted with the task, so it is there as surely as the task.
    end_rank = (found.task.sequence or found.task.place) if command.end_of_sequence else None
    return TailRow(convoy_no=convoy.convoy_no, key=convoy.key, ordering=convoy.ordering, end_rank=end_rank)
