"""``app.sync``: the front for code without an event loop, like scripts, Flask and Django.

The classes here are tables: each line names a method of the async front, and how its result is handed to a caller
without a loop. Signatures and types follow from those of the method. No rule lives here.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ..core.alerts import Alert
from ..declare.workflows import Workflow
from ..errors import InvalidInput
from ..leases import DistributedMutex, Leadership, Lease, LeaseView
from ..model.answers import Refusal, SignalPlaced, Submitted
from ..model.policies import Duration, check_seconds
from .agents import AgentHandle
from .alerts import check_alert_state, list_alerts
from .background import BackgroundReading, BackgroundSession
from .client import Client, run_configured
from .convoy import Convoy, ConvoyView, check_state, list_convoy_views
from .external_transaction import send_joined, submit_joined
from .ledger_handle import LedgerHandle
from .questions import OpenQuestion, check_of, list_open_questions
from .replies import Status
from .schedules import Schedules
from .signals import SignalReceipt, accept_joined, build_send, check_sent
from .submission import SubmitOptions, accept, build_submission
from .task import Task
from .task_view import TaskView
from .tasks import Tasks
from .tokens import Tokens
from .workflows import WorkflowHandle

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H")  # a handle of the async front
S = TypeVar("S")  # the one made of it
R_co = TypeVar("R_co", covariant=True)


# --- how a line of a table is made: same name, parameters, docstring and errors as the method it names
def _mirror(method: Callable[..., Any], forward: Callable[..., Any], doc: str | None, returns: Any = None) -> Any:
    mirrored: Any = wraps(method)(forward)
    mirrored.__doc__ = doc or method.__doc__
    mirrored.__qualname__ = f"Sync{method.__qualname__}"  # as a TypeError names it
    if returns is not None:
        mirrored.__signature__ = inspect.signature(method).replace(return_annotation=returns)
    return mirrored


def _build_waiting_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], doc: str | None = None
) -> Callable[Concatenate[Any, P], T]:
    """Build a method that waits for the result of an async method, or of what a subclass has in its place."""
    name = method.__name__

    def forward(self: "_Mirror", /, *args: Any, **kwargs: Any) -> T:
        return self._background.call(getattr(self._to, name), *args, **kwargs)  # type: ignore[no-any-return]

    return _mirror(method, forward, doc)  # type: ignore[no-any-return]


def _build_closed_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Build a method that waits for the result of an async method which needs no open App, and does not open it."""
    name = method.__name__

    def forward(self: "_Mirror", /, *args: Any, **kwargs: Any) -> T:
        return self._background.call_closed(getattr(self._to, name), *args, **kwargs)  # type: ignore[no-any-return]

    return _mirror(method, forward, None)  # type: ignore[no-any-return]


def _build_handle_method(
    method: Callable[Concatenate[Any, P], H],
    handle: Callable[[BackgroundSession, H], S],
    doc: str,
) -> Callable[Concatenate[Any, P], S]:
    """Build a method that wraps the handle of a plain method for the sync front."""
    name = method.__name__

    def forward(self: "_Mirror", /, *args: Any, **kwargs: Any) -> S:
        return handle(self._background, getattr(self._to, name)(*args, **kwargs))

    return _mirror(method, forward, doc, handle)  # type: ignore[no-any-return]


def _build_submitting_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Task[R]]], doc: str
) -> Callable[Concatenate[Any, P], "SyncTask[R]"]:
    """Build the method that submits a task; with ``connection``, in the calling thread and in the transaction open there."""

    def forward(self: "_Mirror", /, call: Any, *, connection: Any = None, **options: Any) -> SyncTask[R]:
        background = self._background
        if connection is None:
            return SyncTask(background, background.call(self._to.submit, call, **options))
        store, session = background.open(), background.session
        command = build_submission(session, call, SubmitOptions(**options))
        joined = submit_joined(store, command, connection, on_loop=False)
        if isinstance(joined, Coroutine):
            joined.close()
            raise InvalidInput("submit(connection=): this is an async connection; await App.submit with it")
        assert isinstance(joined, Submitted | Refusal)
        answer = accept(joined)
        return SyncTask(background, Task(session, answer.task_id or command.task_id, None, created=answer.created))

    return _mirror(method, forward, doc, SyncTask[R])  # type: ignore[no-any-return]


