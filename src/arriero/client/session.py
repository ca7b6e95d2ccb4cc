"""The state of an App: its code and ports, and while it is open its store, submissions and result waiters."""

import asyncio
import copy
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from ..core.deduplication import CONFLICT, answer_known_id, hash_body
from ..core.lease import is_alive, read_process_about
from ..core.undo import list_open_compensations
from ..declare.steps import Agent
from ..errors import InvalidInput, OutcomeUnknown, StoreError, UnknownTask
from ..model import NOT_SAID, Loaded, TailRow, TaskRow, Verb, later
from ..model.answers import Answer, Refusal, SignalKept, Submitted
from ..model.commands import CommandOfPerson, Operate, OperateAgent, SendSignal, Submit
from ..payloads import codec
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
from ..store.contract import Busy, Ended, Unanswered, Unwritten
from ..text.escaping import shell_word
from .openings import Opening, Openings
from .replies import Acknowledger

if TYPE_CHECKING:  # only who runs an App pays for loading these
    from ..config import Configuration
    from ..core.alerts import Alert
    from ..model.schedules import ScheduleDeclaration
    from ..model.tokens import OpenTaskCap
    from ..runtime.change_waiters import ChangeWaiters
    from ..runtime.node import Node
    from ..runtime.process_context import Substitutes
    from ..store.state_store import StateStore
    from ..tracing.tracer import TracingOptions
    from .task_views import TaskViews

T = TypeVar("T")
logger = logging.getLogger("arriero")
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


