"""The front: App and the handle of a task. It builds the parts and forwards; it decides nothing."""

import hashlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from . import codec
from .attempt import as_datetime
from .calls import StepCall, WorkflowCall
from .commands import Refusal, Submit, Submitted
from .core.call_policy import policy_of
from .definitions import DEFAULT_SUPERVISION, Agent, Step, Workflow
from .errors import (
    DefinitionError,
    InvalidInput,
    NotYetBuilt,
    OutcomeUnknown,
    StoreError,
    TaskCompensated,
    TaskFailed,
    UnknownTask,
)
from .later import Entry, Ledger, Status, SyncApp
from .model import STEP_OPEN, Loaded, StepKind, TaskFailure, TaskState
from .policies import Duration, TaskPolicy, checked, seconds
from .runtime import crash_points
from .runtime.code import STEP_PREFIX, Code, OneStep
from .runtime.ports import Ports, SystemPorts
from .runtime.settings import Settings, checked_roles
from .runtime.waiting import Waiting
from .store import open_store
from .store.base import Ended, StateStore
from .store.batch import same_submission
from .store.committer import Committer

if TYPE_CHECKING:
    from .runtime.agent_host import Around
    from .runtime.node import Node

R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
DEFAULT_STORE = "sqlite:///arriero.db"
_read_failure = msgspec.json.Decoder(TaskFailure).decode


class TaskView(msgspec.Struct, frozen=True):
    """A task as people see it."""

    id: str
    workflow: str
    state: str
    failure_count: int
    lost_count: int
    priority: int
    waiting_for: str
    reason: str
    submitted_at: datetime
    ended_at: datetime | None


def view_of(loaded: Loaded) -> TaskView:
    """A task's rows as people see them."""
    task = loaded.task
    failure = None if task.failure is None else _read_failure(task.failure)
    return TaskView(
        task.task_id,
        task.workflow,
        str(task.state),
        task.failure_count,
        task.lost_count,
        task.priority,
        waiting_for(loaded),
        "" if failure is None else failure.reason,
        as_datetime(task.submitted_at),
        None if task.ended_at is None else as_datetime(task.ended_at),
    )


def waiting_for(loaded: Loaded) -> str:
    """What moves the task next, in a few words; empty when it has ended."""
    task = loaded.task
    if task.state is TaskState.ERROR:
        return "a person"
    if task.ended_at is not None:
        return ""
    for step in loaded.steps:
        if step.state in STEP_OPEN and step.kind is StepKind.TIMER and step.not_before is not None:
            return f"the time {as_datetime(step.not_before).isoformat(timespec='seconds')}"
        if step.state in STEP_OPEN:
            what = "compensation" if step.kind is StepKind.COMPENSATION else "step"
            return f"{what} {step.label} of Agent {step.agent} ({step.state}, attempt {step.attempt})"
    return "a Scheduler"