def _build_sending_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, SignalReceipt]],
) -> Callable[Concatenate[Any, P], SignalReceipt]:
    """Build the method that sends a signal; with ``connection`` as above."""

    def forward(
        self: "_Mirror", /, value: Any, *, signal_id: str | None = None, by: str = "", connection: Any = None
    ) -> SignalReceipt:
        background = self._background
        if connection is None:
            receipt: SignalReceipt = background.call(self._to.send, value, signal_id=signal_id, by=by)
            return receipt
        store, session, sent = background.open(), background.session, check_sent(value)
        command = build_send(session, 0, sent.signal.wait_name, sent.value, signal_id, by)
        joined = send_joined(store, self._to.id, command, connection, on_loop=False)
        if isinstance(joined, Coroutine):
            joined.close()
            raise InvalidInput("send(connection=): this is an async connection; await Task.send with it")
        assert isinstance(joined, SignalPlaced | Refusal)
        return accept_joined(session, self._to.id, command, joined)

    return _mirror(method, forward, None)  # type: ignore[no-any-return]


class _Mirror:
    """A handle of the async front, and the background in which its methods are awaited."""

    def __init__(self, background: BackgroundSession, forwarded_to: Any) -> None:
        self._background = background
        self._to = forwarded_to

    def __repr__(self) -> str:
        return repr(self._to)


class SyncTask(_Mirror, Generic[R_co]):
    """A task's handle for code without an event loop, typed by its workflow; see Task for each method."""

    def __init__(self, background: BackgroundSession, task: Task[R_co]) -> None:
        super().__init__(background, task)

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self._to.id)

    @property
    def created(self) -> bool | None:
        """True if this submission created the task; see Task."""
        created: bool | None = self._to.created
        return created

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and answer with the workflow's output; arguments and errors are those of Task.result."""
        return self._background.call(self._to.result, timeout)  # type: ignore[no-any-return]  # of the task we were made for

    def view(self) -> TaskView[R_co]:
        """The task as it stands; see Task.view."""
        return self._background.call(self._to.view)

    def changes(self) -> Iterator[TaskView[R_co]]:
        """Follow the task: a view now, and one after each change that is seen; see Task.changes."""
        return BackgroundReading[TaskView[R_co]](self._background, self._to.changes).each()

    def fork(
        self,
        from_step: str | int,
        *,
        task_id: str | None = None,
        convoy: str | None = None,
        by: str = "",
        reason: str = "",
    ) -> "SyncTask[R_co]":
        """Submit a new task that does this one again from a step on; see Task.fork."""
        forked = self._background.call(self._to.fork, from_step, task_id=task_id, convoy=convoy, by=by, reason=reason)
        return SyncTask(self._background, forked)

    children = _build_waiting_method(Task.children)
    cancel = _build_waiting_method(Task.cancel)
    resubmit = _build_waiting_method(Task.resubmit)
    compensate = _build_waiting_method(Task.compensate)
    extend = _build_waiting_method(Task.extend)
    adjust = _build_waiting_method(Task.adjust)
    answer = _build_waiting_method(Task.answer)
    pause = _build_waiting_method(Task.pause)
    resume = _build_waiting_method(Task.resume)
    snooze = _build_waiting_method(Task.snooze)
    send = _build_sending_method(Task.send)
    change_tags = _build_waiting_method(Task.change_tags)
    pin = _build_waiting_method(Task.pin)
    request = _build_waiting_method(Task.request)
    complete_callback = _build_waiting_method(Task.complete_callback)


class SyncTasks(_Mirror):
    """All tasks that a filter names, for code without an event loop; see Tasks for each method.

    They may be iterated; each time the store is asked again.
    """

    count = _build_waiting_method(Tasks.count)
    newest = _build_waiting_method(Tasks.newest)
    resubmit = _build_waiting_method(Tasks.resubmit)
    compensate = _build_waiting_method(Tasks.compensate)
    cancel = _build_waiting_method(Tasks.cancel)
    extend = _build_waiting_method(Tasks.extend)
    adjust = _build_waiting_method(Tasks.adjust)
    answer = _build_waiting_method(Tasks.answer)
    pause = _build_waiting_method(Tasks.pause)
    resume = _build_waiting_method(Tasks.resume)
    snooze = _build_waiting_method(Tasks.snooze)
    change_tags = _build_waiting_method(Tasks.change_tags)
    pin = _build_waiting_method(Tasks.pin)

    def __iter__(self) -> Iterator[TaskView]:
        return BackgroundReading(self._background, lambda: aiter(self._to)).each()


class SyncLedgerHandle(_Mirror):
    """A ledger's handle for code without an event loop; see LedgerHandle for each method."""

    @property
    def id(self) -> str:
        """The ledger's id."""
        return str(self._to.id)

    view = _build_waiting_method(LedgerHandle.view)
    wait = _build_waiting_method(LedgerHandle.wait)


