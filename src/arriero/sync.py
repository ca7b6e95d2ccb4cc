"""``app.sync``: the front for code without an event loop, like scripts, Flask and Django.

Every call runs on the event loop of one background thread per App, in which the App is open, and is waited for. No rule
lives here: calls are forwarded to App, Task, Tasks and Convoy, and so are their errors.
"""

import asyncio
import concurrent.futures.thread  # for its order: what it does at the interpreter's exit must follow what we do there
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, suppress
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from .app import App, accepted
from .bulk import Tasks
from .calls import StepCall, WorkflowCall
from .commands import Refusal, Submitted
from .convoy import Convoy, ConvoyView, checked_state, convoy_views
from .definitions import Workflow
from .errors import InvalidInput
from .ledger import Entry, Ledger
from .policies import Duration
from .replies import Replies, Status
from .runtime.ending import CANCELLED_SECONDS_MAX
from .task import Task, seconds_or_refuse
from .task_view import TaskView

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

FORK_SECONDS = 1.0  # that a fork waits for calls under way
CLOSE_SECONDS = 5.0  # that a fork, or the interpreter's exit, waits for an App to close
_END: Any = object()

_lock = threading.Lock()  # held to open, to close and to begin a call; and during a fork
_forking: int | None = None  # the thread that holds the lock for its fork
_fronts: set["SyncApp"] = set()  # those with a background thread


class _Background:
    """A daemon thread with an event loop; what is entered in it stays open until it is left or the thread is closed."""

    def __init__(self, name: str) -> None:
        self.process = os.getpid()
        self.calls: set[Future[Any]] = set()  # under way
        self.entered: list[AbstractAsyncContextManager[Any]] = []
        self._leaving: set[asyncio.Task[Any] | None] = set()
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._closed.wait())
            self._loop.run_until_complete(self._end())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _end(self) -> None:
        """As ``asyncio.Runner`` does it, but without waiting for ever for what swallows its cancellation."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=CANCELLED_SECONDS_MAX)
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was told of when it was left behind
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        return call

    async def enter(self, manager: AbstractAsyncContextManager[Any]) -> None:
        await manager.__aenter__()
        self.entered.append(manager)

    async def leave(self, *managers: AbstractAsyncContextManager[Any]) -> None:
        """Leave these, as far as they were entered; without any, all."""
        leaving = asyncio.current_task()
        self._leaving.add(leaving)
        try:
            async with AsyncExitStack() as stack:
                for manager in managers or tuple(self.entered):
                    if manager in self.entered:
                        self.entered.remove(manager)
                        stack.push_async_exit(manager)
        finally:
            self._leaving.discard(leaving)

    async def _leave_all(self) -> None:
        """Also what is being left already: a cancelled drain still has to drop what it held."""
        if waited := [task for task in self._leaving if task is not None]:
            await asyncio.wait(waited)
        await self.leave()

    def close(self, limit: float | None) -> None:
        """Cancel what is under way, leave everything, end. Raises what leaving raised; TimeoutError."""
        for call in tuple(self.calls):
            call.cancel()
        try:
            self.begin(self._leave_all()).result(limit)
        finally:
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join(limit)


class _Handle:
    """What is forwarded to, and the front that does it."""

    def __init__(self, front: "SyncApp", forwarded_to: Any) -> None:
        self._front = front
        self._to = forwarded_to


def _forwarded(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same method for callers without a loop: same parameters, same errors, and it waits."""

    @wraps(method)
    def forward(self: _Handle, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._front._call(method, self._to, *args, **kwargs)

    return forward


class SyncTask(_Handle, Generic[R_co]):
    """A task's handle for code without an event loop, typed by its workflow; see Task for each method."""

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self._to.id)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and answer with the workflow's output; arguments and errors are those of Task.result."""
        return self._front._call(self._to.result, timeout)  # type: ignore[no-any-return]  # of the task we were made for

    def view(self) -> TaskView[R_co]:
        """The task as it stands; see Task.view."""
        return self._front._call(self._to.view)

    cancel = _forwarded(Task.cancel)
    resubmit = _forwarded(Task.resubmit)
    compensate = _forwarded(Task.compensate)
    extend = _forwarded(Task.extend)
    answer = _forwarded(Task.answer)
    pause = _forwarded(Task.pause)
    resume = _forwarded(Task.resume)

    def __repr__(self) -> str:
        return f"<task {self.id}>"


