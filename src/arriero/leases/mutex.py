"""DistributedMutex: work that one process at a time does, under a term.

Source: Leader Election pattern. What a lease promises and what it does not: docs/how-to/leaders.md.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, overload

from ..core.lease import LeadershipEnd, build_settings
from ..errors import DefinitionError, InvalidInput, LeadershipLost
from ..model.policies import Duration, seconds
from ..runtime.ports import Keeper, Ports, SystemPorts, TaskKeeper
from ..runtime.shutdown import finish
from .contract import Lease
from .keeper import LeaseKeeper, cancel_all

logger = logging.getLogger("arriero")
END_TEXTS = {
    LeadershipEnd.RELEASED: "it was given back",
    LeadershipEnd.REFUSED: "the provider refused the renewal: the lease lapsed, was broken, or is another's",
    LeadershipEnd.UNRENEWED: "no renewal was answered in time",
    LeadershipEnd.HUNG: "the work gave no proof of progress within progress_within",
    LeadershipEnd.DISCONNECTED: "the provider says that the lease has ended: its session ended, or it was broken",
}


class Leadership:
    """A term of a lease. ``work(leadership)`` gets it from ``DistributedMutex``; its methods may be called from any thread.

    Attributes:
        name: of the lease.
        term: the fencing token for guarded writes; it grows with each new leader.
        holder: this contender's name, as ``arriero lease show`` has it.
        lease: which lease it is.
        duration: of the lease in seconds; None: it has no end.
    """

    def __init__(self, keeper: LeaseKeeper) -> None:
        assert keeper.grant is not None
        self._keeper = keeper
        self.lease: Lease = keeper.lease
        self.name = keeper.grant.name
        self.term = keeper.grant.term
        self.holder = keeper.grant.holder
        self.duration = keeper.settings.duration

    def is_held(self) -> bool:
        """Returns True while this process may act as the leader.

        It looks at the trust window on this process's own clock: from the start of the last successful renewal for the
        duration less the margin. Nothing is asked of the provider.
        """
        return self._keeper.is_held()

    @property
    def seconds_left(self) -> float:
        """Seconds for which the lease may be trusted if no renewal succeeds any longer; 0: it is lost."""
        return self._keeper.get_seconds_left()

    @property
    def trusted_until(self) -> float:
        """End of the trust window, on the machine's clock since boot; 0: the term has ended.

        An interrupted connection does not shorten it: nobody else is granted the lease before it is over.
        """
        belief = self._keeper.belief
        return belief.trusted_until if belief is not None and self._keeper.end is None else 0.0

    @property
    def why_lost(self) -> str:
        """Reason for the end of the term, in words; empty while it continues."""
        return "" if self._keeper.end is None else END_TEXTS[self._keeper.end]

    def beat(self) -> None:
        """Say that the work makes progress. With ``progress_within``, renewal stops without it."""
        self._keeper.beat()

    def raise_if_lost(self) -> None:
        """Stop a plain function, which cannot be cancelled, if another may lead. Raises LeadershipLost."""
        if not self.is_held():
            why = self.why_lost or "its trust window is over, or the connection to the provider is interrupted"
            raise LeadershipLost(f"lease {self.name!r}, term {self.term}: {why}; stop to act as the leader")

    def __repr__(self) -> str:
        return f"<Leadership of {self.name}: term {self.term}, {'held' if self.is_held() else 'lost'}>"


T = TypeVar("T")
Work = Callable[[Leadership], Awaitable[T]] | Callable[[Leadership], T]
OnElected = Callable[[Leadership], Any]
OnLost = Callable[[Leadership, str], Any]
STOP_WARNING_SECONDS = 10.0  # after a loss, until an operator is informed that the work has not stopped
THREADS = 64  # of plain functions at a time, over all mutexes of an App


class DistributedMutex:
    """A lease that at most one contender holds, in all processes together; and the work that only its holder does.

    Args:
        lease: which one; ``app.mutex`` takes the App's store, ``open_lease`` a URL.
        duration: of the lease, seconds or timedelta; None: it has no end, where the provider has such leases. A holder
            that died is replaced after this time; a renewal leaves after each 2/7 of it.
        progress_within: the work must call ``leadership.beat()`` at least that often; else renewal stops and another
            contender takes over. None: a leader that hangs, but whose process lives, stays the leader.
        on_elected, on_lost: called on the event loop with the Leadership, plain or async; ``on_lost`` also with the
            reason. What they raise is logged. ``on_lost`` is not called when the lease was given back.
    Raises: DefinitionError, InvalidInput - settings that cannot work.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        duration: Duration | None = 15.0,
        progress_within: Duration | None = None,
        on_elected: OnElected | None = None,
        on_lost: OnLost | None = None,
        ports: Ports | None = None,
    ) -> None:
        if not isinstance(lease, Lease):
            raise DefinitionError(f"a mutex needs a Lease, not {lease!r}; use app.mutex(NAME) or open_lease(URL, NAME)")
        length = None if duration is None else seconds(duration, "duration of a mutex")
        lease.check_duration(length)
        progress = None if progress_within is None else seconds(progress_within, "progress_within of a mutex")
        self.lease = lease
        self.settings = build_settings(length, progress, lease.name)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._ports: Ports = SystemPorts() if ports is None else ports
        self._close_ports = self._ports.close if ports is None and isinstance(self._ports, SystemPorts) else _do_nothing
        self.has_looked = asyncio.Event()  # set once a look did not bring the lease
        self._stopping: asyncio.Event | None = None  # of the current run
        self._loop: asyncio.AbstractEventLoop | None = None  # of the current run

    @property
    def name(self) -> str:
        """Name of the lease."""
        return self.lease.name

    async def run(self, work: Work[Any]) -> None:
        """Do the work again and again, each time under a lease, until ``stop`` is called or this is cancelled.

        It waits for the lease, calls ``work(leadership)``, cancels it when the lease is lost, gives the lease back when it
        ends, and contends again. A plain function runs in a thread and cannot be cancelled: it must look at
        ``leadership.is_held()``; this waits until it has ended.

        On PostgreSQL a restart of the server does not end it: if the work raises because its connection was lost or refused,
        that is logged, and the work begins again.

        Raises: what the work raises, after the lease was given back; LeaseRefused; InvalidInput - it runs already.
        """
        await self._run(work, is_once=False)

    @overload
    async def run_once(self, work: Callable[[Leadership], Awaitable[T]]) -> T | None: ...
    @overload
    async def run_once(self, work: Callable[[Leadership], T]) -> T | None: ...
    async def run_once(self, work: Work[Any]) -> Any:
        """Do the work to its end once, under a lease. Work that was cancelled because the lease was lost begins again.

        Returns: what the work returns; None: ``stop`` was called before. Raises as ``run``.
        """
        return await self._run(work, is_once=True)

    def stop(self) -> None:
        """Let ``run`` end: the work is cancelled, and the lease is given back. It may be called from any thread."""
        stopping, loop = self._stopping, self._loop
        if stopping is not None and loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and with it the run
                loop.call_soon_threadsafe(stopping.set)

    async def _run(self, work: Work[Any], *, is_once: bool) -> Any:
        if self._stopping is not None:
            raise InvalidInput(f"mutex {self.name!r} runs already; make another one for other work")
        self._stopping, self._loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            while not self._stopping.is_set():
                term = _Term(self, work, self._ports, self._stopping)
                is_done, result = await term.run()
                if is_done and is_once:
                    return result
                if is_done or term.met_outage:  # let others have a turn: their next look comes within this time
                    await self._ports.clock.idle(self._stopping, 2 * self.settings.poll_every)
            return None
        finally:
            self._stopping = self._loop = None
            self._close_ports()

    async def notify_elected(self, leadership: Leadership) -> None:
        """Report an election."""
        logger.info("lease %s: this process leads under term %d", leadership.name, leadership.term)
        if self._on_elected is not None:
            await _call(self._on_elected, leadership)

    def notify_outage(self, leadership: Leadership, error: BaseException) -> None:
        """Log that the work failed because the server was away."""
        logger.warning(
            "lease %s, term %d: the work lost its connection to the server, and begins again under the next term: %s",
            leadership.name,
            leadership.term,
            error,
        )

    async def notify_lost(self, leadership: Leadership, end: LeadershipEnd) -> None:
        """Report a loss."""
        logger.warning("lease %s, term %d is lost: %s", leadership.name, leadership.term, END_TEXTS[end])
        if self._on_lost is not None:
            await _call(self._on_lost, leadership, END_TEXTS[end])


