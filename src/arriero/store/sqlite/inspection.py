"""Inspection of a store's file and of its folder. Nothing here changes the file."""

import contextlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable
from contextlib import closing
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import get_args

from ...errors import StoreError
from ...inspection.facts import FileFacts
from ...model import INSTANT_END, AlertRow, StepRow, TaskRow, TaskState
from ..migrate import migrations
from ..readable import KEYS, TABLES, Column, columns_of
from ..rows import SharedRow
from . import connection as connections
from .connection import connect, translating

FAULTS_MAX = 20
_STORED_AS = {int: ("integer",), bool: ("integer",), float: ("real", "integer"), type(None): ("null",)}
_OF_OTHER_TABLES: dict[type, tuple[str, ...]] = {
    AlertRow: ("task_id", "workflow", "tags", "parent")
}  # fields that a statement takes from the task
_PLACED = "turn IS NOT NULL AND (convoy_no IS NULL OR place IS NULL OR rank IS NULL)"


def find_damaged_columns(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Find values of the wrong type, and words that this release does not know.

    SQLite keeps any value in any column. A row whose time to start is a text is found by no statement, so nobody misses it.
    Returns names of damaged columns with their rows, as ``column not_before of table task (row 5)``; at most ``FAULTS_MAX``.

    Texts of JSON are not read: the one who needs one finds that out. Raises: sqlite3.Error.
    """
    found = (
        f"column {column} of table {TABLES[row]} (row {', '.join(map(str, key))})"
        for row in (TaskRow, StepRow, AlertRow, *get_args(SharedRow))
        for *key, column in connection.execute(_question(row))
    )
    return tuple(islice(found, FAULTS_MAX))


def _question(row: type) -> str:
    left_out = _OF_OTHER_TABLES.get(row, ())
    faults = [(column.name, _fault(column)) for column in columns_of(row) if column.name not in left_out]
    if row is TaskRow:
        faults.append(("rank", _PLACED))
    cases = " ".join(f"WHEN {fault} THEN '{name}'" for name, fault in faults)
    anywhere = " OR ".join(f"({fault})" for _, fault in faults)
    return f"SELECT {', '.join(KEYS[row])}, CASE {cases} END FROM arriero_{TABLES[row]} WHERE {anywhere} LIMIT {FAULTS_MAX}"


def _fault(column: Column) -> str:
    """The condition under which a column holds what it may not."""
    stored = {name for each in column.types for name in _STORED_AS.get(each, ("text",))}
    fault = f"typeof({column.name}) NOT IN ({_quote_name(stored)})"
    words = [
        word.stored if isinstance(word, TaskState) else str(word)
        for each in column.types
        if issubclass(each, StrEnum)
        for word in each
    ]
    if words:
        fault += f" OR {column.name} NOT IN ({_quote_name(words)})"
    if column.types == {bool}:
        fault += f" OR {column.name} NOT IN (0, 1)"
    if column.is_instant:
        fault += f" OR {column.name} < 0 OR {column.name} >= {INSTANT_END}"
    return fault


def _quote_name(words: set[str] | list[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


MOUNTS = Path("/proc/self/mounts")
CHECK_BYTES_MAX = 256 * 10**6  # what is read through within a few seconds
LOCKS = Path("/proc/locks")
READ_LOCKS = range(123, 128)  # bytes of -shm that readers lock (https://sqlite.org/walformat.html)
LOG_READERS_BYTES_MIN = 32 * 10**6  # the log is moved into the file every some ten megabytes
LOOKS, LOOK_SECONDS = 5, 0.1
SYNCHRONOUS = ("off", "normal", "full", "extra")


def file_facts(path: str) -> FileFacts:
    """The facts of the file at an absolute path.

    Raises: StoreError - it cannot be opened, is locked, is damaged, or holds no schema of ours.
    """
    with translating(path), closing(_connected_to_look(path)) as looking:
        file_bytes = Path(path).stat().st_size
        try:
            log_bytes = Path(f"{path}-wal").stat().st_size
        except FileNotFoundError:  # the last one who leaves the file takes it along
            log_bytes = 0
        (journal,) = looking.execute("PRAGMA journal_mode").fetchone()
        (schema,) = looking.execute("SELECT coalesce(max(number), 0) FROM arriero_migration").fetchone()
        was_checked = file_bytes + log_bytes <= CHECK_BYTES_MAX
        schema_known = migrations(__package__)[-1].number
        damaged: tuple[str, ...] = ()
        if was_checked:
            _refuse_damaged(looking)
            damaged = find_damaged_columns(looking) if schema == schema_known else ()
        readers = find_log_readers(path) if log_bytes > LOG_READERS_BYTES_MIN else ()
        kind, mount = file_system_of(path)
        disk = shutil.disk_usage(Path(path).parent)
        return FileFacts(
            path=path,
            schema=schema,
            schema_known=schema_known,
            journal_mode=journal,
            file_system=kind,
            mount=mount,
            disk_free=disk.free,
            disk_total=disk.total,
            file_bytes=file_bytes,
            log_bytes=log_bytes,
            was_checked=was_checked,
            damaged=damaged,
            readable=_readable_by_others(path),
            log_readers=readers,
        )


def find_log_readers(path: str) -> tuple[str, ...]:
    """Find the processes of this machine that keep a read transaction open on a file, as texts for operators.

    A reader of SQLite locks a byte of the file -shm. That file is not opened here, because closing it would drop the locks of this process.
    A process counts if it holds such a lock at each look: short transactions do not count. Empty where the system does not say.
    """
    try:
        shared = Path(f"{path}-shm").stat()
    except OSError:
        return ()
    held: set[int] | None = None
    for number in range(LOOKS):
        if number:
            time.sleep(LOOK_SECONDS)
        try:
            readers = parse_readers(LOCKS.read_text(), shared.st_dev, shared.st_ino)
        except OSError:
            return ()
        held = readers if held is None else held & readers
    return tuple(f"{pid} ({_name_process(pid)})" for pid in sorted(held or ()))


def parse_readers(locks: str, device: int, inode: int) -> set[int]:
    """Parse ``/proc/locks``; returns the processes that hold a lock for reading on the file -shm of that device and inode."""
    file = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    found = set()
    for line in locks.splitlines():
        match line.split():
            case [_, "POSIX", _, "READ", pid, name, first, last] if name == file and pid.isdigit():
                if last == "EOF" or (int(first) <= READ_LOCKS[-1] and int(last) >= READ_LOCKS[0]):
                    found.add(int(pid))
    return found


def _name_process(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "ended"


def _readable_by_others(path: str) -> tuple[str, ...]:
    """The store's files and folders that another user of this machine may read, by their modes."""
    found = []
    for name in (path, f"{path}-wal", f"{path}-shm", f"{path}.processes"):
        with contextlib.suppress(OSError):  # it is not there
            if stat.S_IMODE(Path(name).stat().st_mode) & 0o044:
                found.append(name)
    return tuple(found)


def _connected_to_look(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{Path(path).as_uri()}?mode=ro", uri=True, timeout=connections.BUSY_SECONDS, isolation_level=None
    )


def _refuse_damaged(looking: sqlite3.Connection) -> None:
    (found,) = looking.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreError(f"the file is damaged ({found}): restore it from a backup")


def synchronous_of(path: str) -> str:
    """``synchronous`` as arriero's own connections have it.

    Asked while the store is open: the last connection that closes moves the log into the file. Raises: StoreError.
    """
    with translating(path), closing(connect(path, query_only=True)) as own:
        (number,) = own.execute("PRAGMA synchronous").fetchone()
        return SYNCHRONOUS[number]


def file_system_of(path: str) -> tuple[str, str]:
    """Kind and mount point of the file system that a file lies on; empty where the system does not say."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return "", ""
    return _deepest(Path(path).resolve(), lines)


def _deepest(path: Path, lines: Iterable[str]) -> tuple[str, str]:
    """The last of the deepest mounts above a path: one that is mounted over another hides it."""
    found, depth = ("", ""), -1
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = Path(_unescape(fields[1]))
        if path.is_relative_to(mount) and len(mount.parts) >= depth:
            found, depth = (fields[2], str(mount)), len(mount.parts)
    return found


def _unescape(text: str) -> str:
    """Spaces and the like stand in octal there."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