class SyncTasks(_Handle):
    """All tasks that a filter names, for code without an event loop; see Tasks for each method.

    They may be iterated; each time the store is asked anew.
    """

    count = _forwarded(Tasks.count)
    newest = _forwarded(Tasks.newest)
    resubmit = _forwarded(Tasks.resubmit)
    compensate = _forwarded(Tasks.compensate)
    cancel = _forwarded(Tasks.cancel)
    extend = _forwarded(Tasks.extend)
    answer = _forwarded(Tasks.answer)
    pause = _forwarded(Tasks.pause)
    resume = _forwarded(Tasks.resume)

    def __iter__(self) -> Iterator[TaskView]:
        return self._front._each(_Place(self._front._app, lambda: aiter(self._to)), None)


class SyncConvoy(_Handle):
    """A convoy's handle for code without an event loop; see Convoy for each method."""

    @property
    def key(self) -> str:
        """The convoy's key."""
        return str(self._to.key)

    view = _forwarded(Convoy.view)
    set = _forwarded(Convoy.set)
    release = _forwarded(Convoy.release)
    skip = _forwarded(Convoy.skip)
    park = _forwarded(Convoy.park)
    move_to_head = _forwarded(Convoy.move_to_head)

    def __repr__(self) -> str:
        return f"<convoy {self.key}>"