def _is_async(work: Any) -> bool:
    """Returns True if a call gives an awaitable immediately; then it needs no thread."""
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(type(work).__call__)


def _do_nothing() -> None:
    """The ports are another's to close."""


async def _call(function: Callable[..., Any], *arguments: object) -> None:
    try:
        answer = function(*arguments)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        logger.exception("%s raised", getattr(function, "__qualname__", function))


class _Term:
    """One wait for the lease, and the work under it."""

    def __init__(self, mutex: DistributedMutex, work: Work[Any], ports: Ports, stopping: asyncio.Event) -> None:
        self._mutex = mutex
        self._work = work
        self._ports = ports
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()
        self._elected = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None
        self.met_outage = False  # the work failed because the server of its lease was away
        self._keeper = LeaseKeeper(
            mutex.lease.bind(),
            ports.new_instance(),
            mutex.settings,
            ports.clock,
            lambda: self._set(self._elected),
            self._note_end,
            lambda: self._set(mutex.has_looked),
        )

    async def run(self) -> tuple[bool, Any]:
        """Returns whether the work came to its end, and what it returned. Raises what it or the provider raised."""
        keeping = _start_keeping(self._keeper, self._ports)
        try:
            await self._wait_for_any(self._elected, self._ended, self._stopping)
            if self._error is not None:
                raise self._error
            if self._stopping.is_set() or not self._elected.is_set():
                return False, None
            return await self._lead()
        finally:
            await finish(keeping.stop())

    async def _lead(self) -> tuple[bool, Any]:
        leadership = Leadership(self._keeper)
        await self._mutex.notify_elected(leadership)
        working = self._loop.create_task(self._do_work(leadership))
        try:
            await self._wait_for_any(self._ended, self._stopping, also=working)
        finally:  # also if this is cancelled
            is_done = working.done()
            if not is_done:
                await finish(self._stop_work(working, leadership))
        if self._keeper.end not in (None, LeadershipEnd.RELEASED):
            await self._mutex.notify_lost(leadership, self._keeper.end)
        if self._error is not None:
            raise self._error
        if working.cancelled() or isinstance(error := working.exception(), LeadershipLost):
            return False, None
        if error is not None and self._mutex.lease.is_outage(error):
            self.met_outage = True
            self._mutex.notify_outage(leadership, error)
            return False, None
        return True, working.result()  # also of work that came to its end after all

    async def _do_work(self, leadership: Leadership) -> Any:
        if _is_async(self._work):
            return await self._work(leadership)
        work = self._work
        running = self._loop.create_task(
            self._ports.run_in_thread("mutex", THREADS, lambda: work(leadership), lambda: None)
        )
        try:
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            result = await running  # a thread cannot be cancelled: this is asked to stop, and waits for it
        return await result if inspect.isawaitable(result) else result

    async def _stop_work(self, working: "asyncio.Task[Any]", leadership: Leadership) -> None:
        """Cancel the work and wait until it has ended: while it runs, this process must not contend again."""
        working.cancel()
        done, _ = await asyncio.wait((working,), timeout=STOP_WARNING_SECONDS)
        if not done:
            logger.error(
                "lease %s, term %d: the work has not stopped %.0f s after it was asked to; another may lead",
                leadership.name,
                leadership.term,
                STOP_WARNING_SECONDS,
            )
            await asyncio.wait((working,))

    async def _wait_for_any(self, *events: asyncio.Event, also: "asyncio.Task[Any] | None" = None) -> None:
        waiting: list[asyncio.Task[Any]] = [self._loop.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait((*waiting, also) if also else waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(*waiting)

    # --- on the keeper's loop
    def _note_end(self, error: BaseException | None) -> None:
        self._error = error
        self._set(self._ended)

    def _set(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
            self._loop.call_soon_threadsafe(event.set)


def _start_keeping(keeper: LeaseKeeper, ports: Ports) -> Keeper:
    if ports.runs_inline:
        return TaskKeeper(asyncio.get_running_loop().create_task(keeper.run()))
    return ports.keep(keeper.run)
