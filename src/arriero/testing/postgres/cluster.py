"""The data folder of a server: made anew, copied from a running server, and its settings."""

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .binaries import binaries_of
from .programs import Way, run
from .scratch import give, new_folder

SUPERUSER = "arriero"
SETTINGS_FILE = "arriero.conf"
SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "1GB",
    "autovacuum": "on",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    # Files in the data folder, which go with it: of a server that is killed nothing stays in the machine's memory.
    "dynamic_shared_memory_type": "mmap",
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def create(version: int, data: Path, way: Way) -> None:
    """Make an empty cluster. The first of a version takes most of a second, any further one is a copy of it.

    Raises: NotInstalled - the version is not here; ProgramFailed - initdb failed.
    """
    shutil.copytree(_template(version, way), data, symlinks=True)
    give(data, way)


@cache
def _template(version: int, way: Way) -> Path:
    data = new_folder(way) / "data"
    # "trust" of initdb is for the socket's folder and the loopback addresses only.
    options = ["-U", SUPERUSER, "-A", "trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    run([binaries_of(version) / "initdb", "-D", data, *options], way)
    with (data / "postgresql.conf").open("a", encoding="utf-8") as configuration:
        configuration.write(f"\ninclude_if_exists = '{SETTINGS_FILE}'\n")
    return data


def copy_running(version: int, port: int, data: Path, way: Way) -> None:
    """Make a standby's cluster out of a running server, by pg_basebackup.

    Raises: ProgramFailed - the server did not give it.
    """
    options = ["-h", "127.0.0.1", "-p", str(port), "-U", SUPERUSER, "--checkpoint=fast", "--wal-method=stream"]
    run([binaries_of(version) / "pg_basebackup", "-D", data, *options, "--no-sync", "--no-password"], way)
    (data / "standby.signal").touch()
    give(data, way)


def write_settings(data: Path, settings: Mapping[str, str], way: Way) -> None:
    """Replace the settings that we give. ``ALTER SYSTEM`` still overrides them."""
    path = data / SETTINGS_FILE
    path.write_text("".join(f"{name} = {_quoted(value)}\n" for name, value in settings.items()), encoding="utf-8")
    give(path, way)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
