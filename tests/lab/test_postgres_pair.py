"""lab.postgres: a primary and its synchronous standby, and what fails over."""

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from waiting import wait_until

from lab.postgres import Pair

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair.start() as running:
        with psycopg.connect(running.primary.create_database("shop")) as connection:
            connection.execute("CREATE TABLE kept (number int PRIMARY KEY)")
        yield running


class Writer:
    """Commits one row after the other until its connection is lost."""

    def __init__(self, url: str, first: int) -> None:
        self.acknowledged: list[int] = []
        self._url = url
        self._first = first
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with closing(psycopg.connect(self._url, autocommit=True)) as connection:
            number = self._first
            try:
                while True:
                    connection.execute("INSERT INTO kept VALUES (%s)", [number])
                    self.acknowledged.append(number)
                    number += 1
                    if len(self.acknowledged) == 50:
                        self._enough.set()
            except psycopg.OperationalError:
                return

    def wait_for_some(self) -> None:
        assert self._enough.wait(SECONDS_MAX)

    def wait_for_end(self) -> None:
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()


def test_fail_overs_again_and_again_lose_no_row_that_was_committed(pair: Pair) -> None:
    url = pair.url("shop")
    acknowledged: list[int] = []
    for number in range(2):
        before = pair.primary
        writer = Writer(url, first=1_000_000 * number)
        writer.wait_for_some()
        pair.kill_primary()
        writer.wait_for_end()
        pair.promote()
        assert (pair.primary is before, pair.standby is before) == (False, True)
        acknowledged += writer.acknowledged
        with psycopg.connect(url) as connection:
            assert connection.info.port == pair.primary.port
            found = {row[0] for row in connection.execute("SELECT number FROM kept")}
            assert set(acknowledged) <= found
            connection.execute("INSERT INTO kept VALUES (%s)", [-number - 1])  # the survivor alone waits for nobody
        pair.rebuild_standby()
        assert pair.standby is before
        assert pair.url("shop") == url


def test_a_commit_waits_for_the_standby(pair: Pair) -> None:
    url = pair.url("shop")
    pair.standby.pause()
    with (
        closing(psycopg.connect(pair.primary.url("shop"), autocommit=True)) as operator,
        closing(psycopg.connect(url, autocommit=True)) as connection,
    ):
        connection.pgconn.send_query(b"INSERT INTO kept VALUES (-100)")
        waiting = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
        pid = connection.info.backend_pid
        wait_until(lambda: operator.execute(waiting, [pid]).fetchone(), "a commit that waits for the standby")
        pair.standby.resume()
        result = connection.pgconn.get_result()
        assert result is not None
        assert result.command_status == b"INSERT 0 1"
    with psycopg.connect(pair.standby.url("shop")) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)


def test_a_stopped_pair_leaves_no_process_and_no_folder() -> None:
    pair = Pair.start(durable=False)
    servers = (pair.primary, pair.standby)
    pair.stop()
    pair.stop()
    assert [server.running or server.folder.exists() for server in servers] == [False, False]
