"""The openings of an App: what belongs to it on each event loop that it is open on."""

import asyncio
import copy
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from ..runtime.ports import Ports
from ..runtime.result_waiters import ResultWaiters
from ..runtime.submissions import Submissions
from ..store import MEMORY
from .replies import Acknowledger

if TYPE_CHECKING:  # only who runs an App pays for loading these
    from ..config import Configuration
    from ..runtime.change_waiters import ChangeWaiters
    from ..runtime.node import Node
    from ..store.state_store import StateStore
    from .task_views import TaskViews


class Opening:
    """An App as it is open on one event loop: its store there, and what asks it. Each loop has its own connections."""

    def __init__(self, get_ports: Callable[[], Ports]) -> None:
        self.process = os.getpid()
        self.users = 0
        self.loop: asyncio.AbstractEventLoop | None = None  # None: not open
        self.target: StateStore | None = None  # the store that is opened, or is open
        self.configuration: Configuration | None = None  # that named the store
        self.store: StateStore | None = None  # once it is open
        self.node: Node | None = None  # while the App runs here
        self.draining_node: Node | None = None  # while it ends: it takes nothing new, and programs still report to it
        self.submissions: Submissions | None = None  # made for the first one: who only looks or acts needs none
        self.views: TaskViews | None = None
        self.acknowledger: Acknowledger | None = None
        self.waiting = ResultWaiters(self.find_store, get_ports, self._is_driving)
        self._get_ports = get_ports
        self._changes: ChangeWaiters | None = None  # made for the first one who follows a task
        self.turn = asyncio.Lock()  # of those who open it

    @property
    def is_in_memory(self) -> bool:
        """Returns True if its store dies with it."""
        target = self.target  # read once: another thread may give the opening back
        return target is not None and target.url == MEMORY

    def find_store(self) -> "StateStore":
        """Find the open store. Raises InvalidInput."""
        if self.store is None:
            raise InvalidInput("the App is not open")
        return self.store

    @property
    def changes(self) -> "ChangeWaiters":
        """Those who follow tasks."""
        if self._changes is None:
            from ..runtime.change_waiters import ChangeWaiters

            self._changes = ChangeWaiters(self.find_store, self._get_ports)
        return self._changes

    def look(self) -> None:
        """Ask the store now for what callers wait for: another process may have changed something."""
        self.waiting.look()
        if self._changes is not None:
            self._changes.look()

    def _is_driving(self, number: int) -> bool:
        return self.node is not None and self.node.is_driving(number)

    def hurry(self) -> None:
        """Send nothing more."""
        if self.submissions is not None:
            self.submissions.hurry()

    async def close(self, forget: "Callable[[Opening], object]") -> None:
        """Close all parts, even if one of them raises. ``forget``: called before the store is closed."""
        assert self.store is not None
        async with AsyncExitStack() as stack:  # the last one first
            stack.push_async_callback(self.store.close)
            stack.callback(forget, self)
            if self.acknowledger is not None:
                stack.push_async_callback(self.acknowledger.close)
            stack.push_async_callback(self.waiting.close)
            if self._changes is not None:
                stack.push_async_callback(self._changes.close)
            if self.submissions is not None:
                stack.push_async_callback(self.submissions.close)

    def run(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function on the event loop of this opening. If that was given back, call it here; if the loop is closed, not at all."""
        loop = self.loop  # read once: another thread may give the opening back
        if loop is None or loop is asyncio._get_running_loop():
            function(*args)
            return
        with suppress(RuntimeError):  # the loop was closed a moment ago
            loop.call_soon_threadsafe(function, *args)


class _Run:
    """A claim to run the App. It ends with its event loop, and a child process that was forked meanwhile does not have it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._process = loop, os.getpid()

    @property
    def is_alive(self) -> bool:
        """Returns True if it can still run the App."""
        return not self._loop.is_closed() and self._process == os.getpid()


class Openings:
    """All openings of an App in this process. Threads call it at the same time.

    No lock is held: an opening is added and removed only on its own event loop, and each change is one step of a dict or list.

    Attributes:
        by_loop: those in use.
        first: for the event loop that opens the App while no other one has it open.
        spare: the first one, while it is not in use.
        runs: claims to run the App. The first one that is alive has the right.
    """

    def __init__(self, app: str, get_ports: Callable[[], Ports]) -> None:
        self._app = app
        self._get_ports = get_ports
        self.first = Opening(get_ports)
        self.spare = [self.first]
        self.by_loop: dict[asyncio.AbstractEventLoop | None, Opening] = {}
        self.runs: list[_Run] = []

    def __copy__(self) -> "Openings":
        """Copy the one on the running event loop."""
        copied = Openings(self._app, self._get_ports)
        vars(copied).update(first=copy.copy(self.find()), spare=[])
        return copied

    def find(self, loop: asyncio.AbstractEventLoop | None = None) -> Opening:
        """Find the opening on an event loop; an unused one, if the App is not open there.

        ``loop``: None: the running one; any, in a thread without one.
        """
        loop = loop or asyncio._get_running_loop()
        if loop is None:
            return self.find_any()
        if (opening := self.by_loop.get(loop)) is not None:
            return opening
        return self.first if self.first.loop in (None, loop) else Opening(self._get_ports)

    def find_any(self) -> Opening:
        """Find an opening to look at from another event loop or thread: the one that runs roles, if there is one."""
        openings, loop = self.list_all(), self.first.loop
        if not openings and loop is not None and loop.is_closed():  # nobody left it before
            return Opening(self._get_ports)
        return next((one for one in openings if one.node is not None), openings[0] if openings else self.first)

    def list_all(self) -> list[Opening]:
        """List those whose event loop was not closed."""
        return [opening for loop, opening in list(self.by_loop.items()) if loop and not loop.is_closed()]

    def list_here_and_elsewhere(self) -> list[Opening]:
        """List the opening on the running event loop, then all others."""
        here = self.find()
        return [here, *(opening for opening in self.list_all() if opening is not here)]

    @contextmanager
    def claim_run(self) -> Iterator[None]:
        """Refuse to run the App twice in this process, on whichever event loops. Raises InvalidInput.

        The claim is made before anything is awaited: of two that begin at the same time, the second is refused.
        """
        self.refuse_inherited()
        claim = _Run(asyncio.get_running_loop())
        self.runs.append(claim)
        try:
            if next(run for run in list(self.runs) if run.is_alive) is not claim:
                raise InvalidInput(f"App {self._app} is running already in this process")
            yield
        finally:
            self.runs.remove(claim)

    def refuse_inherited(self) -> None:
        """Refuse to work in a child process that was forked while the App was open. Raises InvalidInput.

        Openings that nobody left before their event loop was closed are dropped.
        """
        if any(opening.process != os.getpid() for opening in list(self.by_loop.values())):
            raise InvalidInput(
                f"App {self._app} was open when this process was forked, and its connections belong to the parent: fork"
                " while the App is not open, or start processes by spawn"
            )
        for loop in [loop for loop in list(self.by_loop) if loop and loop.is_closed()]:
            self.by_loop.pop(loop, None)  # another thread may have done it

    def refuse_other_store(self, opening: Opening, store: "StateStore") -> None:
        """Refuse an opening on another store than the App is open on. Raises InvalidInput."""
        for other in self.list_all():
            target = other.target  # read once: another thread may give the opening back
            if target is not None and store.url != target.url:
                raise InvalidInput(f"App {self._app} is open on {target.url}; close it before opening {store.url}")
            if other is not opening and other.is_in_memory:
                raise InvalidInput(
                    f"App {self._app} is open on an event loop already, and a store in memory serves only that one: name a"
                    " file, sqlite:///PATH"
                )