class SyncApp:
    """The front of one App for code without an event loop; ``App.sync`` makes it.

    Many threads may call at once. The first call starts the background thread and opens the App in it as a client. It is
    closed at the interpreter's exit, and when the last ``with app.sync:`` or ``with app.sync.running():`` is left; the
    next call opens it again. A fork finds it closed, and parent and child open it anew, unless roles run or a call
    waits: then the child's calls are refused. Connections of your own to the file must be closed before a fork.

    Raises, from every call: what the same call of App raises; InvalidInput - called on an event loop, the App is open on
    another one, its opening was inherited through a fork, or the front was closed while the call waited.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._background: _Background | None = None
        self._users = 0  # ``with`` blocks

    # --- opening and closing
    def __enter__(self) -> "SyncApp":
        self._refuse_on_a_loop()
        with _lock:
            self._opened(as_client=True)  # also while roles run: they may be left first
            self._users += 1
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    def running(
        self,
        *,
        store: str | None = None,
        roles: Iterable[str] | None = None,
        agents: Iterable[str] | None = None,
        lost_processes_max: int | None = None,
    ) -> AbstractContextManager["SyncApp"]:
        """Run Scheduler, Agents and Supervisor in the background thread; arguments and errors are those of App.running.

        Leaving drains; an interrupt meanwhile ends the draining.
        """
        return _Running(
            self, self._app.running(store=store, roles=roles, agents=agents, lost_processes_max=lost_processes_max)
        )

    def _run(self, roles: AbstractAsyncContextManager[App]) -> None:
        self._refuse_on_a_loop()
        with _lock:
            background = self._alive()
            self._users += 1
            call = background.begin(background.enter(roles))
        try:
            self._result_of(call)
        except BaseException:
            self._leave(roles)
            raise

    def _leave(self, *roles: AbstractAsyncContextManager[App]) -> None:
        try:
            with _lock:
                background = self._own()
                call = background.begin(background.leave(*roles)) if roles and background is not None else None
            if call is not None:
                self._result_of(call)
        finally:
            with _lock:
                self._users -= 1
                if not self._users:
                    self._close()

    def _own(self) -> _Background | None:
        """The background thread, if there is one; the one of a parent is not in its child. Under the lock."""
        return self._background if self._background is not None and self._background.process == os.getpid() else None

    def _opened(self, *, as_client: bool = False) -> _Background:
        """The background thread, with the App open in it. Under the lock."""
        background = self._alive()
        if self._app not in background.entered if as_client else not background.entered:
            try:
                self._result_of(background.begin(background.enter(self._app)))
            except BaseException:
                if not self._users:
                    self._close()
                raise
        return background

    def _alive(self) -> _Background:
        """The background thread; a new one, if there is none. Under the lock."""
        if self._background is None:
            if self._app._users:
                raise InvalidInput(
                    f"App {self._app.name} is open on an event loop already, and it serves one: await it there, or make "
                    "a second App for app.sync"
                )
            self._background = _Background(f"arriero-sync-{self._app.name}")
            _fronts.add(self)
        elif self._own() is None:
            raise InvalidInput(
                f"App {self._app.name} was open when this process was forked, and SQLite forbids to go on with that: fork "
                "before app.sync.running() and while no call waits, or start processes by spawn"
            )
        return self._background

    def _close(self, limit: float | None = None) -> None:
        """End the background thread. Under the lock."""
        background = self._own()
        if background is not None:
            self._background = None
            _fronts.discard(self)
            background.close(limit)

    def _let_go(self, limit: float, *, drain: bool) -> None:
        """Close, if nobody misses it: no call is under way after the limit, and no roles run or they are to be drained."""
        background, store = self._own(), self._app._store
        if background is None or (store is not None and store.url == "memory://"):
            return
        runs = any(manager is not self._app for manager in background.entered)
        if drain if runs else not concurrent.futures.wait(background.calls, limit).not_done:
            self._close(CLOSE_SECONDS)

    # --- calling
    def _refuse_on_a_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InvalidInput(
            f"app.sync of App {self._app.name} was called on an event loop, which it would block: await the App's own "
            "methods there, like `await app.submit(...)`"
        )

    def _call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in the background and wait for it; what it raises is raised here."""
        self._refuse_on_a_loop()
        with _lock:
            call = self._opened().begin(function(*args, **kwargs))
        return self._result_of(call)

    def _result_of(self, call: Future[T]) -> T:
        try:
            return call.result()
        except CancelledError:
            raise InvalidInput(
                f"app.sync of App {self._app.name} was closed while a call waited: leave `with app.sync` after the last one"
            ) from None
        except BaseException:
            call.cancel()  # the waiting was interrupted; a call that has ended is not changed by it
            raise

    def _each(self, place: "_Place[T]", limit: float | None) -> Iterator[T]:
        while (item := self._call(place.following, limit)) is not _END:
            yield item

    def submit_ledger(
        self,
        ledger_id: str,
        entries: Iterable[Entry] | AsyncIterable[Entry],
        *,
        bad: Literal["refuse", "set_aside"] = "refuse",
    ) -> Ledger:
        """Submit a message with operations on many keys; arguments and errors are those of App.submit_ledger.

        The entries are read in the background thread.
        """
        return self._call(self._app.submit_ledger, ledger_id, entries, bad=bad)

    # --- submitting and asking
    def submit(
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
    ) -> SyncTask[R]:
        """Start a task; arguments and errors are those of App.submit. With ``connection``, in the calling thread."""
        if connection is not None:
            self._refuse_on_a_loop()
            with _lock:
                self._opened()
            command, joined = self._app._submit_joined(
                call,
                task_id=task_id,
                convoy=convoy,
                sequence=sequence,
                end_of_sequence=end_of_sequence,
                priority=priority,
                delay=delay,
                reply_to=reply_to,
                connection=connection,
                on_loop=False,
            )
            if isinstance(joined, Coroutine):
                joined.close()
                raise InvalidInput("submit(connection=): this is an async connection; await App.submit with it")
            assert isinstance(joined, Submitted | Refusal)
            return self.task(accepted(joined).task_id or command.task_id)
        task = self._call(
            self._app.submit,
            call,
            task_id=task_id,
            convoy=convoy,
            sequence=sequence,
            end_of_sequence=end_of_sequence,
            priority=priority,
            delay=delay,
            reply_to=reply_to,
        )
        return SyncTask(self, task)

    @overload
    def task(self, task_id: str, of: Workflow[..., R]) -> SyncTask[R]: ...
    @overload
    def task(self, task_id: str) -> SyncTask[Any]: ...
    def task(self, task_id: str, of: Workflow[..., Any] | None = None) -> SyncTask[Any]:
        """A handle of a task that was submitted before; nothing is asked of the store yet."""
        return SyncTask(self, self._app.task(task_id) if of is None else self._app.task(task_id, of))

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
    ) -> SyncTasks:
        """All tasks that this names; arguments and errors are those of App.tasks."""
        found = self._app.tasks(
            state=state,
            workflow=workflow,
            agent=agent,
            step=step,
            older_than=older_than,
            since=since,
            code=code,
            text=text,
            paused=paused,
        )
        return SyncTasks(self, found)

    def convoy(self, key: str) -> SyncConvoy:
        """A handle of the convoy of a key; nothing is asked of the store yet."""
        return SyncConvoy(self, self._app.convoy(key))

    def convoys(self, *, state: str | None = None) -> Iterator[ConvoyView]:
        """Convoys in the order of their first submission; arguments and errors are those of App.convoys."""
        shown = checked_state(state)
        return self._each(_Place(self._app, lambda: convoy_views(self._app._store_open(), shown)), None)

    def replies(self, queue: str, *, timeout: Duration | None = None) -> Iterator[Status]:
        """The messages of a reply queue; taking the next one acknowledges the one before.

        Args:
            queue: the ``reply_to`` of submissions.
            timeout: seconds or timedelta; it ends when none came for so long, with 0 when none is there. None waits as
                long as it takes.
        """
        limit = None if timeout is None else seconds_or_refuse(timeout, "timeout")
        place = _Place(self._app, lambda: self._app.replies(queue), may_begin_again=True)
        self._call(place.begin)  # what is wrong with the queue's name is said now
        return self._each(place, limit)

    def __repr__(self) -> str:
        return f"<sync front of {self._app!r}>"


