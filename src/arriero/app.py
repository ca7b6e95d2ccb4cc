"""The front: App and the handle of a task. It builds the parts and forwards; it decides nothing."""

import asyncio
import hashlib
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from . import codec
from .bulk import Tasks, since_or_refuse
from .calls import StepCall, WorkflowCall
from .commands import Answer, AssignApp, Operate, OperateConvoy, Refusal, Submit, Submitted
from .config import Configuration, load
from .convoy import Convoy, ConvoyView, checked_state, convoy_views
from .core.apps import NOT_SAID
from .core.call_policy import policy_of
from .core.known import same_submission
from .core.lease import about_of, is_alive
from .definitions import DEFAULT_SUPERVISION, Agent, Step, Workflow
from .errors import DefinitionError, InvalidInput, OutcomeUnknown, StoreError
from .joining import submit_joined
from .ledger import Entry, Ledger, LedgerSubmission
from .model import Loaded, TailRow, TaskState
from .policies import Duration, TaskPolicy, checked
from .replies import Acknowledger, Replies
from .runtime import crash_points
from .runtime.code import STEP_PREFIX, Code, OneStep
from .runtime.ending import finish
from .runtime.ports import Ports, SystemPorts
from .runtime.settings import Settings
from .runtime.submissions import Submissions
from .runtime.waiting import Waiting
from .store import open_store
from .store.base import Busy, StateStore, TaskFilter, Unanswered, Unwritten
from .store.patience import apply_patiently
from .task import Task, seconds_or_refuse
from .task_view import TaskView, TaskViews

if TYPE_CHECKING:
    from .core.alerts import Alert
    from .runtime.agent_host import Around
    from .runtime.node import Node
    from .sync import SyncApp

__all__ = ["App", "Convoy", "ConvoyView", "Task", "TaskView", "Tasks"]

R = TypeVar("R")
T = TypeVar("T")
OnAlert = TypeVar("OnAlert", bound="Callable[[Alert], Any]")
SEQUENCE_MAX = 2**53  # so that JSON of any language keeps it exact


