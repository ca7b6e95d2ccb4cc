"""Wake-ups between processes: hints only, merged, on a separate connection. Polling is the truth behind them."""

import logging
import threading
import time
from collections.abc import Callable

import psycopg

from ...system.loops import Loop, LoopGuard
from .session import hang_up, is_direct
from .target import Target

logger = logging.getLogger("arriero")

LOOK_SECONDS = 5.0  # between looks whether it should end
AGAIN_SECONDS = 5.0  # before it connects again
# The one who may connect may say, as often as he likes. One look at the store answers all that was notified before it, so the
# next one comes this much later at the earliest: as soon as another process says again for all that it did.
REST_SECONDS = 0.02
FLOOD = 400  # notified within one rest: 20,000 a second, which would cost a core to read


class Listener:
    """Calls ``wake`` when another process has reported something: soon, and once for all that was notified in between.

    Args:
        wake: called in the listener's thread.
        own: the name under which this process notifies others.
    """

    def __init__(self, target: Target, wake: Callable[[], None], *, own: str) -> None:
        self._own = own
        self._target = target
        self._wake = wake
        self._ending = threading.Event()
        self.listening = threading.Event()
        self._cutting = threading.Lock()
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._thread = threading.Thread(target=self._run, name="arriero-listener", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Listen no more; its thread ends soon."""
        self._ending.set()
        with self._cutting:
            if self._connection is not None:
                hang_up(self._connection)

    def join(self) -> None:
        """Wait for the end of its thread."""
        self._thread.join()

    def _run(self) -> None:
        guard = LoopGuard(Loop.LISTENER, time.monotonic)
        while not self._ending.is_set():
            with guard:
                try:
                    self._listen()
                except (psycopg.Error, UnicodeError) as error:  # UnicodeError: a host's name that is none
                    if self._ending.is_set():
                        return
                    logger.info("wake-ups cannot be listened for, polling continues: %s", error)
            self.listening.clear()
            self._ending.wait(AGAIN_SECONDS)

    def _listen(self) -> None:
        with psycopg.connect(self._target.listen_conninfo, autocommit=True, prepare_threshold=None) as connection:
            with self._cutting:
                self._connection = connection
            try:
                if not is_direct(
                    connection
                ):  # it would stay with the pooler's connection, for the one who gets that next
                    logger.info(
                        "wake-ups cannot come through a pooler, polling continues: name the server in listen_url"
                    )
                    self._ending.wait()
                    return
                connection.execute(f"LISTEN {self._target.channel}".encode())
                self.listening.set()
                self._wake()  # what was notified while nobody listened
                while not self._ending.is_set():
                    told, count = self._read_notices(connection)
                    if count > FLOOD:
                        logger.info(
                            "wake-ups come too fast, polling continues for %.0f s: who may connect?", AGAIN_SECONDS
                        )
                        return
                    if told:
                        self._wake()
                    if count:
                        self._rest()
            finally:
                with self._cutting:
                    self._connection = None

    def _read_notices(self, connection: psycopg.Connection[tuple[object, ...]]) -> tuple[bool, int]:
        """Wait until a notification comes, and take all that is there by then.

        Returns: whether it was another process, and how often a caller notified; enough to know a flood is not read to its end.
        """
        told, count, seconds = False, 0, LOOK_SECONDS
        while count <= FLOOD:
            heard = [one.payload for one in connection.notifies(timeout=seconds, stop_after=1)]
            if not heard:
                break
            count += len(heard)
            told = told or any(payload != self._own for payload in heard)
            seconds = 0.0
        return told, count

    def _rest(self) -> None:
        self._ending.wait(REST_SECONDS)