class SyncAgentHandle(_Mirror):
    """An Agent's handle for code without an event loop; see AgentHandle for each method."""

    view = _build_waiting_method(AgentHandle.view)
    open = _build_waiting_method(AgentHandle.open)
    close = _build_waiting_method(AgentHandle.close)
    pause = _build_waiting_method(AgentHandle.pause)
    resume = _build_waiting_method(AgentHandle.resume)


class SyncWorkflowHandle(_Mirror):
    """A workflow's handle for code without an event loop; see WorkflowHandle for each method."""

    view = _build_waiting_method(WorkflowHandle.view)
    pause = _build_waiting_method(WorkflowHandle.pause)
    resume = _build_waiting_method(WorkflowHandle.resume)


class SyncMutex(_Mirror):
    """A mutex for code without an event loop; see DistributedMutex for each method. Plain work runs in a thread."""

    @property
    def name(self) -> str:
        """Name of the lease."""
        return str(self._to.name)

    run = _build_waiting_method(DistributedMutex.run)

    def run_once(self, work: Callable[[Leadership], T]) -> T | None:
        """Do the work to its end once, under a lease; see DistributedMutex.run_once."""
        return self._background.call(self._to.run_once, work)  # type: ignore[no-any-return]  # what the work returned

    def stop(self) -> None:
        """Let ``run`` end; to be called from another thread."""
        self._to.stop()


class SyncLease(_Mirror):
    """A lease's handle for code without an event loop; see Lease for each method."""

    @property
    def name(self) -> str:
        """The lease's name."""
        return str(self._to.name)

    inspect = _build_waiting_method(Lease.inspect)
    break_lease = _build_waiting_method(Lease.break_lease)

    def watch(self) -> Iterator[LeaseView]:
        """Yield the holder of the lease: now, and after each change; see Lease.watch."""
        return BackgroundReading[LeaseView](self._background, self._to.watch).each()


class SyncTokens(_Mirror):
    """The tokens of the HTTP API for code without an event loop; see Tokens for each method."""

    create = _build_waiting_method(Tokens.create)
    list = _build_waiting_method(Tokens.list)
    revoke = _build_waiting_method(Tokens.revoke)


class SyncSchedules(_Mirror):
    """The schedules of an App for code without an event loop; see Schedules for each method."""

    list = _build_waiting_method(Schedules.list)
    show = _build_waiting_method(Schedules.show)
    add = _build_waiting_method(Schedules.add)
    pause = _build_waiting_method(Schedules.pause)
    resume = _build_waiting_method(Schedules.resume)
    remove = _build_waiting_method(Schedules.remove)
    run_now = _build_waiting_method(Schedules.run_now)
    backfill = _build_waiting_method(Schedules.backfill)


class SyncConvoy(_Mirror):
    """A convoy's handle for code without an event loop; see Convoy for each method."""

    @property
    def key(self) -> str:
        """The convoy's key."""
        return str(self._to.key)

    view = _build_waiting_method(Convoy.view)
    set = _build_waiting_method(Convoy.set)
    release = _build_waiting_method(Convoy.release)
    skip = _build_waiting_method(Convoy.skip)
    park = _build_waiting_method(Convoy.park)
    move_to_head = _build_waiting_method(Convoy.move_to_head)