class App:
    """Agents and workflows under a name, and the state store they share.

    Args:
        name: of the App.
        agents: whose steps its workflows await.
        workflows: that may be submitted.
        store: URL of the state store, ``sqlite:///PATH``, unless the environment (``ARRIERO_STORE``) or
            ``arriero.toml`` names one; without any, ``./arriero.db``.
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
        self._settings: Settings | None = None  # what tests set; else as configured
        self._around: Around | None = None
        self._store: StateStore | None = None
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # the one it is open on
        self._node: Node | None = None
        self._waiting = Waiting(
            self._store_open, lambda: self._ports, lambda number: self._node is not None and self._node.drives(number)
        )
        self._submissions: Submissions | None = None
        self._views: TaskViews | None = None
        self._acknowledger: Acknowledger | None = None
        self._on_alert: list[Callable[[Alert], Any]] = []

    # --- opening
    def _configuration(self, **flags: Any) -> Configuration:
        return load(app_store=self._given_store, flags=flags)

    def _store_open(self) -> StateStore:
        if self._store is None:
            raise InvalidInput(
                f"App {self.name} is not open: use `async with app:` or `async with app.running():` around it"
            )
        return self._store

    def _views_open(self) -> TaskViews:
        self._store_open()
        assert self._views is not None
        return self._views

    async def _open(self, store: StateStore) -> None:
        loop = asyncio.get_running_loop()
        if self._users and self._loop is not loop:
            raise InvalidInput(
                f"App {self.name} is open on another event loop (app.sync has one of its own): use one of the two, or a"
                " second App"
            )
        if self._users == 0:
            crash_points.read_environment()
            self._loop = loop
            store.on_wake_up(self._waiting.look)
            await store.open()
            self._store = store
            self._submissions = Submissions(store, self._ports, lambda: self._node)
            self._views = TaskViews(store, self._codes, self.name)
        elif self._store is not None and store.url != self._store.url:
            raise InvalidInput(f"App {self.name} is open on {self._store.url}; close it before opening {store.url}")
        self._users += 1

    async def _close(self) -> None:
        """Cancelled, it sends nothing more, but closes all the same: threads end, and whoever waits is answered."""
        self._users -= 1
        if self._users == 0:
            assert self._submissions is not None
            await finish(self._close_all(), hurry=self._submissions.hurry)

    async def _close_all(self) -> None:
        """Whatever one of them raises, the others are closed."""
        assert self._submissions is not None
        assert self._store is not None
        async with AsyncExitStack() as stack:  # the last one first
            if isinstance(self._ports, SystemPorts):
                stack.callback(self._ports.close)
            stack.push_async_callback(self._store.close)
            stack.callback(self._forget)
            if self._acknowledger is not None:
                stack.push_async_callback(self._acknowledger.close)
            stack.push_async_callback(self._waiting.close)
            stack.push_async_callback(self._submissions.close)

    def _forget(self) -> None:
        self._store = self._submissions = self._acknowledger = None

    async def __aenter__(self) -> "App":
        """A client: submits and asks; runs nothing. Raises StoreError, SchemaOutdated, InvalidInput."""
        await self._open(open_store(self._configuration().store))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    def running(
        self,
        *,
        store: str | None = None,
        roles: Iterable[str] | None = None,
        agents: Iterable[str] | None = None,
        lost_processes_max: int | None = None,
    ) -> AbstractAsyncContextManager["App"]:
        """Run Scheduler, Agents and Supervisor in this process; leaving drains.

        Args:
            store: URL; else as for the App.
            roles: some of scheduler, agents, supervisor; all by default.
            agents: names of the Agents to host; all by default.
            lost_processes_max: of processes that died with a task, without progress between, after which it is held; at
                least 3. Whoever frees the task decides: give all processes of a store the same.
        Raises: InvalidInput for an unknown role, Agent or store, or a number that is too low; StoreError, SchemaOutdated.
        """
        chosen = None if roles is None else tuple(roles)
        found = self._configuration(store=store, roles=chosen, lost_processes_max=lost_processes_max)
        return self._running(open_store(found.store), frozenset(found.roles), self._hosted(agents), found)

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
        self,
        store: StateStore,
        roles: frozenset[str],
        agents: tuple[Agent, ...],
        found: Configuration | None = None,
        *,
        drain: bool = True,
    ) -> AsyncIterator["App"]:
        from .assembly import make_node  # only who runs an App pays for loading the runtime

        if self._node is not None:
            raise InvalidInput(f"App {self.name} is running already in this process")
        await self._open(store)
        try:
            node = make_node(
                self.name,
                agents,
                self._codes,
                store=self._store_open(),
                ports=self._ports,
                settings=self._settings,
                configuration=found or Configuration(),
                roles=roles,
                on_end=lambda task, live: self._waiting.ended_here(task, live.loaded),
                around=self._around,
                on_alert=self._on_alert,
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

    async def _nobody_runs(self, *, of: str | None = None) -> str:
        """That no Scheduler is alive on the store, naming it; empty when one is. ``of``: one of this App."""
        if self._node is not None:
            return ""
        store = self._store_open()
        now, processes = await store.known_processes()
        alive = [about_of(process).app for process in processes if is_alive(process, "scheduler", now)]
        if alive if of is None else any(app in (NOT_SAID, of) for app in alive):
            return ""
        whose = "" if of is None or not alive else f" of App {of!r}"
        return f"no Scheduler{whose} is alive on the store {store.url}: run the App there (arriero run MODULE:APP)"

    def on_alert(self, function: OnAlert) -> OnAlert:
        """Decorates a function, plain or async, that is told of each alert: a task needs a person, or no longer does.

        It is called in a process that runs the role supervisor; when it raises, it is called again later.
        """
        self._on_alert.append(function)
        return function

    @property
    def store(self) -> str:
        """URL of the store it is open on, with its absolute path; for ``arriero.connect``. Raises InvalidInput."""
        return self._store_open().url

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
            convoy: a key; tasks of one key are handled one after the other, in the order of their submission, each to its end.
            sequence: the producer's own number in the convoy, 1, 2, ...; then that is the order, whatever order they
                arrive in. The same number again answers with its task.
            end_of_sequence: nothing comes after this one in its convoy.
            priority: 0 to 9; 9 is submitted and claimed first; between convoys, never inside one.
            delay: seconds or timedelta before it may start.
            reply_to: a reply queue of your own that is told what becomes of the task; see ``replies``.
            connection: with a transaction open on the store's database: the task is part of it, and there is none unless
                you commit. On SQLite a ``sqlite3.Connection``, see ``arriero.connect``; on PostgreSQL one of psycopg, a
                session or connection of SQLAlchemy, each sync or async, or Django's.
        Raises: InvalidInput - a bad id, key, priority or delay, a definition that is not in this App, another workflow or
            body under a known id or sequence, a convoy that has ended or is ordered otherwise, or a connection that is not
            fit; TransactionConflict - roll back and run your transaction again; StoreError; OutcomeUnknown.
        """
        what: dict[str, Any] = {"task_id": task_id, "priority": priority, "delay": delay, "reply_to": reply_to}
        what |= {"convoy": convoy, "sequence": sequence, "end_of_sequence": end_of_sequence}
        if connection is not None:
            command, joined = self._submit_joined(call, connection=connection, on_loop=True, **what)
            answer = accepted(await joined if inspect.isawaitable(joined) else joined)
            return self.task(answer.task_id or command.task_id)
        command = self._submission(call, **what)
        answer = accepted(await self._submit(command))
        return Task(self, answer.task_id or command.task_id, self._codes[command.workflow], answer.task_no)

    def _submit_joined(
        self, call: WorkflowCall[Any] | StepCall[Any], *, connection: Any, on_loop: bool, **what: Any
    ) -> tuple[Submit, Submitted | Refusal | Awaitable[Submitted | Refusal]]:
        """In the caller's thread and transaction; the answer is to be awaited where the connection is an async one."""
        command = self._submission(call, **what)
        return command, submit_joined(self._store_open(), command, connection, on_loop=on_loop)

    def _submission(
        self,
        call: WorkflowCall[Any] | StepCall[Any],
        *,
        task_id: str | None,
        priority: int,
        delay: Duration,
        reply_to: str | None = None,
        convoy: str | None = None,
        sequence: int | None = None,
        end_of_sequence: bool = False,
    ) -> Submit:
        if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
            raise InvalidInput(f"priority is {priority!r}; it must be a whole number from 0 to 9")
        key = checked_key(convoy, sequence, end_of_sequence)
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
            delay=seconds_or_refuse(delay, "delay"),
            complete_within=policy.complete_within,
            seed=self._ports.random.getrandbits(62),
            reply_to=None if reply_to is None else codec.checked_id(reply_to, "reply_to"),
            convoy=key,
            sequence=sequence,
            end_of_sequence=end_of_sequence,
            app=self.name,
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
        submissions = self._submissions
        assert submissions is not None
        try:
            return await submissions.ask(command)
        except Unanswered as error:
            raise OutcomeUnknown(command.task_id) from error
        except (Unwritten, Busy):
            raise
        except StoreError as error:
            try:
                found = await self._store_open().find(command.task_id)
            except StoreError:
                raise OutcomeUnknown(command.task_id) from error
            if found is None:
                raise
            return same_submission(found.task, command, lambda: found.arguments, tail_named(found, command))

    async def submit_ledger(
        self,
        ledger_id: str,
        entries: Iterable[Entry] | AsyncIterable[Entry],
        *,
        bad: Literal["refuse", "set_aside"] = "refuse",
    ) -> Ledger:
        """Submit one message with operations on many keys: one task each, in order, all of them or none.

        When this returns, all of them are durable, and what is submitted later to one of their convoys stands behind them.
        After a crash or an error of the store, submit the same again: it goes on where it stood. Once it is in, the same
        ledger again changes nothing.

        Args:
            ledger_id: your name for it, 1 to 235 characters.
            entries: an iterable, or an asynchronous one where lines come slowly; it may be of any length.
            bad: ``refuse``: one bad entry, and nothing of the ledger is submitted. ``set_aside``: bad entries are left out
                and told with their line and reason, up to 10,000 of them.
        Raises: InvalidInput - a bad entry, told with its line; or a known ledger_id with another content; StoreError.
        """
        return await LedgerSubmission(self, ledger_id, bad=bad).run(entries)

    # --- asking
    @overload
    def task(self, task_id: str, of: Workflow[..., R]) -> Task[R]: ...
    @overload
    def task(self, task_id: str) -> Task[Any]: ...
    def task(self, task_id: str, of: Workflow[..., Any] | None = None) -> Task[Any]:
        """A handle of a task that was submitted before; nothing is asked of the store yet."""
        codec.checked_id(task_id, "task_id")
        return Task(self, task_id, None if of is None else Code(of.name, of))

    def tasks(
        self,
        *,
        state: str | None = None,
        workflow: str | None = None,
        agent: str | None = None,
        step: str | None = None,
        older_than: Duration | None = None,
        since: Duration | datetime | None = None,
        code: str | None = None,
        text: str | None = None,
        paused: bool | None = None,
    ) -> Tasks:
        """All tasks that this names: to count, to look at, or to carry out one verb on each.

        Args:
            state: ``pending``, ``processing``, ``processed``, ``error``, ``compensating``, ``compensated``.
            workflow: by name; ``step:NAME`` for tasks of one step.
            agent, step: with a step of that Agent, or name, that is not completed.
            older_than: submitted at least so long ago.
            since: submitted at most so long ago, or at or after a datetime that has a time zone.
            code, text: of its failure: the code exactly, a part of the reason.
            paused: whether a person keeps it from going on.
        Raises: InvalidInput - an unknown state, an empty text, no duration, or a datetime without a time zone.
        """
        for name, value in (("workflow", workflow), ("agent", agent), ("step", step), ("code", code), ("text", text)):
            if value is not None and not value.strip():
                raise InvalidInput(f"{name} is empty; leave it out, or say which tasks are meant")
        if state is not None and state not in tuple(TaskState):
            raise InvalidInput(f"state {state!r} is not known; states are {', '.join(TaskState)}")
        which = TaskFilter(
            state=None if state is None else TaskState(state),
            workflow=workflow,
            agent=agent,
            step=step,
            code=code,
            text=text,
            paused=paused,
        )
        age = None if older_than is None else seconds_or_refuse(older_than, "older_than")
        return Tasks(self, which, age, None if since is None else since_or_refuse(since))

    def convoy(self, key: str) -> Convoy:
        """A handle of the convoy of a key; nothing is asked of the store yet. Raises InvalidInput - no fit key."""
        return Convoy(self, codec.checked_id(key, "convoy"))

    def convoys(self, *, state: str | None = None) -> AsyncIterator[ConvoyView]:
        """Convoys in the order of their first submission, for ``async for``; read page by page.

        Args:
            state: ``idle``, ``open``, ``stopped``, ``gap`` or ``parked``; None: all but those that are idle.
        Raises: InvalidInput - an unknown state, or the App is not open.
        """
        return convoy_views(self._store_open(), checked_state(state))

    async def _operate(self, commands: Sequence[Operate | AssignApp | OperateConvoy]) -> Sequence[Answer]:
        """Carry out verbs, each whole or refused, in one transaction."""
        answers = await apply_patiently(self._store_open(), commands, self._ports.clock) if commands else []
        if self._node is not None:
            self._node.hint()
        return answers

    def replies(self, queue: str) -> Replies:
        """The messages of a reply queue, for ``async for``; taking the next acknowledges the one before.

        Raises: InvalidInput - no name for a queue, or the App is not open.
        """
        store = self._store_open()
        if self._acknowledger is None:
            self._acknowledger = Acknowledger(store, self._ports)
        return Replies(codec.checked_id(queue, "reply queue"), store, self._ports, self._acknowledger)

    @property
    def sync(self) -> "SyncApp":
        """The front for code without an event loop; one for each App."""
        from .sync import SyncApp

        front: SyncApp = self.__dict__.setdefault("_sync", SyncApp(self))  # one step, whatever threads ask at once
        return front

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self.agents)} Agents, {len(self.workflows)} workflows>"


