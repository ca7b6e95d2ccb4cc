"""A session with ZooKeeper, asked from an event loop. The leases are in ``zookeeper``.

kazoo has separate threads: one for the connection, two for callbacks. They reach the event loop through
``call_soon_threadsafe`` alone. kazoo reconnects by itself: within the session's time to the same session, later to a new one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import LeaseAccessDenied, LeaseRefused, LeaseUnavailable, describe_install

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import (
        AuthFailedError,
        BadVersionError,
        InvalidACLError,
        KazooException,
        NoAuthError,
        NoNodeError,
        RolledBackError,
        RuntimeInconsistency,
    )
    from kazoo.protocol.connection import ConnectionHandler
    from kazoo.protocol.serialization import Connect
    from kazoo.protocol.states import KazooState, KeeperState
    from kazoo.security import CREATOR_ALL_ACL
except ImportError as missing:
    raise ImportError(f"leases in ZooKeeper need kazoo: {describe_install('zookeeper')}") from missing

RECONNECT_SECONDS_MAX = 1.0  # between two tries of kazoo to reach a server
logger = logging.getLogger("arriero.zookeeper")
logger.setLevel(logging.ERROR)  # kazoo warns of each try to connect; who keeps a lease reports it now and then
logger.addFilter(lambda record: record.levelno >= logging.INFO)  # below it, kazoo writes passwords


class NegotiatingHandler(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, which also keeps how long a session the server gave. kazoo itself only logs it."""

    negotiated = 0.0  # seconds

    def _invoke(self, timeout: Any, request: Any, xid: Any = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.negotiated = answer[0].time_out / 1000
        return answer


class NegotiatingClient(KazooClient):  # type: ignore[misc]
    """kazoo's client on such a connection."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._connection = NegotiatingHandler(self, self._conn_retry.copy(), logger=self.logger)

    @property
    def negotiated_seconds(self) -> float:
        """Seconds that the session lasts without a sign of life; 0: unknown."""
        return self._connection.negotiated


class ZooKeeperSession:
    """A client of kazoo. To be made and closed on the event loop that asks it.

    Args:
        hosts: as kazoo takes them.
        seconds: that the session is to last without a sign of life.
        credentials: user and password; empty: none. With them, nodes are open to this user alone.
        options: more of kazoo's client.
        on_change: called on the loop when the connection is interrupted, back, or the session is lost.
    """

    def __init__(
        self,
        hosts: str,
        seconds: float,
        credentials: tuple[str, str],
        options: Mapping[str, Any],
        on_change: Callable[[], None],
    ) -> None:
        self.seconds = seconds
        self.suspensions = 0  # how often the connection was interrupted
        self.losses = 0  # how many sessions ended
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._state_changed = asyncio.Event()
        self._unanswered: set[asyncio.Future[Any]] = set()
        secured: dict[str, Any] = {}
        if credentials[0]:
            secured = {"auth_data": [("digest", ":".join(credentials))], "default_acl": CREATOR_ALL_ACL}
        self._client = NegotiatingClient(
            hosts=hosts,
            timeout=seconds,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": RECONNECT_SECONDS_MAX},
            logger=logger,
            **secured,
            **options,
        )
        self._client.add_listener(self._note_state)
        self._client.start_async()

    @property
    def is_connected(self) -> bool:
        """Returns True if kazoo is connected to a server."""
        return bool(self._client.connected)

    @property
    def session_id(self) -> int:
        """Id of the session. Raises LeaseUnavailable - not connected."""
        client_id = self._client.client_id
        if client_id is None:
            raise LeaseUnavailable(f"the connection to ZooKeeper at {self._hosts} is interrupted")
        return int(client_id[0])

    async def wait_until_connected(self, seconds: float) -> None:
        """Wait for the connection. Raises LeaseUnavailable, LeaseRefused."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.is_connected:
                    self._state_changed.clear()  # what has changed since the look above comes after this
                    await self._state_changed.wait()
        if self._client.client_state == KeeperState.AUTH_FAILED:
            raise LeaseAccessDenied(f"ZooKeeper at {self._hosts} refused the credentials")
        if not self.is_connected:
            raise LeaseUnavailable(f"ZooKeeper at {self._hosts} could not be reached within {seconds:.3g} s")

    def check_negotiated(self) -> None:
        """Check that the session lasts as long as asked for: a shorter one ends before its holder's trust.

        A longer one would make others wait longer than the mutex says. Raises LeaseRefused.
        """
        given = self._client.negotiated_seconds
        if abs(given - self.seconds) > 0.001:
            raise LeaseRefused(
                f"ZooKeeper at {self._hosts} gives a session of {given:g} s where {self.seconds:g} s were asked for; choose a"
                " duration in its range (2 to 20 times its tickTime, unless minSessionTimeout and maxSessionTimeout differ)"
            )

    async def ask(self, request: Callable[[Any], Any], seconds: float) -> Any:
        """Send a request, and wait for its answer.

        Args:
            request: called with kazoo's client; returns its asynchronous result.
            seconds: to wait at most.
        Raises: LeaseUnavailable, LeaseRefused; NoNodeError - for the caller to understand.
        """
        try:
            async with asyncio.timeout(seconds):
                # kazoo finds out that a server is silent by a ping, and pings only while nothing else is sent. So a request
                # that got no answer bars further ones, until kazoo has the answer or has given up the connection.
                while self._unanswered:
                    await asyncio.wait(self._unanswered)
                if not self.is_connected:
                    raise LeaseUnavailable(f"the connection to ZooKeeper at {self._hosts} is interrupted")
                answer: asyncio.Future[Any] = self._loop.create_future()
                self._unanswered.add(answer)
                answer.add_done_callback(self._unanswered.discard)
                request(self._client).rawlink(lambda result: self._call_soon(settle, answer, result))
                return await asyncio.shield(answer)
        except TimeoutError as error:
            raise LeaseUnavailable(f"ZooKeeper at {self._hosts} did not answer within {seconds:.3g} s") from error
        except NoNodeError:
            raise
        except KazooException as error:
            raise self._translate(error) from error

    async def commit(self, change: Callable[[Any], object], seconds: float) -> list[Any] | None:
        """Commit a transaction.

        Args:
            change: called with a transaction of kazoo; adds to it what is to be checked and changed.
        Returns: the result of each part; None: a node is not there, or not as it must be, and nothing was changed.
        Raises: LeaseUnavailable, LeaseRefused.
        """

        def send(client: Any) -> Any:
            transaction = client.transaction()
            change(transaction)
            return transaction.commit_async()

        results: list[Any] = await self.ask(send, seconds)
        failures = [result for result in results if isinstance(result, Exception)]
        for failure in failures:  # of one that fails, the others say that they were rolled back
            if not isinstance(failure, NoNodeError | BadVersionError | RolledBackError | RuntimeInconsistency):
                raise self._translate(failure)
        return None if failures else results

    def _translate(self, error: Exception) -> LeaseRefused | LeaseUnavailable:
        what = type(error).__name__
        if isinstance(error, NoAuthError | InvalidACLError | AuthFailedError):
            return LeaseAccessDenied(
                f"ZooKeeper at {self._hosts} refused it ({what}): the credentials have no right to the nodes"
            )
        return LeaseUnavailable(f"ZooKeeper at {self._hosts}: {what}")

    async def close(self) -> None:
        """End the session, and with it its nodes. It raises nothing."""
        self._client.remove_listener(self._note_state)
        try:
            await asyncio.to_thread(self._stop)
        finally:
            for answer in list(self._unanswered):
                answer.cancel()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            logger.info("the session with ZooKeeper was not closed, it ends by itself: %s", type(error).__name__)

    # --- on kazoo's threads
    def _note_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self.suspensions += 1
        elif state == KazooState.LOST:
            self.losses += 1
        self._call_soon(self._tell_of_change)

    def call_on_event(self, callback: Callable[[], None]) -> Callable[[Any], None]:
        """Make a watcher for kazoo, which calls back on the event loop."""
        return lambda _event: self._call_soon(callback)

    def _call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _tell_of_change(self) -> None:
        self._state_changed.set()
        self._on_change()


def settle(answer: "asyncio.Future[Any]", result: Any) -> None:
    """Hand kazoo's result over to a future."""
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)
        answer.exception()  # read: perhaps nobody waits any longer