class _Running(AbstractContextManager[SyncApp]):
    """Roles in the background thread. Not a generator: those are left when they are collected, on whichever thread."""

    def __init__(self, front: SyncApp, roles: AbstractAsyncContextManager[App]) -> None:
        self._front = front
        self._roles = roles

    def __enter__(self) -> SyncApp:
        self._front._run(self._roles)
        return self._front

    def __exit__(self, *exc: object) -> None:
        self._front._leave(self._roles)


class _Place(Generic[T]):
    """How far an async iterator of the App was read. An iterator lasts as long as the App is open.

    Args:
        make: the iterator, on the loop.
        may_begin_again: if the App was closed and opened meanwhile, as by a fork; else that is an error.
    """

    def __init__(self, app: App, make: Callable[[], AsyncIterator[T]], *, may_begin_again: bool = False) -> None:
        self._app = app
        self._make = make
        self._may_begin_again = may_begin_again
        self._items: AsyncIterator[T] | None = None
        self._store: object = None
        self._last: T = _END
        self._repeated: T = _END  # what a new iterator may give again

    async def begin(self) -> AsyncIterator[T]:
        """The iterator, made when there is none. Raises what making it raises; InvalidInput - the App was closed."""
        store = self._app._store_open()
        if self._items is None or (self._store is not store and self._may_begin_again):
            self._items, self._store, self._repeated = self._make(), store, self._last
        elif self._store is not store:
            raise InvalidInput(
                f"app.sync of App {self._app.name} was closed, by a fork or by leaving it, while its tasks were looked "
                "through: make a list of them first"
            )
        return self._items

    async def following(self, limit: float | None) -> T:
        """The next item; ``_END`` after the last, and when none came in time."""
        items = await self.begin()
        item = await _next(items, limit)
        if item is not _END and item == self._repeated:
            item = await _next(items, limit)
        self._last, self._repeated = item, _END
        return item


async def _next(items: AsyncIterator[T], limit: float | None) -> T:
    try:
        async with asyncio.timeout(limit) as patience:
            return await anext(items, _END)
    except TimeoutError:
        if not patience.expired():
            raise
    ready: Any = await items.next_ready() if isinstance(items, Replies) else None  # however short the limit is
    return _END if ready is None else ready  # type: ignore[no-any-return]  # told from every item by who asked


# --- forks and the interpreter's exit
def _before_fork() -> None:
    """A child that inherits an open SQLite file takes no lock on it when it opens it anew, and commits are lost."""
    global _forking
    if _lock.acquire(timeout=FORK_SECONDS):
        _forking = threading.get_ident()
        for front in tuple(_fronts):
            with suppress(Exception):  # it is closed as far as it could be; the fork goes on
                front._let_go(FORK_SECONDS, drain=False)


def _after_fork_in_parent() -> None:
    global _forking
    if _forking == threading.get_ident():
        _forking = None
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _forking
    _lock, _forking = threading.Lock(), None


def _at_exit() -> None:
    """Drain and close when the main thread has ended; what a call still uses stays open, and nothing is lost by it."""
    if _lock.acquire(timeout=CLOSE_SECONDS):
        try:
            for front in tuple(_fronts):
                with suppress(Exception):
                    front._let_go(0, drain=True)
        finally:
            _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
# Not ``atexit``, which comes too late: closing needs a pool of threads, and no pool takes work once this has been called.
threading._register_atexit(_at_exit)  # type: ignore[attr-defined]  # the standard library's own, for such pools