class _OfOpening(Generic[T]):
    """An attribute of the App as it is open on the running event loop."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, session: "Session", owner: type) -> T:
        openings = session.openings
        opening = openings.by_loop.get(asyncio._get_running_loop()) or openings.find()
        return getattr(opening, self._name)  # type: ignore[no-any-return]  # as it is declared in the Session

    def __set__(self, session: "Session", value: T) -> None:
        setattr(session.openings.find(), self._name, value)


class Session:
    """An App's access to its state store. The App, its handles and ``app.sync`` share one.

    Several may open it, one after the other or together, each on an event loop of its choice. Every event loop has an opening
    of its own, which is closed when its last user has left. All openings are on the same store.

    Args:
        app: the App's name.
        declared: checks and reads what the App has declared: its Agents, and its code by the name in a task's row. Steps and
            workflows may be declared until the App is opened.
        given_store: URL of the store that the App's code names; None: it names none.
    """

    agents = _ReadUntilOpen(lambda declared: declared[0])  # whose steps the App's workflows await
    codes = _ReadUntilOpen(lambda declared: declared[1])  # what the App runs, by the name in a task's row
    node: "_OfOpening[Node | None]" = _OfOpening("node")
    draining_node: "_OfOpening[Node | None]" = _OfOpening("draining_node")
    waiting = _OfOpening[ResultWaiters]("waiting")
    changes: "_OfOpening[ChangeWaiters]" = _OfOpening("changes")
    _store: "_OfOpening[StateStore | None]" = _OfOpening("store")

    def __init__(self, app: str, declared: ReadDeclared, given_store: str | None) -> None:
        self.app = app
        self.read_declared = declared
        self.given_store = given_store
        self.settings: Settings | None = None  # set by tests; else as configured
        self.substitutes: Substitutes | None = None
        self.on_alert: list[Callable[[Alert], Any]] = []
        self.schedules: dict[str, ScheduleDeclaration] = {}  # that the App's code declares, by name
        self.tracing: TracingOptions | None = None  # set by App.trace
        self.version_pinning = (
            False  # tasks belong to the deployment that began them, unless their workflow says otherwise
        )
        self.cap: OpenTaskCap | None = None  # on what is submitted through it; set for a request of the HTTP API
        self.mutex_durations: dict[str, float | None] = {}  # seconds, by name of the lease
        self.http_requests: Counter[tuple[str, int]] = Counter()  # that the HTTP API answered, by operation and status
        self.http_problems: Counter[str] = Counter()  # its refusals and failures, by code
        self.commit_counts = CommitCounts()  # of what runs in this process, and of its submissions
        self.submission_counts = CommitCounts()
        self.configuration: Configuration | None = None  # as they were read last
        self.ports: Ports = SystemPorts()  # for all event loops
        self.openings = Openings(app, lambda: self.ports)

    # --- opening and closing
    def configure(self, **flags: Any) -> "Configuration":
        """The settings of the App. ``flags``: those given by a caller. Raises InvalidInput."""
        from ..config import load_configuration  # only an App that is opened pays for loading it

        self.configuration = load_configuration(app_store=self.given_store, flags=flags)
        return self.configuration

    @property
    def users(self) -> int:
        """Number of users that have it open, on all event loops."""
        return sum(opening.users for opening in self.openings.list_all())

    @property
    def is_open(self) -> bool:
        """Returns True if it has a store on the running event loop."""
        return self._store is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """An event loop that it is open on, the running one first; None: it is not open."""
        return (self.openings.find() if self.is_open else self.openings.find_any()).loop

    @property
    def store(self) -> "StateStore":
        """The store that is open on the running event loop. Raises InvalidInput."""
        opening = self.openings.by_loop.get(asyncio._get_running_loop()) or self.openings.find()
        store = opening.store
        if store is None:
            here = " on this event loop" if self.users else ""
            raise InvalidInput(
                f"App {self.app} is not open{here}: use `async with app:` or `async with app.running():` around it"
            )
        return store

    @property
    def url(self) -> str:
        """The store's URL as it may be shown. Raises InvalidInput - the App is open on no event loop."""
        target = self.openings.find_any().target
        return self.store.url if target is None else target.url

    @property
    def views(self) -> "TaskViews":
        """Makes views of the store's tasks. Raises InvalidInput - the App is not open."""
        opening, store = self.openings.find(), self.store
        if opening.views is None:
            from .task_views import TaskViews  # only who looks at a task pays for loading it

            opening.views = TaskViews(store, self.codes, self.app)
        return opening.views

    @property
    def submissions(self) -> Submissions | None:
        """Sends submissions to the store; None: the App is not open."""
        opening = self.openings.find()
        if opening.submissions is None and opening.store is not None:
            opening.submissions = Submissions(opening.store, self.ports, lambda: opening.node, self.submission_counts)
        return opening.submissions

    def __copy__(self) -> "Session":
        """Copy it as it is open on the running event loop. What is changed in the copy is not changed in the original."""
        copied = object.__new__(Session)
        vars(copied).update(vars(self), openings=copy.copy(self.openings))
        return copied

    def narrow(self, store: "StateStore", codes: Mapping[str, Code], cap: "OpenTaskCap | None") -> "Session":
        """Return this open session as one sees it who reaches only a part of its store and code, or whose open tasks are capped."""
        _ = self.submissions  # both have the same ones
        narrowed = copy.copy(self)
        opening = narrowed.openings.find()
        opening.store, opening.views = store, None
        vars(narrowed).update(codes=codes, cap=cap)
        return narrowed

    def count_submissions_waiting(self) -> int:
        """Count the submissions of this process that have no answer yet."""
        all_submissions = [opening.submissions for opening in self.openings.list_all()]
        return sum(submissions.count_waiting() for submissions in all_submissions if submissions is not None)

    @property
    def acknowledger(self) -> Acknowledger:
        """Writes acknowledgements of replies. Raises InvalidInput - the App is not open."""
        opening, store = self.openings.find(), self.store
        if opening.acknowledger is None:
            opening.acknowledger = Acknowledger(store, self.ports)
        return opening.acknowledger

    async def open(self, store: "StateStore") -> None:
        """Open the store on the running event loop, or join those who have it open there.

        Raises: InvalidInput - the App is open on another store, or was open when the process was forked; StoreError,
            SchemaOutdated.
        """
        openings, loop = self.openings, asyncio.get_running_loop()
        opening = openings.by_loop.get(loop)
        if opening is None or opening.users == 0:  # 0: it is being closed
            if openings.by_loop:
                openings.refuse_inherited()
            if not openings.by_loop:
                declared = self.read_declared(opening=True)
                crash_points.read_environment()
                vars(self)["agents"], vars(self)["codes"] = declared
            try:
                opening = openings.spare.pop()
            except IndexError:
                opening = Opening(lambda: self.ports)
            opening.process, opening.loop = os.getpid(), loop
            opening.target, opening.configuration = store, self.configuration
            opening.waiting.report = self._report_missing_scheduler
            openings.by_loop[loop] = opening
        opening.users += 1
        try:
            if store is not opening.target or len(openings.by_loop) > 1:
                openings.refuse_other_store(opening, store)
            async with opening.turn:
                if opening.store is None:  # else another user has opened it meanwhile
                    store.on_wake_up(opening.look)
                    await store.open()
                    opening.store = opening.target = store
        except BaseException:
            opening.users -= 1
            if not opening.users:
                self._give_back(opening)
            raise

    def _give_back(self, opening: Opening) -> None:
        """Give an opening back, whose successor on the same event loop may be there already."""
        openings = self.openings
        if openings.by_loop.get(opening.loop) is opening:
            del openings.by_loop[opening.loop]
        opening.loop = opening.target = opening.configuration = opening.store = None
        opening.views = opening.submissions = opening.acknowledger = None
        opening.turn = asyncio.Lock()  # the next opening may be on another event loop
        if opening is openings.first:
            openings.spare.append(opening)
        if not openings.by_loop:
            for name in ("agents", "codes"):
                vars(self).pop(name, None)
            if isinstance(self.ports, SystemPorts):
                self.ports.close()

    async def close(self) -> None:
        """Close the App on this event loop when its last user there leaves.

        If cancelled, it sends nothing more, but threads end and waiters get an answer.
        """
        opening = self.openings.by_loop[asyncio.get_running_loop()]
        opening.users -= 1
        if opening.users == 0:
            await finish(opening.close(self._give_back), hurry=opening.hurry)

    async def __aenter__(self) -> "Session":
        """Open the configured store, or the one that it is open on. Raises StoreError, SchemaOutdated, InvalidInput."""
        opening = self.openings.find_any()
        target, named_by = opening.target, opening.configuration  # read once: another thread may give the opening back
        url = self.configure().store if target is None else target.url
        if target is not None and named_by is not None and not url.startswith("sqlite:"):
            url = named_by.store  # with its password
        await self.open(open_store(url))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- asking the store
    async def submit(self, command: Submit) -> Submitted | Refusal:
        """Commit a submission. If the answer was lost, ask whether the task is there.

        Raises: OutcomeUnknown - nobody can know; StoreError - the task is not there.
        """
        store = self.store
        opening = self.openings.by_loop.get(asyncio._get_running_loop()) or self.openings.find()
        if opening.submissions is None and opening.loop is not None and opening.users == 0:
            await refuse_later()  # it is being closed
        submissions = opening.submissions or self.submissions
        assert submissions is not None
        try:
            answer = await submissions.ask(command)
            if isinstance(answer, Refusal) and answer.verdict == CONFLICT:
                answer = await self._submit_as_recorded(command, answer, submissions)
            if opening.node is None:
                self.hint()
            return answer
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

    async def _submit_as_recorded(
        self, command: Submit, refusal: Refusal, submissions: Submissions
    ) -> Submitted | Refusal:
        """Submit again with the recorded arguments if they mean the same to the code: another release has written them.

        Returns: the store's answer to that, else the refusal.
        """
        code, found = self.codes.get(command.workflow), await self.store.find(command.task_id)
        if code is None or found is None or not code.mean_same(found.arguments, command.arguments):
            return refusal
        recorded = replace(command, arguments=found.arguments, body_hash=hash_body(found.arguments))
        return await submissions.ask(recorded)

    async def operate(self, commands: Sequence[OperatorCommand]) -> Sequence[Answer]:
        """Carry out verbs, each whole or refused, in one transaction."""
        commands = [self.require_persons(one) if isinstance(one, Operate) else one for one in commands]
        answers = await apply_patiently(self.store, commands, self.ports.clock) if commands else []
        self.hint()
        return answers

    async def send(self, command: SendSignal) -> Answer:
        """Commit a signal. With a Scheduler on this event loop it shares the commits of that process, which hears of it."""
        opening = self.openings.find()
        store, node = self.store, opening.node
        session = None if node is None else node.session
        has_claimed = False
        if session is None:
            (answer,) = await apply_patiently(store, [command], self.ports.clock)
        else:
            has_claimed = session.scheduler.claim_after(command.task_no)
            answer = await session.committer.ask(command)
        if isinstance(answer, SignalKept) and not (has_claimed and answer.task.locked_by is None):
            self._note_signal(answer.task)
        return answer

    def _note_signal(self, task: TaskRow) -> None:
        for opening in self.openings.list_here_and_elsewhere():
            if (node := opening.node) is not None:
                opening.run(node.note_news, task)

    def require_persons(self, command: Operate) -> Operate:
        """Say in a task's verb how many operators must ask for it, by the settings."""
        configuration = self.configuration or self.configure()
        persons = configuration.count_persons(command.verb)
        if command.verb is Verb.ADJUST:  # it can do all that extend does
            persons = max(persons, configuration.count_persons(Verb.EXTEND))
        if persons == 1 and command.verb is not Verb.ANSWER:  # a question may want more than the settings
            return command
        since = later(self.store.now(), -configuration.approvals_keep_seconds)
        return replace(command, persons=persons, approved_since=since)

    def hint(self) -> None:
        """Let the Schedulers of this process claim tasks now."""
        openings = self.openings
        here = openings.by_loop.get(asyncio._get_running_loop()) or openings.find()
        for opening in dict.fromkeys([here, *openings.by_loop.values()]):
            if (node := opening.node) is not None:
                opening.run(node.hint)

    def settle_ended(self, task: TaskRow, loaded: Loaded) -> None:
        """Notify those who wait for a task, on any event loop, that it has ended in this process."""
        for opening in self.openings.list_here_and_elsewhere():
            if opening.waiting.is_awaited(task.task_no):
                opening.run(opening.waiting.settle, Ended(task, list_open_compensations(loaded.steps)))

    async def describe_missing_scheduler(self, *, of: str | None = None) -> str:
        """Build the sentence that no Scheduler is alive on the store; empty if one is. ``of``: one of this App."""
        store, openings = self.store, self.openings
        here = openings.by_loop.get(asyncio._get_running_loop()) or openings.find()
        if here.node is not None:
            return ""
        now, processes = await store.known_processes()
        alive = [read_process_about(process).app for process in processes if is_alive(process, "scheduler", now)]
        if alive if of is None else any(app in (NOT_SAID, of) for app in alive):
            return ""
        whose = "" if of is None or not alive else f" of App {of!r}"
        url = store.url
        target, app = "MODULE:APP", getattr(self.read_declared, "__self__", None)
        modules = list(sys.modules.items())  # an imported one may have the App: then the command can be copied
        for name, module in modules:
            for attribute, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
                if value is app is not None:
                    program = getattr(module, "__file__", None) or "" if name == "__main__" else name
                    target = f"{program.rpartition(os.sep)[2].removesuffix('.py')}:{attribute}"
        command = f"arriero run {target}" + (f" --store {shell_word(url)}" if "***" not in url else "")
        return f"no Scheduler{whose} is alive on the store {url}: run the App there ({command})"

    async def _report_missing_scheduler(self, task_no: int) -> None:
        """Log that no Scheduler is alive for a task that a caller waits for."""
        found = await self.store.load(task_no)
        if found is not None and (nobody := await self.describe_missing_scheduler(of=found.task.app)):
            logger.warning("%s; task %s waits", nobody, found.task.task_id)


