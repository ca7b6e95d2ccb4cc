"""PgBouncer before a server, as many installations have it. Its program must be installed: Debian's ``pgbouncer``."""

import os
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from arriero.testing.postgres import cluster
from arriero.testing.postgres.binaries import free_port, give, new_folder
from arriero.testing.postgres.programs import NotInstalled, Program, ProgramFailed, Way, text_of, usual_way
from arriero.testing.postgres.server import Server, login

Mode = Literal["session", "transaction", "statement"]
START_SECONDS_MAX = 20.0
PORT_TRIES_MAX = 5
LOOK_SECONDS = 0.005
PORT_TAKEN = "Address already in use"
SYSTEM_PROGRAMS = ("/usr/sbin", "/usr/local/sbin")  # not on every user's PATH
SETTINGS = {
    "auth_type": "scram-sha-256",
    "max_client_conn": "500",
    "default_pool_size": "20",
    # Drivers send it at the start; PgBouncer refuses what it does not know.
    "ignore_startup_parameters": "extra_float_digits",
}


class PgBouncer:
    """A running PgBouncer; made by ``start``. As a context manager it is stopped at the end."""

    def __init__(self, program: Program, port: int, password: str, folder: Path, way: Way) -> None:
        self._program = program
        self.port = port
        self.password = password
        """The server's, which it wants of its clients, too."""
        self.folder = folder
        self.launched: Way = way

    @staticmethod
    def installed() -> bool:
        """Whether its program is on this machine."""
        return _program_path() is not None

    @classmethod
    def start(
        cls,
        server: Server,
        mode: Mode = "transaction",
        *,
        settings: Mapping[str, str] | None = None,
        users: tuple[str, ...] = (cluster.SUPERUSER,),
        way: Way | None = None,
    ) -> Self:
        """Start one before a server, for all its databases.

        Args:
            mode: for how long a client keeps its connection to the server.
            settings: on top of ``SETTINGS``, by PgBouncer's names.
            users: who may connect, with the server's password.
        Raises:
            NotInstalled - its program is not here.
            ProgramFailed - it did not start.
        """
        path = _program_path()
        if path is None:
            raise NotInstalled("PgBouncer is not installed; run: apt-get install pgbouncer")
        launched = way or usual_way()
        folder = new_folder(launched)
        log = folder / "log"
        given = {**SETTINGS, "pool_mode": mode, **(settings or {})}
        listed = "".join(f'"{user}" "{server.password}"\n' for user in users)
        cluster.write_private(folder / "users", listed, launched)
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            port = free_port()
            _write_configuration(folder, server.port, port, given)
            give(folder, launched)
            program = Program([path, folder / "configuration"], launched, log)
            if _answers(program, port):
                return cls(program, port, server.password, folder, launched)
            program.kill()
            told = text_of(log)
            if not tries_left or PORT_TAKEN not in told:
                shutil.rmtree(folder)
                raise ProgramFailed(f"PgBouncer did not start on port {port}", told)
        raise AssertionError("unreachable: the last try returns or raises")

    @property
    def log(self) -> str:
        """What it has written so far."""
        return text_of(self.folder / "log")

    def url(self, database: str = "postgres", user: str | None = None) -> str:
        """How to reach a database of its server through it."""
        return f"postgresql://{login(user, self.password)}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def processes(self) -> list[int]:
        """Its processes."""
        return self._program.processes()

    def pause(self) -> None:
        """Stop it where it stands (SIGSTOP)."""
        self._program.freeze()

    def resume(self) -> None:
        """Let it continue (SIGCONT)."""
        self._program.thaw()

    def kill(self) -> None:
        """SIGKILL, as if its machine had died."""
        self._program.kill()

    def stop(self) -> None:
        """End it immediately and remove its folder. Again is not an error."""
        self._program.kill()  # it keeps nothing that an orderly end would save
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _program_path() -> str | None:
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM_PROGRAMS)))


def _write_configuration(folder: Path, server_port: int, port: int, settings: Mapping[str, str]) -> None:
    place = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_file": str(folder / "users"),
    }
    lines = [f"{name} = {value}\n" for name, value in {**place, **settings}.items()]
    text = f"[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\n{''.join(lines)}"
    (folder / "configuration").write_text(text, encoding="utf-8")


def _answers(program: Program, port: int) -> bool:
    """Wait until it takes connections. Returns: False if it ended instead, or never does."""
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while program.running and time.monotonic() < give_up_at:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(LOOK_SECONDS)
    return False
