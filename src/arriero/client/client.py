"""The front for code on an event loop: it submits tasks and asks about them. It decides nothing."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..declare.steps import Agent, StepCall
from ..declare.workflows import Workflow, WorkflowCall
from ..errors import InvalidInput
from ..model.policies import Duration, check_seconds
from ..model.tags import check_tags
from ..payloads import codec
from ..runtime.code import Code
from ..store import open_store
from .convoy import Convoy, ConvoyView, check_state, list_convoy_views
from .external_transaction import submit_joined
from .ledger import Entry, Ledger, LedgerSubmission
from .replies import Replies
from .session import Session
from .submission import SubmitOptions, accept, build_submission
from .task import Task
from .tasks import Tasks, TaskSelector, check_when

if TYPE_CHECKING:  # only who looks at Agents, or leads, pays for loading it
    from pathlib import Path

    from ..core.alerts import Alert
    from ..explain.code_versions import CodeVersionView
    from ..leases import DistributedMutex, Lease, LeaseView
    from ..leases.mutex import OnElected, OnLost
    from .agent_metrics import AppMetrics
    from .agents import AgentHandle, AgentView
    from .alerts import AlertCauses
    from .leases import LeaderView
    from .ledger_handle import LedgerHandle
    from .questions import OpenQuestion
    from .replaying import ReplayReport
    from .schedules import Schedules
    from .tokens import Tokens
    from .workflows import WorkflowHandle, WorkflowView

R = TypeVar("R")


def run_configured(
    session: Session,
    store: str | None,
    roles: Iterable[str] | None,
    agents: Iterable[str] | None,
    lost_processes_max: int | None,
    deployment: str | None = None,
) -> AbstractAsyncContextManager[None]:
    """Run an App as ``App.running`` describes it. Raises InvalidInput immediately - a setting that cannot be used."""
    from .assembly import run_node  # only who runs an App pays for loading the runtime

    for name, given in ("roles", roles), ("agents", agents):
        if isinstance(given, str):
            raise InvalidInput(f"{name} is {given!r}; give a list, like {name}=[{given!r}]")
    flags = {"lost_processes_max": lost_processes_max, "deployment": deployment}
    configuration = session.configure(store=store, roles=None if roles is None else tuple(roles), **flags)
    opened, hosted = open_store(configuration.store), _list_hosted(session, agents)
    return run_node(session, opened, frozenset(configuration.roles), hosted, configuration)


def _list_hosted(session: Session, names: Iterable[str] | None) -> tuple[Agent, ...]:
    if names is None:
        return session.agents
    by_name = {agent.name: agent for agent in session.agents}
    wanted = list(names)
    for name in wanted:
        if name not in by_name:
            raise InvalidInput(f"Agent {name!r} is not in App {session.app}; it has {', '.join(by_name) or 'none'}")
    return tuple(by_name[name] for name in wanted)


class Client:
    """Submits tasks to an App's store and asks about them. ``App`` is one; ``app.sync`` mirrors it."""

    def __init__(self, session: Session) -> None:
        self.session = session

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
        tags: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
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
            priority: 0 to 9; 9 is submitted and claimed first, and each step is a head start of ten minutes; between
                convoys, never inside one.
            delay: seconds or timedelta before it may start.
            reply_to: a reply queue that receives what becomes of the task; see ``replies``.
            tags: names with a text each, by which operators find the task, at most 20: ``{"tenant": "acme"}``.
            traceparent, tracestate: headers of W3C Trace Context that came with a request; else the current span, if the App
                traces its tasks.
            connection: with a transaction open on the store's database: the task is part of it, and there is none unless
                you commit. On SQLite a ``sqlite3.Connection``, see ``arriero.connect``; on PostgreSQL one of psycopg, a
                session or connection of SQLAlchemy, each sync or async, or Django's.
        Raises: InvalidInput - a bad id, key, priority, delay, tag or traceparent, a definition that is not in this App, another workflow or
            body under a known id or sequence, a convoy that has ended or is ordered otherwise, or a connection that is not
            fit; TransactionConflict - roll back and run your transaction again; StoreError; OutcomeUnknown.
        """
        options = SubmitOptions(
            task_id=task_id,
            convoy=convoy,
            sequence=sequence,
            end_of_sequence=end_of_sequence,
            priority=priority,
            delay=check_seconds(delay, "delay"),
            reply_to=reply_to,
            tags=None if tags is None else check_tags(tags),
            traceparent=traceparent,
            tracestate=tracestate,
        )
        session = self.session
        command = build_submission(session, call, options)
        if connection is not None:
            joined = submit_joined(session.store, command, connection, on_loop=True)
            answer = accept(await joined if inspect.isawaitable(joined) else joined)
            return Task(session, answer.task_id or command.task_id, None, created=answer.created)
        answer = accept(await session.submit(command))
        task_id, code = answer.task_id or command.task_id, session.codes[command.workflow]
        return Task(session, task_id, code, answer.task_no, created=answer.created)

    async def execute(
        self,
        call: WorkflowCall[R] | StepCall[R],
        *,
        task_id: str | None = None,
        timeout: Duration | None = None,
        convoy: str | None = None,
        sequence: int | None = None,
        end_of_sequence: bool = False,
        priority: int = 5,
        delay: Duration = 0,
        reply_to: str | None = None,
        tags: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> R:
        """Start a task, wait for its end and answer with the workflow's output: ``submit`` and ``Task.result`` in one.

        The task is durable before the wait begins, and does not depend on it. Who is cancelled, or waits longer than ``timeout``, stops
        waiting, and the task continues. Call it again with the same ``task_id``: it waits for the same task.

        Args:
            timeout: seconds or timedelta to wait after the submission; None waits as long as it takes.
            task_id, convoy, sequence, end_of_sequence, priority, delay, reply_to, tags, traceparent, tracestate: as for ``submit``.
        Raises: TimeoutError; TaskCompensated when it was undone; TaskHeld when it waits for an operator; what ``submit`` raises.
        """
        limit = None if timeout is None else check_seconds(timeout, "timeout")  # before anything is submitted
        task = await self.submit(
            call,
            task_id=task_id,
            convoy=convoy,
            sequence=sequence,
            end_of_sequence=end_of_sequence,
            priority=priority,
            delay=delay,
            reply_to=reply_to,
            tags=tags,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        return await task.result(limit)

    async def submit_ledger(
        self,
        ledger_id: str,
        entries: Iterable[Entry] | AsyncIterable[Entry],
        *,
        bad: Literal["refuse", "set_aside"] = "refuse",
    ) -> Ledger:
        """Submit one message with operations on many keys: one task each, in order, all of them or none.

        When this returns, all of them are durable, and what is submitted later to one of their convoys stands behind them.
        After a crash or an error of the store, submit the same again: it continues where it stood. Once it is in, the same
        ledger again changes nothing.

        Args:
            ledger_id: your name for it, 1 to 235 characters.
            entries: an iterable, or an asynchronous one where lines come slowly; it may be of any length.
            bad: ``refuse``: one bad entry, and nothing of the ledger is submitted. ``set_aside``: bad entries are left out
                and reported with their line and reason, up to 10,000 of them.
        Raises: InvalidInput - a bad entry, reported with its line; or a known ledger_id with another content; StoreError.
        """
        return await LedgerSubmission(self.session, ledger_id, bad=bad).run(entries)

    def ledger(self, ledger_id: str) -> "LedgerHandle":
        """A handle of a ledger that was submitted: how far it is, and a wait for the end of its tasks.

        Raises: InvalidInput - no fit id.
        """
        from .ledger_handle import LedgerHandle

        return LedgerHandle(self.session, codec.check_id(ledger_id, "ledger_id"))

    # --- asking
    @overload
    def task(self, task_id: str, of: Workflow[..., R]) -> Task[R]: ...
    @overload
    def task(self, task_id: str) -> Task[Any]: ...
    def task(self, task_id: str, of: Workflow[..., Any] | None = None) -> Task[Any]:
        """A handle of a task that was submitted before; nothing is asked of the store yet."""
        codec.check_id(task_id, "task_id")
        return Task(self.session, task_id, None if of is None else Code(of.name, of))

    def tasks(
        self,
        *,
        state: str | None = None,
        workflow: str | None = None,
        agent: str | None = None,
        step: str | None = None,
        older_than: Duration | datetime | None = None,
        since: Duration | datetime | None = None,
        code: str | None = None,
        text: str | None = None,
        paused: bool | None = None,
        snoozed: bool | None = None,
        code_version: str | None = None,
        ledger: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Tasks:
        """All tasks that this names: to count, to look at, or to carry out one verb on each.

        Args:
            state: ``pending``, ``processing``, ``processed``, ``held``, ``compensating``, ``compensated``.
            workflow: by name; ``step:NAME`` for tasks of one step.
            agent, step: with a step of that Agent, or name, that is not completed.
            older_than: submitted at least so long ago, or at or before a datetime that has a time zone.
            since: submitted at most so long ago, or at or after a datetime that has a time zone.
            code, text: of its failure: the code exactly, a part of the reason.
            paused: whether an operator keeps it from continuing.
            snoozed: whether it is open and a snooze of it has not ended.
            code_version: that began it: ``2``, ``@blue`` or ``2@blue``; ``@`` is of no named deployment.
            ledger: id of the ledger that it came with, from release 0.5 on; its duplicates came before.
            parent: id of the task whose code has started it.
            tags: with each of these tags.
        Raises: InvalidInput - an unknown state, an empty text, no duration, or a datetime without a time zone.
        """
        which = TaskSelector(
            state=state,
            workflow=workflow,
            agent=agent,
            step=step,
            older_than=check_when(older_than, "older_than"),
            since=check_when(since, "since"),
            code=code,
            text=text,
            paused=paused,
            snoozed=snoozed,
            code_version=code_version,
            ledger=ledger,
            parent=parent,
            tags=None if tags is None else check_tags(tags),
        )
        return Tasks(self.session, which.check())

    def convoy(self, key: str) -> Convoy:
        """A handle of the convoy of a key; nothing is asked of the store yet. Raises InvalidInput - no fit key."""
        return Convoy(self.session, codec.check_id(key, "convoy"))

    def convoys(self, *, state: str | None = None) -> AsyncIterator[ConvoyView]:
        """Convoys in the order of their first submission, for ``async for``; read page by page.

        Args:
            state: ``idle``, ``open``, ``stopped``, ``gap`` or ``parked``; None: all but those that are idle.
        Raises: InvalidInput - an unknown state, or the App is not open.
        """
        return list_convoy_views(self.session.store, check_state(state))

    def agent(self, name: str, *, target: str = "") -> "AgentHandle":
        """A handle of an Agent of this App, for operators: how its service is, and open, close, pause, resume.

        Args:
            target: the part of its service, as its ``breaker_key`` names it; empty: the whole Agent.
        Raises: InvalidInput - no fit name.
        """
        from .agents import AgentHandle, check_agent_name

        check_agent_name(name, target)
        return AgentHandle(self.session, self.session.app, name, target)

    def workflow_named(self, name: str) -> "WorkflowHandle":
        """A handle of a workflow of this App, for operators: whether new tasks of it begin, pause, and resume.

        Args:
            name: ``step:NAME`` for tasks of one step.
        Raises: InvalidInput - no fit name.
        """
        from .workflows import WorkflowHandle

        return WorkflowHandle(self.session, self.session.app, codec.check_id(name, "name of a workflow"))

    async def workflows_view(self) -> "list[WorkflowView]":
        """All workflows that processes alive run, or that are paused, of any App. Raises InvalidInput - the App is not open."""
        from .workflows import load_workflow_views

        return await load_workflow_views(self.session)

    async def versions_view(self) -> "list[CodeVersionView]":
        """All versions of code that open or held tasks have, or processes alive, of any App. Raises InvalidInput, StoreError."""
        from .code_versions import load_code_versions as load

        return await load(self.session.store)

    async def agents_view(self) -> "list[AgentView]":
        """All Agents that the store knows of, of any App, by name. Raises InvalidInput - the App is not open."""
        from .agents import load_agent_views

        return await load_agent_views(self.session.store)

    async def metrics(self, *, agent: str | None = None) -> "AppMetrics":
        """Numbers about the calls of all Agents that the store knows of, of any App: counters, histograms, gauges.

        Each process writes what it counted every ten seconds, so the last calls may be missing.

        Args:
            agent: only Agents of this name; None: all.
        Raises: InvalidInput - there is no Agent of the name, or the App is not open; StoreError.
        """
        from .agent_metrics import load_metrics
        from .agents import check_agent_name

        if agent is not None:
            check_agent_name(agent, "")
        session = self.session
        return await load_metrics(session.store, [(session.app, one.name) for one in session.agents], agent)

    def alerts(self, *, state: str = "open") -> "AsyncIterator[Alert]":
        """Alerts of the store in the order of their opening, for ``async for``; read page by page.

        Args:
            state: ``open``: those that need an operator now; ``all``: closed ones, too.
        Raises: InvalidInput - another state, or the App is not open.
        """
        from .alerts import check_alert_state, list_alerts

        return list_alerts(self.session.store, open_only=check_alert_state(state))

    async def alert_causes(self) -> "AlertCauses":
        """The open alerts by cause: how many, since when, and one command for all. Raises InvalidInput, StoreError."""
        from .alerts import load_alert_causes

        return await load_alert_causes(self.session.store)

    def questions(self, *, of: str | None = None) -> "AsyncIterator[OpenQuestion]":
        """Open questions to operators in the order in which they were asked, for ``async for``; read page by page.

        Args:
            of: only those to these operators, as in ``arriero.ask(of=...)``; None: all.
        Raises: InvalidInput - ``of`` is unfit, or the App is not open.
        """
        from .questions import check_of, list_open_questions

        return list_open_questions(self.session.store, check_of(of))

    # --- leases
    def mutex(
        self,
        name: str,
        *,
        duration: Duration = 15.0,
        progress_within: Duration | None = None,
        on_elected: "OnElected | None" = None,
        on_lost: "OnLost | None" = None,
    ) -> "DistributedMutex":
        """A mutex on a lease in the store: work that one process at a time does; nothing is asked of the store yet.

        Args:
            name: of the lease; all Apps of the store share the names.
            duration: of the lease, 1 second to a day, the same in all processes. Another one takes over so long after a
                leader has died.
            progress_within, on_elected, on_lost: as for ``DistributedMutex``.
        Raises: LeaseRefused - no fit name; InvalidInput, DefinitionError - settings that cannot work, or another duration
            for the name.
        """
        from .leases import build_mutex

        return build_mutex(self.session, name, duration, progress_within, on_elected, on_lost)

    def lease(self, name: str) -> "Lease":
        """A handle of a lease in the store: inspect, watch and break_lease; nothing is asked of the store yet.

        Raises: LeaseRefused - no fit name.
        """
        from .leases import build_lease

        return build_lease(self.session, name)

    async def leases(self) -> "list[LeaseView]":
        """All leases that anybody ever held in the store, by name, with the Supervisors'. Raises InvalidInput, StoreError."""
        from .leases import load_lease_views

        return await load_lease_views(self.session)

    async def leader(self) -> "LeaderView | None":
        """The Supervisor that leads now; None: none does. Safety never depends on it.

        Raises InvalidInput - the App is not open; StoreError.
        """
        from .leases import load_leader

        return await load_leader(self.session.store)

    @property
    def schedules(self) -> "Schedules":
        """The schedules of this App, for operators: look at them, add, pause, resume, run one now, backfill, remove."""
        from .schedules import Schedules

        return Schedules(self.session, self.session.app)

    @property
    def tokens(self) -> "Tokens":
        """The tokens of the HTTP API, which all Apps of the store share: create, list, revoke."""
        from .tokens import Tokens

        return Tokens(self.session)

    async def complete_callback(self, token: str, value: Any, *, idempotency_key: str | None = None) -> bool:
        """Complete a callback, as a service does over HTTP. The value is kept, durably, when this returns.

        Args:
            token: of the callback, as a step reads it: ``callback.token``.
            value: of the type that the workflow waits for, or its plain JSON form.
            idempotency_key: a delivery under the same key changes nothing; None: the same value is the same delivery.
        Returns: False if the callback was completed by the same delivery before.
        Raises: CallbackRefused - it was not made here, was completed by another value, or its time is over; the value does not
            fit; InvalidInput - the value has no JSON form, or is too large; StoreError - send the same again.
        """
        from .callbacks import complete, read_token

        text = codec.encode_untyped(value, "the value of the callback")
        session, key = (
            self.session,
            None if idempotency_key is None else codec.check_id(idempotency_key, "idempotency_key"),
        )
        return await complete(session, await read_token(session.store, token), text, key)

    def replies(self, queue: str) -> Replies:
        """The messages of a reply queue, for ``async for``; taking the next acknowledges the one before.

        Raises: InvalidInput - no name for a queue, or the App is not open.
        """
        session = self.session
        store, acknowledger = session.store, session.acknowledger
        return Replies(codec.check_id(queue, "reply queue"), store, session.ports, acknowledger)

    # --- testing a release
    async def replay(
        self,
        *,
        store: str | None = None,
        export: "str | Path | None" = None,
        state: str = "open",
        workflow: str | None = None,
    ) -> "ReplayReport":
        """Replay the code of this App over the records of stored tasks, and list those that it would hold.

        No step, no Agent and no function of one is called, and nothing is written. The App need not be open.

        Args:
            store: URL; else that of the open App, or as for the App.
            export: path of a file that ``arriero export --payloads`` wrote; instead of a store.
            state: of the tasks: ``open`` (pending, processing and compensating), ``all``, or a state. Of one that is held, a
                resubmission is foreseen.
            workflow: only tasks of this one; ``step:NAME`` for tasks of one step.
        Raises: InvalidInput - an unknown state, or an export without payloads; MutilatedExport; StoreError.
        """
        from .replaying import replay_app  # only who replays pays for loading it

        return await replay_app(self.session, store, export, state, workflow)


for _method in filter(inspect.isfunction, vars(Client).values()):
    _method.__qualname__ = f"App.{_method.__name__}"  # as Python names a coroutine that was never awaited
