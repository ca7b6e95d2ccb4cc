"""Facts about the file of a SQLite store."""

import msgspec


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a store's file that are read without changing it.

    Args:
        schema, schema_known: numbers of the last migration: in the file, and of this release.
        synchronous: as arriero's own connections have it; empty when it was not asked.
        file_system: its kind, empty when the system does not say; ``mount``: where it is mounted.
        log_readers: processes that keep a read transaction open, which keeps the log from being emptied; looked for when it is large.
        was_checked: whether the file was read through and found whole; a large one is not.
        damaged: columns of rows, by name, that hold what this release cannot read; looked for in what was checked.
        readable: which of the store's files users besides its owner may read.
    """

    path: str
    schema: int
    schema_known: int
    journal_mode: str
    synchronous: str = ""
    file_system: str
    mount: str
    disk_free: int
    disk_total: int
    file_bytes: int
    log_bytes: int
    was_checked: bool
    damaged: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    log_readers: tuple[str, ...] = ()