class SyncApp(_Mirror):
    """The front of one App for code without an event loop; ``App.sync`` makes it.

    Many threads may call at the same time, also while the App is open on an event loop. The first call starts the background
    thread and opens the App in it as a client, with separate connections. It is closed at the interpreter's exit, and when
    the last ``with app.sync:`` or ``with app.sync.running():`` is left; the next call opens it again. Before a fork it is
    closed, and parent and child open it again. If roles run, a call waits or the App is open on an event loop, the child's
    calls are refused. Close your own connections to the file before a fork.

    Raises, from every call: what the same call of App raises; InvalidInput - called on an event loop, the App was open when
    the process was forked, or the front was closed while the call waited.
    """

    def __init__(self, app: Client) -> None:
        super().__init__(BackgroundSession(app.session), app)

    def __enter__(self) -> "SyncApp":
        self._background.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        self._background.leave()

    def running(
        self,
        *,
        store: str | None = None,
        roles: Iterable[str] | None = None,
        agents: Iterable[str] | None = None,
        lost_processes_max: int | None = None,
        deployment: str | None = None,
    ) -> AbstractContextManager["SyncApp"]:
        """Run Scheduler, Agents and Supervisor in the background thread; arguments and errors are those of App.running.

        Leaving drains; an interrupt meanwhile ends the draining.
        """
        run = run_configured(self._background.session, store, roles, agents, lost_processes_max, deployment)
        return _Running(self, self._background, run)

    submit = _build_submitting_method(
        Client.submit,
        "Start a task; arguments and errors are those of App.submit. With ``connection``, in the calling thread.",
    )
    execute = _build_waiting_method(Client.execute)
    replay = _build_closed_method(Client.replay)
    submit_ledger = _build_waiting_method(
        Client.submit_ledger,
        """Submit a message with operations on many keys; arguments and errors are those of App.submit_ledger.

        The entries are read in the background thread.
        """,
    )

    @overload
    def task(self, task_id: str, of: Workflow[..., R]) -> SyncTask[R]: ...
    @overload
    def task(self, task_id: str) -> SyncTask[Any]: ...
    def task(self, task_id: str, of: Workflow[..., Any] | None = None) -> SyncTask[Any]:
        """A handle of a task that was submitted before; nothing is asked of the store yet."""
        return SyncTask(self._background, self._to.task(task_id, of))

    tasks = _build_handle_method(
        Client.tasks, SyncTasks, "All tasks that this names; arguments and errors are those of App.tasks."
    )
    ledger = _build_handle_method(
        Client.ledger, SyncLedgerHandle, "A handle of a ledger that was submitted; nothing is asked of the store yet."
    )
    agent = _build_handle_method(
        Client.agent, SyncAgentHandle, "A handle of an Agent of this App; nothing is asked of the store yet."
    )
    agents_view = _build_waiting_method(Client.agents_view)
    workflow_named = _build_handle_method(
        Client.workflow_named,
        SyncWorkflowHandle,
        "A handle of a workflow of this App; nothing is asked of the store yet.",
    )
    workflows_view = _build_waiting_method(Client.workflows_view)
    versions_view = _build_waiting_method(Client.versions_view)
    metrics = _build_waiting_method(Client.metrics)
    complete_callback = _build_waiting_method(Client.complete_callback)
    mutex = _build_handle_method(
        Client.mutex, SyncMutex, "A mutex on a lease in the store; arguments and errors are those of App.mutex."
    )
    lease = _build_handle_method(
        Client.lease, SyncLease, "A handle of a lease in the store; nothing is asked of the store yet."
    )
    leases = _build_waiting_method(Client.leases)
    alert_causes = _build_waiting_method(Client.alert_causes)
    leader = _build_waiting_method(Client.leader)

    @property
    def schedules(self) -> SyncSchedules:
        """The schedules of this App; see App.schedules."""
        return SyncSchedules(self._background, self._to.schedules)

    @property
    def tokens(self) -> SyncTokens:
        """The tokens of the HTTP API; see App.tokens."""
        return SyncTokens(self._background, self._to.tokens)

    convoy = _build_handle_method(
        Client.convoy, SyncConvoy, "A handle of the convoy of a key; nothing is asked of the store yet."
    )

    def convoys(self, *, state: str | None = None) -> Iterator[ConvoyView]:
        """Convoys in the order of their first submission; arguments and errors are those of App.convoys."""
        shown, session = check_state(state), self._background.session
        return BackgroundReading(self._background, lambda: list_convoy_views(session.store, shown)).each()

    def alerts(self, *, state: str = "open") -> Iterator[Alert]:
        """Alerts in the order of their opening; arguments and errors are those of App.alerts."""
        open_only, session = check_alert_state(state), self._background.session
        return BackgroundReading(self._background, lambda: list_alerts(session.store, open_only=open_only)).each()

    def questions(self, *, of: str | None = None) -> Iterator[OpenQuestion]:
        """Open questions to operators in the order in which they were asked; arguments and errors are those of App.questions."""
        asked, session = check_of(of), self._background.session
        return BackgroundReading(self._background, lambda: list_open_questions(session.store, asked)).each()

    def replies(self, queue: str, *, timeout: Duration | None = None) -> Iterator[Status]:
        """The messages of a reply queue; taking the next one acknowledges the one before.

        Args:
            queue: the ``reply_to`` of submissions.
            timeout: seconds or timedelta; it ends when none came for so long, with 0 when none is there. None waits as
                long as it takes.
        """
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        reading = BackgroundReading[Status](self._background, lambda: self._to.replies(queue), may_begin_again=True)
        self._background.call(reading.begin)  # what is wrong with the queue's name is said now
        return reading.each(limit)

    def __repr__(self) -> str:
        return f"<sync front of {self._to!r}>"


class _Running(AbstractContextManager[SyncApp]):
    """Roles in the background thread. Not a generator: those are left when they are collected, on whichever thread."""

    def __init__(self, front: SyncApp, background: BackgroundSession, roles: AbstractAsyncContextManager[None]) -> None:
        self._front = front
        self._background = background
        self._roles = roles

    def __enter__(self) -> SyncApp:
        self._background.run(self._roles)
        return self._front

    def __exit__(self, *exc: object) -> None:
        self._background.leave(self._roles)