class Task(Generic[R_co]):
    """A handle of one task, typed by its workflow."""

    def __init__(self, app: "App", task_id: str, code: Code | None, task_no: int | None = None) -> None:
        self.id = task_id
        self._app = app
        self._code = code
        self._task_no = task_no

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and answer with the workflow's output.

        Args:
            timeout: seconds or timedelta; None waits as long as it takes.
        Raises: TimeoutError; TaskCompensated when it was undone; TaskFailed when it waits for a person; UnknownTask.
        """
        limit = None if timeout is None else _seconds_or_refuse(timeout, "timeout")
        task_no = await self._number()
        ended = await self._app._waiting.until_ended(task_no, limit)
        return self._output(ended)  # type: ignore[no-any-return]  # the codec read it as the declared type

    async def _number(self) -> int:
        if self._task_no is None:
            self._task_no = (await self._load()).task.task_no
        return self._task_no

    def _output(self, ended: Ended) -> Any:
        task = ended.task
        if task.state is TaskState.PROCESSED:
            assert task.output is not None
            code = self._code or self._app._codes.get(task.workflow)
            return msgspec.json.decode(task.output) if code is None else code.output(task.output)
        assert task.failure is not None
        failure = _read_failure(task.failure)
        kind = TaskCompensated if task.state is TaskState.COMPENSATED else TaskFailed
        raise kind(
            task.task_id,
            state=str(task.state),
            step=failure.step,
            code=failure.code,
            reason=failure.reason,
            open_compensations=ended.open_compensations,
        )

    async def _load(self) -> Loaded:
        loaded = await self._app._store_open().find(self.id)
        if loaded is None:
            raise UnknownTask(f"no task {self.id!r} in the store {self._app._store_open().url}")
        return loaded

    async def view(self) -> TaskView:
        """The task as it stands. Raises UnknownTask."""
        return view_of(await self._load())

    def _verb(self, name: str) -> NotYetBuilt:
        return NotYetBuilt(f"task.{name}: the verbs for operators come with a later release")

    async def cancel(self, *, by: str, reason: str) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("cancel")

    async def resubmit(self, *, by: str, reason: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("resubmit")

    async def compensate(self, *, by: str, reason: str) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("compensate")

    async def extend(self, *, by: str, reason: str, within: Duration) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("extend")

    async def answer(self, *, by: str, reason: str, step: str, result: Any) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("answer")

    async def pause(self, *, by: str, reason: str) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("pause")

    async def resume(self, *, by: str, reason: str) -> None:
        """Raises NotYetBuilt in this release."""
        raise self._verb("resume")

    def __repr__(self) -> str:
        return f"<task {self.id}>"


class App:
    """Agents and workflows under a name, and the state store they share.

    Args:
        name: of the App.
        agents: whose steps its workflows await.
        workflows: that may be submitted.
        store: URL of the state store, ``sqlite:///PATH``; ``ARRIERO_STORE`` in the environment comes first, then this,
            then ``./arriero.db``.
    Nothing is read or opened before ``async with`` or ``running()``. Raises DefinitionError for doubled names.
    """

    def __init__(
        self,
        name: str,
        *,
        agents: Iterable[Agent] = (),
        workflows: Iterable[Workflow[..., Any]] = (),
        store: str | None = None,
    ) -> None:
        try:
            self.name = codec.checked_id(name, "name of an App")
        except InvalidInput as error:
            raise DefinitionError(str(error)) from error
        self.agents = _all_of(agents, Agent, "agents")
        self.workflows = _all_of(workflows, Workflow, "workflows")
        self._given_store = store
        self._codes = _codes(self.agents, self.workflows)
        self._ports: Ports = SystemPorts()
        self._settings = Settings()
        self._around: Around | None = None
        self._store: StateStore | None = None
        self._users = 0
        self._node: Node | None = None
        self._waiting = Waiting(self._store_open, lambda: self._ports)
        self._submitter: Committer[Submit, Submitted | Refusal] | None = None

    # --- opening
    def _store_url(self, given: str | None) -> str:
        return given or os.environ.get("ARRIERO_STORE") or self._given_store or DEFAULT_STORE

    def _store_open(self) -> StateStore:
        if self._store is None:
            raise InvalidInput(
                f"App {self.name} is not open: use `async with app:` or `async with app.running():` around it"
            )
        return self._store

    async def _open(self, store: StateStore) -> None:
        if self._users == 0:
            crash_points.read_environment()
            await store.open()
            self._store = store
            self._submitter = Committer(
                crash_points.around(store.submit, "before_submit_commit", "after_submit_commit"),
                sleep=self._ports.clock.sleep,
                monotonic=self._ports.clock.monotonic,
                repeat=lambda _: False,
                on_trouble=lambda _: None,
            )
            self._submitter.start()
        elif self._store is not None and store.url != self._store.url:
            raise InvalidInput(f"App {self.name} is open on {self._store.url}; close it before opening {store.url}")
        self._users += 1

    async def _close(self) -> None:
        self._users -= 1
        if self._users == 0:
            assert self._submitter is not None
            await self._submitter.stop()
            await self._waiting.close()
            store, self._store, self._submitter = self._store, None, None
            assert store is not None
            await store.close()
            if isinstance(self._ports, SystemPorts):
                self._ports.close()

    async def __aenter__(self) -> "App":
        """A client: submits and asks; runs nothing. Raises StoreError, SchemaOutdated, InvalidInput."""
        await self._open(open_store(self._store_url(None)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    def running(
        self, *, store: str | None = None, roles: Iterable[str] | None = None, agents: Iterable[str] | None = None
    ) -> AbstractAsyncContextManager["App"]:
        """Run Scheduler, Agents and Supervisor in this process; leaving drains.

        Args:
            store: URL; else as for the App.
            roles: some of scheduler, agents, supervisor; all by default.
            agents: names of the Agents to host; all by default.
        Raises: InvalidInput for an unknown role, Agent or store; StoreError, SchemaOutdated.
        """
        return self._running(open_store(self._store_url(store)), checked_roles(roles), self._hosted(agents))

    def _hosted(self, names: Iterable[str] | None) -> tuple[Agent, ...]:
        if names is None:
            return self.agents
        by_name = {agent.name: agent for agent in self.agents}
        wanted = list(names)
        for name in wanted:
            if name not in by_name:
                raise InvalidInput(f"Agent {name!r} is not in App {self.name}; it has {', '.join(by_name) or 'none'}")
        return tuple(by_name[name] for name in wanted)

    @asynccontextmanager
    async def _running(
        self, store: StateStore, roles: frozenset[str], agents: tuple[Agent, ...], *, drain: bool = True
    ) -> AsyncIterator["App"]:
        from .runtime.node import Node, Session  # only who runs an App pays for loading the runtime

        if self._node is not None:
            raise InvalidInput(f"App {self.name} is running already in this process")
        await self._open(store)
        try:
            node = Node(
                lambda: Session(
                    agents,
                    self._codes,
                    store=self._store_open(),
                    ports=self._ports,
                    settings=self._settings,
                    roles=roles,
                    on_end=lambda task, live: self._waiting.ended_here(task, live.loaded),
                    around=self._around,
                )
            )
            await node.start()
            self._node = node
            try:
                yield self
            finally:
                self._node = None
                await node.stop(drain=drain)
        finally:
            await self._close()

    # --- submitting
    async def submit(
        self,
        call: WorkflowCall[R] | StepCall[R],
        *,
        task_id: str | None = None,
        convoy: str | None = None,
        sequence: int | None = None,
        end_of_sequence: bool = False,
        priority: int = 5,
        delay: Duration = 0,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> Task[R]:
        """Start a task. When this returns, the task is durable.

        Args:
            call: of a workflow or of one step of this App.
            task_id: your business id, 1 to 255 characters; the same id again answers with the same task.
            priority: 0 to 9; 9 is claimed first.
            delay: seconds or timedelta before it may start.
        Raises: InvalidInput - a bad id, priority or delay, a definition that is not in this App, or another workflow or
            body under a known id; StoreError; OutcomeUnknown; NotYetBuilt for convoy, sequence, reply_to, connection.
        """
        for name, value in (
            ("convoy", convoy),
            ("sequence", sequence),
            ("reply_to", reply_to),
            ("connection", connection),
        ):
            if value is not None:
                raise NotYetBuilt(f"submit({name}=): it comes with a later release; leave it out")
        if end_of_sequence:
            raise NotYetBuilt("submit(end_of_sequence=): it comes with a later release; leave it out")
        command = self._submission(call, task_id=task_id, priority=priority, delay=delay)
        answer = await self._submit(command)
        if isinstance(answer, Refusal):
            raise InvalidInput(f"{answer.detail}; use another task_id, or look at it with `arriero task show`")
        if self._node is not None:
            self._node.hint()
        return Task(self, command.task_id, self._codes[command.workflow], answer.task_no)

    def _submission(
        self, call: WorkflowCall[Any] | StepCall[Any], *, task_id: str | None, priority: int, delay: Duration
    ) -> Submit:
        if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
            raise InvalidInput(f"priority is {priority!r}; it must be a whole number from 0 to 9")
        name, arguments, policy = self._of_call(call)
        task_id = self._ports.new_task_id() if task_id is None else codec.checked_id(task_id, "task_id")
        return Submit(
            actor="client",
            task_id=task_id,
            workflow=name,
            arguments=arguments,
            body_hash=hashlib.blake2b(arguments.encode(), digest_size=16).hexdigest(),
            policy=msgspec.json.encode(policy).decode(),
            priority=priority,
            delay=_seconds_or_refuse(delay, "delay"),
            complete_within=policy.complete_within,
            seed=self._ports.random.getrandbits(62),
        )

    def _of_call(self, call: object) -> tuple[str, str, TaskPolicy]:
        if isinstance(call, WorkflowCall):
            name = call.workflow.name
            if (code := self._codes.get(name)) is None or not code.runs(call.workflow):
                raise InvalidInput(f"workflow {name!r} is not in App {self.name}; it has {self._workflow_names()}")
            return name, call.arguments, call.workflow.policy
        if isinstance(call, StepCall):
            name = STEP_PREFIX + call.step.name
            if (code := self._codes.get(name)) is None or not code.runs(call.step):
                raise InvalidInput(
                    f"step {call.step.name!r} of Agent {call.step.agent.name!r} is not in App {self.name}: add the Agent to it"
                )
            one = OneStep(msgspec.Raw(call.arguments.encode()), call.changed)
            supervision = policy_of(call, DEFAULT_SUPERVISION).supervision
            return name, msgspec.json.encode(one).decode(), TaskPolicy(None, supervision)
        raise InvalidInput(f"submit takes the call of a workflow or step, like fulfil(order), not {call!r}")

    def _workflow_names(self) -> str:
        return ", ".join(workflow.name for workflow in self.workflows) or "none"

    async def _submit(self, command: Submit) -> Submitted | Refusal:
        self._store_open()
        assert self._submitter is not None
        try:
            return await self._submitter.ask(command)
        except StoreError as error:
            try:
                found = await self._store_open().find(command.task_id)
            except StoreError:
                raise OutcomeUnknown(command.task_id) from error
            if found is None:
                raise
            return same_submission(found.task, command)

    async def submit_ledger(
        self,
        ledger_id: str,
        entries: Iterable[Entry] | AsyncIterable[Entry],
        *,
        bad: Literal["refuse", "set_aside"] = "refuse",
    ) -> Ledger:
        """Raises NotYetBuilt in this release."""
        raise NotYetBuilt("submit_ledger: ledgers come with a later release; submit each task with app.submit")

    # --- asking
    @overload
    def task(self, task_id: str, of: Workflow[..., R]) -> Task[R]: ...
    @overload
    def task(self, task_id: str) -> Task[Any]: ...
    def task(self, task_id: str, of: Workflow[..., Any] | None = None) -> Task[Any]:
        """A handle of a task that was submitted before; nothing is asked of the store yet."""
        codec.checked_id(task_id, "task_id")
        return Task(self, task_id, None if of is None else Code(of.name, of))

    def replies(self, queue: str) -> AsyncIterator[Status]:
        """Raises NotYetBuilt in this release."""
        raise NotYetBuilt("replies: status messages come with a later release; await task.result() or ask task.view()")

    @property
    def sync(self) -> SyncApp:
        """The front for code without an event loop; everything on it raises NotYetBuilt in this release."""
        return SyncApp()

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self.agents)} Agents, {len(self.workflows)} workflows>"


def _seconds_or_refuse(duration: Duration, what: str) -> float:
    try:
        return seconds(duration, what)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from error


def _all_of(values: Iterable[T], of: type, what: str) -> tuple[T, ...]:
    if not isinstance(values, Iterable):
        raise DefinitionError(f"{what} of an App is {values!r}; give a list")
    return tuple(checked(value, of, f"one of the {what} of an App") for value in values)


def _codes(agents: tuple[Agent, ...], workflows: tuple[Workflow[..., Any], ...]) -> dict[str, Code]:
    codes: dict[str, Code] = {}
    names = [agent.name for agent in agents]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise DefinitionError(f"two Agents are named {min(doubled)!r}; a name stands for one remote service")
    definitions: list[tuple[str, Workflow[Any, Any] | Step[Any, Any]]] = [(w.name, w) for w in workflows]
    definitions += [(STEP_PREFIX + step.name, step) for agent in agents for step in agent.steps.values()]
    for name, definition in definitions:
        if name in codes:
            kind, _, plain = name.rpartition(":")
            raise DefinitionError(f"two {kind or 'workflow'}s are named {plain!r}; give one of them another name=")
        codes[name] = Code(name, definition)
    return codes
