"""Says to systemd that a program is ready, is alive, or is about to end.

Source: sd_notify(3), with NOTIFY_SOCKET and WATCHDOG_USEC in the environment.
"""

import os
import socket
from contextlib import suppress

from ..model import MICROSECONDS
from .ports import ProcessClock


class ServiceNotifier:
    """Sends notifications to systemd, if it started us. It removes the variables, because a child must not notify for us."""

    def __init__(self, clock: ProcessClock) -> None:
        self._clock = clock
        self._socket = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog = os.environ.pop("WATCHDOG_USEC", "")
        self._watchdog_seconds = int(watchdog) / MICROSECONDS / 3 if watchdog.isdigit() and int(watchdog) else None

    def tell_ready(self, status: str) -> None:
        """The program has started. ``status``: one line for operators."""
        self._notify(f"READY=1\nSTATUS={status}")

    def tell_stopping(self) -> None:
        """The program is about to end."""
        self._notify("STOPPING=1")

    async def feed_watchdog(self) -> None:
        """Notify systemd's watchdog that the event loop is alive, until cancelled; returns immediately if there is no watchdog."""
        while self._watchdog_seconds is not None:
            self._notify("WATCHDOG=1")
            await self._clock.sleep(self._watchdog_seconds)

    def _notify(self, text: str) -> None:
        if not self._socket:
            return
        address = f"\0{self._socket[1:]}" if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(text.encode(), address)
