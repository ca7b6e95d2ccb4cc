"""Says to systemd and to Kubernetes whether a program that may lead is ready.

The file is for a readiness probe of Kubernetes.
"""

from pathlib import Path

from ..runtime.ports import LoopClock
from ..runtime.service_notifier import ServiceNotifier


class Readiness:
    """Tells the surroundings whether this process leads.

    Args:
        ready_file: exists while this process leads, with the term in it; None: there is none.
    """

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file
        self._notifier = ServiceNotifier(LoopClock())

    def tell_waiting(self, lease: str) -> None:
        """This process contends. To systemd that is ready: a standby has started."""
        self._remove_file()
        self._notifier.tell_ready(f"waits for the lease {lease}")

    def tell_leading(self, lease: str, term: int) -> None:
        """This process leads."""
        if self._file is not None:
            self._file.write_text(f"{term}\n")
        self._notifier.tell_ready(f"leads {lease} in term {term}")

    def tell_stopping(self) -> None:
        """This process is about to end."""
        self._remove_file()
        self._notifier.tell_stopping()

    async def feed_watchdog(self) -> None:
        """See ``ServiceNotifier.feed_watchdog``."""
        await self._notifier.feed_watchdog()

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
