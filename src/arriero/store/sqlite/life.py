"""Who lives on this machine: each process start holds a lock on a file of its own, which its death releases at once."""

import fcntl
import os
from pathlib import Path


class Lives:
    """Lock files in the folder ``<store file>.processes``."""

    def __init__(self, store_path: str) -> None:
        self._folder = Path(store_path + ".processes")
        self._held: dict[str, int] = {}

    def _file(self, instance: str) -> Path:
        return self._folder / f"{instance}.lock"

    def announce(self, instance: str) -> None:
        """Hold the lock of this process start for as long as the process lives."""
        self._folder.mkdir(exist_ok=True)
        descriptor = os.open(self._file(instance), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._held[instance] = descriptor

    def is_known_dead(self, instance: str) -> bool:
        """Whether the lock is free. False when there is no file to ask: then only the lease can tell."""
        if instance in self._held:
            return False
        try:
            descriptor = os.open(self._file(instance), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def forget(self, instance: str) -> None:
        """Remove the file of a process start that is retired and holds nothing."""
        self._file(instance).unlink(missing_ok=True)

    def close(self) -> None:
        """Release our own locks."""
        for instance, descriptor in self._held.items():
            self._file(instance).unlink(missing_ok=True)
            os.close(descriptor)
        self._held.clear()
