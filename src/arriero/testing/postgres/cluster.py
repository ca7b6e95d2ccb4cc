"""The data folder of a server: made again, copied from a running server, and its settings."""

import os
import secrets
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ...errors import InvalidInput
from .binaries import binaries_of, give, new_folder
from .programs import Way, run

SUPERUSER = "arriero"
SETTINGS_FILE = "arriero.conf"
# Files in the data folder, which go with it: of a server that is killed nothing stays in the machine's memory.
NEEDED = {"dynamic_shared_memory_type": "mmap"}
SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "1GB",
    "autovacuum": "on",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    **NEEDED,
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
PASSWORD_BYTES = 16
PASSWORD_FILE = "password"


@cache
def password_of(_process: int) -> str:
    """The superuser's password in all clusters that a process makes: they are copies of one template."""
    return secrets.token_hex(PASSWORD_BYTES)


def write_private(path: Path, text: str, way: Way) -> None:
    """Write a file that only the user may read who runs the program; nobody else sees it, at no moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    give(path, way)


def keep_password(folder: Path, password: str, way: Way) -> None:
    """Keep a server's password beside its data, in the form that libpq reads (``passfile=``)."""
    write_private(folder / PASSWORD_FILE, f"*:*:*:{SUPERUSER}:{password}\n", way)


def kept_password(folder: Path) -> str:
    """The password of a cluster that is there already.

    Raises: InvalidInput - none is kept: the cluster was made by an older release, or by something else.
    """
    try:
        return (folder / PASSWORD_FILE).read_text(encoding="utf-8").rstrip("\n").rpartition(":")[2]
    except FileNotFoundError as error:
        raise InvalidInput(
            f"{folder} holds a PostgreSQL cluster, but no file '{PASSWORD_FILE}': it may let every user of this machine"
            " in without a password; name another folder, or remove this one"
        ) from error


def create(version: int, data: Path, way: Way) -> None:
    """Make an empty cluster. The first of a version takes most of a second, any further one is a copy of it.

    Raises: NotInstalled - the version is not here; ProgramFailed - initdb failed.
    """
    shutil.copytree(_template(version, way, password_of(os.getpid())), data, symlinks=True)
    give(data, way)


@cache
def _template(version: int, way: Way, password: str) -> Path:
    folder = new_folder(way)
    data, given = folder / "data", folder / PASSWORD_FILE
    write_private(given, password, way)
    # The one who comes needs the password, also from this machine: other users have its loopback addresses, too.
    options: list[str | Path] = ["-U", SUPERUSER, "-A", "scram-sha-256", "--pwfile", given]
    options += ["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    if version >= 16:
        # Iterations slow down who guesses a weak password. Ours is random, and each connection pays 4 ms of CPU for them.
        options += ["-c", "scram_iterations=1"]
    run([binaries_of(version) / "initdb", "-D", data, *options], way)
    given.unlink()
    with (data / "postgresql.conf").open("a", encoding="utf-8") as configuration:
        configuration.write(f"\ninclude_if_exists = '{SETTINGS_FILE}'\n")
    return data


def source_of(port: int, folder: Path) -> str:
    """Build the connection string from a standby to its primary; its password is in the standby's folder."""
    kept = str(folder / PASSWORD_FILE).replace("\\", "\\\\").replace("'", "\\'")
    return f"host=127.0.0.1 port={port} user={SUPERUSER} application_name=standby passfile='{kept}'"


def copy_running(version: int, source: str, data: Path, way: Way) -> None:
    """Make a standby's cluster out of a running server, by pg_basebackup.

    Args: source: as ``source_of`` gives it.
    Raises: ProgramFailed - the server did not give it.
    """
    options = ["-d", source, "--checkpoint=fast", "--wal-method=stream"]
    run([binaries_of(version) / "pg_basebackup", "-D", data, *options, "--no-sync", "--no-password"], way)
    (data / "standby.signal").touch()
    give(data, way)


def write_settings(data: Path, settings: Mapping[str, str], way: Way) -> None:
    """Replace the settings that we give. ``ALTER SYSTEM`` still overrides them."""
    path = data / SETTINGS_FILE
    write_private(path, "".join(f"{name} = {_quote(value)}\n" for name, value in settings.items()), way)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
