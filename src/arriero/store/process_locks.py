"""Liveness on this machine: each process start holds a lock on its own file, which its death releases immediately."""

import fcntl
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from ..errors import InvalidInput

# What a process start is named: a host, a number, a random end. One part of a path, and never a hidden file.
INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id of the machine's boot; empty where the system does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def lock_file_of(folder: Path, instance: str) -> Path | None:
    """The file of a process start in a folder. Its name comes from a row, which anybody may have written.

    Returns: None for a name that no process start has; it might lead out of the folder.
    """
    return folder / f"{instance}.lock" if INSTANCE.fullmatch(instance) else None


def folder_of_file(store_path: str) -> Path:
    """The folder of locks for processes that share the store's file."""
    return Path(store_path + ".processes")


def folder_of_machine(store_id: str) -> Path:
    """The folder of locks for this user's processes on a store elsewhere: one folder for each boot.

    So nobody on another machine is taken for dead, even if it had the same temporary folder.
    Raises: OSError - the system does not distinguish one start from another, or the folder is not this user's alone.
    """
    user, boot = os.getuid(), boot_id()
    if not boot:
        raise FileNotFoundError(f"{BOOT_ID} does not say which boot this is")
    ours = Path(tempfile.gettempdir()) / f"arriero-{user}-{boot}"
    ours.mkdir(mode=0o700, exist_ok=True)
    found = ours.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise PermissionError(f"{ours} is not a folder of this user alone")
    return ours / hashlib.sha256(store_id.encode()).hexdigest()[:32]


class ProcessLocks:
    """Lock files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def announce(self, instance: str) -> None:
        """Hold the lock of this process start for as long as the process lives.

        Raises: OSError; InvalidInput - it has a name that others take for none.
        """
        file = lock_file_of(self._folder, instance)
        if file is None:
            raise InvalidInput(
                f"{instance!r} is not a name for a process start: use up to 100 ASCII letters, digits, dots and dashes"
            )
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._held[instance] = descriptor

    def is_known_dead(self, instance: str) -> bool:
        """Returns True if the lock is free; False when there is no file: then only the lease can know."""
        file = lock_file_of(self._folder, instance)
        if file is None or instance in self._held:
            return False
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
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
        """Remove the file of a process start whose retirement is committed: nobody asks for its death any longer.

        If the remover dies before, the file stays permanently. It does no harm: no name is given twice.
        """
        file = lock_file_of(self._folder, instance)
        if file is not None:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Release our own locks."""
        for instance, descriptor in self._held.items():
            self.forget(instance)
            os.close(descriptor)
        self._held.clear()
