"""The schema of a file, for those who bring it up to date. Processes that open the file do so by themselves."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ...errors import InvalidInput
from ..migrate import Grant, SchemaState, build_parts, migrate_sqlite, migrations, read_applied_number, refuse_newer
from . import connection as connections
from .connection import absolute, connect, translating, wall_clock

NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"  # microseconds since 1970
HOW = "-- Run it so that the first error ends it: sqlite3 -bail FILE < SCRIPT"


class SqliteSchema:
    """See ``store.migrate.Schema``."""

    def __init__(self, path: str) -> None:
        self._path = absolute(path)
        self.url = f"sqlite:///{self._path}"

    def state(self) -> SchemaState:
        known = migrations(__package__)
        number = self._number()
        with translating(self._path):
            refuse_newer(number or 0, known)
        return SchemaState(number, tuple(known))

    def _number(self) -> int | None:
        if not Path(self._path).exists():
            return None
        looking = f"{Path(self._path).as_uri()}?mode=ro"
        with (
            translating(self._path),
            closing(sqlite3.connect(looking, uri=True, timeout=connections.BUSY_SECONDS)) as connection,
        ):
            return read_applied_number(connection) or None

    def migrate(self, grants: Sequence[Grant] = ()) -> list[str]:
        _refuse(grants)
        with translating(self._path), closing(connect(self._path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                applied = migrate_sqlite(connection, migrations(__package__), wall_clock())
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return applied

    def script(self, grants: Sequence[Grant] = ()) -> str:
        _refuse(grants)
        state = self.state()
        if not state.missing:
            return f"-- nothing to do: the schema is number {state.number}\n"
        parts = [HOW, "BEGIN IMMEDIATE;", *map(str.strip, build_parts(state.missing, NOW)), "COMMIT;"]
        return "\n\n".join(parts) + "\n"


def _refuse(grants: Sequence[Grant]) -> None:
    for grant in grants:
        raise InvalidInput(f"role {grant.role!r}: a file has no roles; who may write the file may do everything")