def accepted(answer: Submitted | Refusal) -> Submitted:
    """The answer, if it is none of refusal. Raises InvalidInput."""
    if isinstance(answer, Refusal):
        same_id = "; use another task_id, or look at it with `arriero task show`"
        raise InvalidInput(answer.detail + ("" if answer.verdict == "no_place" else same_id))
    return answer


def checked_key(convoy: str | None, sequence: int | None, end_of_sequence: bool) -> str | None:
    """The key of a convoy as it was given, if it is fit. Raises InvalidInput."""
    if not isinstance(end_of_sequence, bool):
        raise InvalidInput(f"end_of_sequence is {end_of_sequence!r}; it must be True or False")
    if convoy is None:
        for name, value in (("sequence", sequence), ("end_of_sequence", end_of_sequence or None)):
            if value is not None:
                raise InvalidInput(f"{name} is given without convoy; name the convoy that it numbers")
        return None
    is_whole = isinstance(sequence, int) and not isinstance(sequence, bool)
    if sequence is not None and not (is_whole and 1 <= sequence <= SEQUENCE_MAX):
        raise InvalidInput(f"sequence is {sequence!r}; it must be a whole number from 1 to {SEQUENCE_MAX}")
    return codec.checked_id(convoy, "convoy")


def tail_named(found: Loaded, command: Submit) -> TailRow | None:
    """The tail of a task's convoy, as far as it tells whether the command names the same one."""
    convoy = found.convoy
    if convoy is None or convoy.key != command.convoy:
        return None
    # Whether an end mark was kept is not asked: it was submitted with the task, so it is there as surely as the task.
    end_rank = (found.task.sequence or found.task.place) if command.end_of_sequence else None
    return TailRow(convoy_no=convoy.convoy_no, key=convoy.key, ordering=convoy.ordering, end_rank=end_rank)


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
