"""Folders and ports for what lives no longer than this process."""

import os
import random
import shutil
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

from .programs import ProgramFailed, Way, keep_folder

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
    """A port of the loopback address that nobody listens on. Somebody may take it before it is used: try again then.

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
