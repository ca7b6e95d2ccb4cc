"""Submits a task, or sends a signal, inside the caller's own transaction, so that both commit or neither does."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InvalidInput
from ..model.answers import Refusal, SignalPlaced, Submitted
from ..model.commands import SendSignal, Submit
from ..store.contract import Busy

if TYPE_CHECKING:
    import sqlite3

    from ..store.sqlite.callers import CallerConnection
    from ..store.state_store import StateStore

T = TypeVar("T")
PAUSE_SECONDS = 0.001  # between two looks at the write lock, growing
PAUSE_SECONDS_MAX = 0.01


class _TransactionQueue:
    """Queue of the transactions of one event loop on one file."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.began_at = time.monotonic()  # of the running turn


_queues: dict[tuple[asyncio.AbstractEventLoop, str], _TransactionQueue] = {}


def submit_joined(
    store: "StateStore", command: Submit, connection: Any, *, on_loop: bool
) -> Submitted | Refusal | Awaitable[Submitted | Refusal]:
    """Write a task with the caller's connection, in the transaction it has open; nothing is committed here.

    Runs in the caller's thread; to be awaited where the connection is an async one.

    Args:
        on_loop: the thread is that of an event loop, which must not be blocked: then a file's write lock is awaited,
            as long as the connection itself would wait (its ``busy_timeout``).
    Raises: InvalidInput - the connection or its transaction is not fit; TransactionConflict - another transaction came
    first; StoreError.
    """
    answer: Submitted | Refusal | Awaitable[Submitted | Refusal]
    answer = _join(store, "submit", (command,), connection, on_loop=on_loop)
    return answer


def send_joined(
    store: "StateStore", task_id: str, command: SendSignal, connection: Any, *, on_loop: bool
) -> SignalPlaced | Refusal | Awaitable[SignalPlaced | Refusal]:
    """Keep a signal with the caller's connection, in the transaction it has open; else as ``submit_joined``.

    Args:
        task_id: ``command`` has no number of the task, which may be new in the same transaction.
    """
    answer: SignalPlaced | Refusal | Awaitable[SignalPlaced | Refusal]
    answer = _join(store, "send", (task_id, command), connection, on_loop=on_loop)
    return answer


def _join(store: "StateStore", what: str, given: tuple[Any, ...], connection: Any, *, on_loop: bool) -> Any:
    """Let the store do ``what`` in the caller's transaction."""
    join = getattr(store, f"{what}_joined", None)
    if join is None:
        raise InvalidInput(
            f"{what}(connection=): the store {store.url} has no transactions of yours to join; use sqlite:///PATH or"
            " postgresql://HOST/DATABASE"
        )
    import sqlite3  # only who joins a transaction pays for loading it

    is_file = store.url.startswith("sqlite:")
    if is_file and not isinstance(connection, sqlite3.Connection):
        raise InvalidInput(
            f"{what}(connection=) takes a sqlite3.Connection for the store {store.url}, not {connection!r};"
            " see arriero.connect"
        )
    if is_file and on_loop:
        from ..store.sqlite.store import SqliteStore

        assert isinstance(store, SqliteStore)
        return ask_patiently(connection, store.path, lambda: join(*given, connection, at_once=True))
    return join(*given, connection)


