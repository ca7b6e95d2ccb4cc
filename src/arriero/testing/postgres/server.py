"""A PostgreSQL server of one's own: made in a moment, killed at will, gone afterwards."""

import ctypes
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from ...errors import describe_install
from . import cluster
from .binaries import binaries_of, choose_version, free_port, new_folder
from .programs import NotInstalled, Program, ProgramFailed, Way, send, text_of, usual_way

if TYPE_CHECKING:
    from psycopg import Connection

StopMode = Literal["fast", "immediate"]
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
START_SECONDS_MAX = 120.0  # recovery after a kill has to read what was written since the last checkpoint
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.005
PORT_TRIES_MAX = 5
PORT_TAKEN = "could not create any TCP/IP sockets"
READY = "ready"
REMOVE_SHARED_MEMORY = 0  # shmctl(2)
# What `ps` shows for a process that serves a client: "postgres: user database address(port) state", in front of it the
# cluster's name, if it has one. One that feeds a standby shows the same after "walsender".
BACK_END = re.compile(r"postgres: (?!.*\bwalsender ).+ (\[local\]|\S+\(\d+\))( |$)")


class Server:
    """A running server; made by ``start``. As a context manager it is stopped at the end.

    It listens on 127.0.0.1 and on a socket in ``socket_folder``, and wants a password of everybody: other users of
    this machine reach its port, too. That of its superuser ``arriero`` is drawn at random and stands in ``url``.
    """

    def __init__(
        self, version: int, folder: Path | None, way: Way, settings: Mapping[str, str], port: int | None
    ) -> None:
        self._binaries = binaries_of(version)
        self._scratch = new_folder(way)
        self._given_folder = folder
        self._program: Program | None = None
        self.version = version
        self.settings = dict(settings)
        self.launched: Way = way
        """Way in which its programs run: "direct", "namespace" or "nobody"."""
        self.folder = folder or self._scratch
        self.socket_folder = self._scratch
        self.port = port or 0
        self.password = cluster.password_of(os.getpid())
        """The superuser's. ``url`` names it for every role, so give it to those that you create (``create_role``)."""
        self.pid = 0
        """The process id of the postmaster, also after it was killed."""

    @classmethod
    def start(
        cls,
        version: int | None = None,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        tuned: bool = True,
        port: int | None = None,
        following: "Server | None" = None,
        way: Way | None = None,
    ) -> Self:
        """Make a server and wait until it answers.

        Args:
            version: the major version, one of ``installations``; by default 16, else the newest from 15 on.
            folder: where it keeps its data and its log. A cluster that is there already is used. A given folder
                stays at the end; without one, a temporary folder goes with the server.
            settings: on top of ``cluster.SETTINGS``, by PostgreSQL's names.
            durable: False is quicker, and a commit may be lost when the *machine* dies; a kill loses nothing.
            tuned: False leaves PostgreSQL's default settings, as a user's new server has them.
            port: by default any that is free.
            following: make it a streaming standby of that server, which must run.
            way: with which rights; by default what ``usual_way`` finds.
        Raises:
            NotInstalled - the version is not here.
            ProgramFailed - it did not start; the last lines of its log are in the message.
            InvalidInput - the folder holds a cluster whose password is not kept there.
        """
        usual = cluster.SETTINGS if tuned else cluster.NEEDED
        given = {**usual, **({} if durable else cluster.NOT_DURABLE), **(settings or {})}
        version = choose_version() if version is None else version
        server = cls(version, folder, way or usual_way(), given, port)
        try:
            if following is not None:
                server._copy(following)
            elif (server.data / "PG_VERSION").exists():
                server.password = cluster.kept_password(server.folder)
            else:
                cluster.create(version, server.data, server.launched)
                cluster.keep_password(server.folder, server.password, server.launched)
            server._launch()
        except BaseException:
            server._remove()
            raise
        return server

    @property
    def data(self) -> Path:
        """Its data folder (PGDATA)."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """Text of its log so far."""
        return text_of(self._log)

    @property
    def running(self) -> bool:
        """Returns True if any process of it runs."""
        return self._program is not None and self._program.running

    def url(self, database: str = "postgres", user: str | None = None, *, socket: bool = False) -> str:
        """Build the URL of a database of it: over TCP on the loopback address, or by its socket."""
        if socket:
            at = f"{login(user, self.password)}@/{quote(database, safe='')}"
            return f"postgresql://{at}?host={quote(str(self.socket_folder), safe='')}&port={self.port}"
        return f"postgresql://{login(user, self.password)}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create_role(self, name: str, options: str = "") -> None:
        """Create a role that may log in, with the server's password, so that ``url(user=name)`` works.

        Args: options: more of ``CREATE ROLE``, like ``SUPERUSER``.
        Raises: psycopg's errors.
        """
        from psycopg.sql import SQL, Identifier, Literal

        made = SQL("CREATE ROLE {} LOGIN PASSWORD {} ").format(Identifier(name), Literal(self.password))
        self._execute(made + SQL(options))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, empty or as a copy of another (to which nobody may be connected).

        Returns: its URL.
        Raises: psycopg's errors.
        """
        from psycopg.sql import SQL, Identifier

        copied = SQL(" TEMPLATE {}").format(Identifier(template)) if template else SQL("")
        self._execute(SQL("CREATE DATABASE {}").format(Identifier(name)) + copied)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, if it is there, and end the one who is connected to it.

        Raises: psycopg's errors.
        """
        from psycopg.sql import SQL, Identifier

        self._execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))

    def configure(self, **settings: str) -> None:
        """Change settings of the running server and have it read them again; each process does so within moments."""
        self.settings.update(settings)
        cluster.write_settings(self.data, self.settings, self.launched)
        self._tell_postmaster(signal.SIGHUP)

    def wait_until(self, query: str, otherwise: str) -> None:
        """Wait until a query's first value is true.

        Raises: ProgramFailed - with ``otherwise`` and the log, when it did not come to that.
        """
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while not self._ask(query):
            if time.monotonic() > give_up_at:
                raise ProgramFailed(otherwise, self.log)
            time.sleep(LOOK_SECONDS)

    def back_ends(self) -> list[int]:
        """The processes that serve a client now."""
        processes = self._program.processes() if self._program else []
        return [pid for pid in processes if BACK_END.match(_title(pid))]

    def processes(self) -> list[int]:
        """All its processes; the postmaster, if it runs, comes first."""
        return self._program.processes() if self._program else []

    def promote(self) -> None:
        """Make a standby read-write and wait for it.

        Raises: ProgramFailed - it did not come to that.
        """
        if not self._ask("SELECT pg_promote(true, 60)"):
            raise ProgramFailed("the standby was not promoted", self.log)
        self.wait_until("SELECT NOT pg_is_in_recovery()", "the promoted standby is still read-only")

    def follow(self, primary: "Server") -> None:
        """Give up all its data, copy those of a running server and start as its streaming standby, on its old port.

        Raises: ProgramFailed - as ``start``.
        """
        if self.running:
            self.kill()
        self._free_shared_memory()
        shutil.rmtree(self.data)
        self._copy(primary)
        self._launch()

    def pause(self) -> None:
        """Stop all its processes where they stand (SIGSTOP): it is silent, and its connections stay open."""
        if self._program:
            self._program.freeze()

    def resume(self) -> None:
        """Let its processes continue (SIGCONT)."""
        if self._program:
            self._program.thaw()

    def kill(self) -> None:
        """SIGKILL to all its processes at a time, as if its machine had died. ``restart`` brings it back."""
        if self._program:
            self._program.kill()

    def kill_postmaster(self) -> None:
        """SIGKILL to the postmaster alone. Idle processes end when they see it, busy ones when they have finished."""
        self._tell_postmaster(signal.SIGKILL)

    def shut_down(self, mode: StopMode = "fast") -> None:
        """End it and keep its folder, so that ``restart`` continues with it. What has lost its postmaster is killed.

        Args:
            mode: "fast" ends transactions and writes a checkpoint; "immediate" does neither, the next start recovers.
        Raises: ProgramFailed - it did not end in time, and was killed then.
        """
        program = self._program
        if program is None or not program.running:
            return
        program.thaw()
        if not self._tell_postmaster(STOP_SIGNALS[mode]):
            program.kill()
        elif not program.wait(STOP_SECONDS_MAX):
            program.kill()
            raise ProgramFailed(f"the server did not stop ({mode}) within {STOP_SECONDS_MAX:.0f} s", self.log)

    def restart(self) -> None:
        """Start it again on its data and its port: after ``kill``, or after a fast shut-down if it still runs.

        Raises: ProgramFailed - as ``start``.
        """
        self.shut_down()
        self._launch()

    def stop(self, mode: StopMode = "fast") -> None:
        """End it and remove its folder, if that is a temporary one. Again is not an error.

        Raises: ProgramFailed - as ``shut_down``; its folder is removed all the same.
        """
        try:
            self.shut_down(mode)
        finally:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Data that are thrown away need no checkpoint.
        self.stop("immediate" if self._given_folder is None else "fast")

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _tell_postmaster(self, number: signal.Signals) -> bool:
        """Returns: whether it is there to be delivered. (When it no longer exists, its number may be another user's.)"""
        if self._program is None or not self._program.owns(self.pid):
            return False
        send(self.pid, number)
        return True

    def _copy(self, primary: "Server") -> None:
        self.password = primary.password  # it stands in the data
        cluster.keep_password(self.folder, self.password, self.launched)
        source = cluster.source_of(primary.port, self.folder)
        cluster.copy_running(self.version, source, self.data, self.launched)
        self.settings["primary_conninfo"] = source

    def _launch(self) -> None:
        """Start on the port that it has, or else on any; that may be taken in the moment before, so try another."""
        cluster.write_settings(self.data, self.settings, self.launched)
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            port = self.port or free_port()
            written_before = len(self.log)
            try:
                self._launch_on(port)
            except ProgramFailed:
                if self.port or not tries_left or PORT_TAKEN not in self.log[written_before:]:
                    raise
            else:
                self.port = port
                return

    def _launch_on(self, port: int) -> None:
        place: list[str | Path] = ["-D", self.data, "-p", str(port), "-k", self.socket_folder, "-h", "127.0.0.1"]
        program = Program([self._binaries / "postgres", *place], self.launched, self._log)
        self._program = program
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready(program):
            if not program.running:
                raise ProgramFailed(f"PostgreSQL {self.version} did not start on port {port}", self.log)
            if time.monotonic() > give_up_at:
                program.kill()
                raise ProgramFailed(
                    f"PostgreSQL {self.version} was not ready within {START_SECONDS_MAX:.0f} s", self.log
                )
            time.sleep(LOOK_SECONDS)

    def _is_ready(self, program: Program) -> bool:
        """Returns True if it is ready, by the file that the postmaster writes. A killed one may have left its file."""
        told = text_of(self.data / "postmaster.pid").splitlines()
        if len(told) < 8 or told[7].strip() != READY or not program.owns(int(told[0])):
            return False
        self.pid = int(told[0])
        return True

    def _remove(self) -> None:
        if self._program:
            self._program.kill()
        self._free_shared_memory()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _free_shared_memory(self) -> None:
        """Free the shared memory that a killed server leaves, unless its next start has done so.

        Only ours: a given folder may turn out to be in use by another user's server.
        """
        told = text_of(self.data / "postmaster.pid").splitlines()
        if len(told) >= 7 and told[0] == str(self.pid) and len(words := told[6].split()) == 2:
            ctypes.CDLL(None).shmctl(int(words[1]), REMOVE_SHARED_MEMORY, None)

    def _connect(self) -> "Connection[Any]":
        try:
            import psycopg
        except ImportError as error:
            raise NotInstalled(f"psycopg is missing: {describe_install('postgres')}") from error
        return psycopg.connect(self.url(), autocommit=True, connect_timeout=10)

    def _execute(self, statement: Any) -> None:
        with self._connect() as connection:
            connection.execute(statement)

    def _ask(self, query: Any) -> Any:
        """The first value of the first row; None without a row."""
        with self._connect() as connection:
            row = connection.execute(query).fetchone()
        return row[0] if row else None


def login(user: str | None, password: str) -> str:
    """A URL's part before the @."""
    return f"{quote(user or cluster.SUPERUSER, safe='')}:{quote(password, safe='')}"


def _title(pid: int) -> str:
    try:
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return told.replace(b"\0", b" ").decode(errors="replace")
