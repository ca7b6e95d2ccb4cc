"""Ends waits for servers that do not answer.

No setting of driver or server bounds them all: a stopped server's kernel still acknowledges what it is sent, and no
time-out of the server ends a commit's wait for the standby.
"""

import threading
import time
from typing import Protocol

from ...loops import Loop, LoopGuard

LOOK_SECONDS = 0.25  # between looks, while anybody waits
REST_SECONDS = 0.5  # without anybody who waits, after which its thread ends


class Waits(Protocol):
    """Something that may wait for a server."""

    def cut(self) -> None:
        """End the wait; called in the watchdog's thread."""
        ...


class Watchdog:
    """One thread of the process for all who wait; begun when first needed, also after a fork."""

    def __init__(self) -> None:
        self._due: dict[Waits, float] = {}
        self._somebody = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, waits: Waits, seconds: float) -> None:
        """Cut it after so long, again and again, unless ``forget`` comes before."""
        with self._somebody:
            self._due[waits] = time.monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():  # the first one, after a fork, after a rest
                thread = threading.Thread(target=self._run, name="arriero-watchdog", daemon=True)
                try:
                    thread.start()
                except BaseException:
                    del self._due[waits]
                    raise
                self._thread = thread
            elif len(self._due) == 1:
                self._somebody.notify()

    def forget(self, waits: Waits) -> None:
        """Stop watching something that waits no more."""
        with self._somebody:
            self._due.pop(waits, None)

    def _run(self) -> None:
        guard = LoopGuard(Loop.WATCHDOG, time.monotonic)
        while True:
            with self._somebody:
                if not self._due and not self._somebody.wait_for(lambda: self._due, REST_SECONDS):
                    self._thread = None  # nobody has waited for a while: no store is open
                    return
                now = time.monotonic()
                late = [waits for waits, due in self._due.items() if due <= now]
            for waits in late:
                with guard:
                    waits.cut()
            time.sleep(LOOK_SECONDS)  # not woken by each transaction


WATCHDOG = Watchdog()