async def ask_patiently(connection: "sqlite3.Connection", path: str, ask: Callable[[], T]) -> T:
    """Ask for something that needs a file's write lock; the event loop continues while another transaction has it.

    Args:
        path: of the file, for the error.
        ask: raises Busy while another transaction has the lock.
    Raises: TransactionConflict - it took longer than the connection itself would wait; what ``ask`` raises.
    """
    from ..store.sqlite.callers import read_busy_timeout
    from ..store.sqlite.external_transaction import conflict

    give_up_at, pause = None, PAUSE_SECONDS
    while True:
        try:
            return ask()
        except Busy as error:
            give_up_at = give_up_at or time.monotonic() + read_busy_timeout(connection)
            if time.monotonic() >= give_up_at:
                raise conflict(path, connection) from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def connect(store: str) -> "sqlite3.Connection":
    """A connection fit for joint transactions: your own tables and ``submit(connection=)`` commit together.

    Args:
        store: URL, ``sqlite:///PATH``.
    Returns: a ``sqlite3.Connection`` as the standard library opens it (a statement that writes begins a transaction,
        ``with`` commits or rolls back and does not close), in WAL mode with ``synchronous=FULL`` and without automatic
        checkpoints. On the thread of an event loop its statements wait for another's transaction for a second at most,
        and not at all for one of the same thread: see ``transaction``.
    Raises: InvalidInput - another kind of store; StoreError - the file cannot be opened.
    """
    from ..store import open_store
    from ..store.sqlite.connection import connect_for_callers
    from ..store.sqlite.store import SqliteStore

    opened = open_store(store)
    if not isinstance(opened, SqliteStore):
        raise InvalidInput(f"arriero.connect: {store!r} is not a file; use sqlite:///PATH")
    return connect_for_callers(opened.path)


@asynccontextmanager
async def transaction(store: str) -> AsyncIterator["sqlite3.Connection"]:
    """A transaction on a SQLite store's file, for code on an event loop: ``async with arriero.transaction(app.store)``.

    It waits for the file's write lock without stopping the loop, in turn with the other ones of this loop. It commits at
    the end of the block, rolls back when something is raised there, and closes the connection. Nobody else writes to the
    file meanwhile: keep it short, and await nothing in it but ``submit(connection=)``.

    Args:
        store: URL, ``sqlite:///PATH``.
    Returns: a connection as ``connect`` gives it, for your statements and for ``submit(connection=)``.
    Raises: InvalidInput - another kind of store; TransactionConflict - another transaction kept the lock for
        10 s; StoreError.
    """
    from ..store.sqlite.callers import CallerConnection
    from ..store.sqlite.connection import BUSY_SECONDS, translating

    connection = connect(store)
    assert isinstance(connection, CallerConnection)
    try:
        with _enter_queue(connection.path) as queue:
            await _wait_for_turn(queue, connection, BUSY_SECONDS)
            try:
                await _begin_patiently(connection, queue.began_at + BUSY_SECONDS)
                try:
                    yield connection
                except BaseException:
                    connection.rollback()
                    raise
                with translating(connection.path):
                    connection.commit()
            finally:
                queue.lock.release()
    finally:
        connection.close()


@contextmanager
def _enter_queue(path: str) -> Iterator[_TransactionQueue]:
    key = (asyncio.get_running_loop(), path)
    queue = _queues.setdefault(key, _TransactionQueue())
    queue.users += 1
    try:
        yield queue
    finally:
        queue.users -= 1
        if not queue.users:  # a lock knows its loop: kept, it would keep the loop indefinitely
            del _queues[key]


async def _wait_for_turn(queue: _TransactionQueue, connection: "CallerConnection", limit: float) -> None:
    """Wait in the queue of this loop. A queue that moves has no time limit.

    Args:
        limit: seconds that one turn may take before those behind it give up.
    """
    from ..store.sqlite.external_transaction import conflict

    came_at = time.monotonic()
    while True:
        left = max(came_at, queue.began_at) + limit - time.monotonic()
        try:
            async with asyncio.timeout(left):
                await queue.lock.acquire()
        except TimeoutError as error:
            if max(came_at, queue.began_at) + limit <= time.monotonic():
                raise conflict(connection.path, connection) from error
        else:
            queue.began_at = time.monotonic()
            return


async def _begin_patiently(connection: "CallerConnection", give_up_at: float) -> None:
    from ..store.sqlite.connection import translating
    from ..store.sqlite.external_transaction import conflict

    pause = PAUSE_SECONDS
    with translating(connection.path):
        while not connection.begin_at_once():
            if time.monotonic() >= give_up_at:
                raise conflict(connection.path, connection)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