def _find_named_tail(found: Loaded, command: Submit) -> TailRow | None:
    """Build the tail of a task's convoy, to compare it with the one that the command names."""
    convoy = found.convoy
    if convoy is None or convoy.key != command.convoy:
        return None
    # An end mark was submitted with the task, so it is there as definitely as the task.
    end_rank = (found.task.sequence or found.task.place) if command.end_of_sequence else None
    return TailRow(convoy_no=convoy.convoy_no, key=convoy.key, ordering=convoy.ordering, end_rank=end_rank)


async def find_task(task_id: str, store: "StateStore") -> Loaded:
    """One task. Raises InvalidInput, UnknownTask, StoreError."""
    loaded = await store.find(codec.check_id(task_id, "task id"))
    if loaded is None:
        raise build_unknown_task(task_id, store)
    return loaded


def build_unknown_task(task_id: str, store: "StateStore") -> UnknownTask:
    """Build the error of a task id that the store does not know."""
    return UnknownTask(f"there is no task {task_id!r} in the store {store.url}; see `arriero task list`")


async def load_task(session: Session, task_id: str) -> Loaded:
    """The task as it stands, by an id that was checked. Raises UnknownTask, StoreError."""
    loaded = await session.store.find(task_id)
    if loaded is None:
        raise build_unknown_task(task_id, session.store)
    return loaded
