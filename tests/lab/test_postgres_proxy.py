"""lab.postgres: a proxy whose cuts do what they say."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import count

import psycopg
import pytest
from waiting import wait_until

from arriero.testing.postgres import Server
from lab.postgres import Fault, Message, Proxy, answering, client_sends, executing, server_sends
from lab.postgres.messages import ClientReader, ServerReader

SECONDS_MAX = 60.0
Connection = psycopg.Connection[tuple[object, ...]]
databases = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start(durable=False) as running:
        with psycopg.connect(running.create_database("template")) as connection:
            connection.execute("CREATE TABLE kept (number int PRIMARY KEY)")
        yield running


@pytest.fixture
def database(server: Server) -> str:
    name = f"shop{next(databases)}"
    server.create_database(name, template="template")
    return name


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy.start(server) as running:
        yield running


def rows(server: Server, database: str) -> list[int]:
    with psycopg.connect(server.url(database)) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM kept ORDER BY number")]


def last_result(connection: Connection) -> psycopg.pq.abc.PGresult:
    """Of the query that was sent. libpq's own wait would keep the proxy's threads from running."""
    last = None
    while True:
        while connection.pgconn.is_busy():
            assert select.select([connection.fileno()], [], [], SECONDS_MAX)[0]
            connection.pgconn.consume_input()
        result = connection.pgconn.get_result()
        if result is None:
            assert last is not None
            return last
        last = result


def insert(connection: Connection, number: int, *, pipelined: bool = False) -> None:
    """In a transaction of its own, in one pipeline with its COMMIT or without any."""
    with connection.pipeline() if pipelined else nullcontext():
        connection.execute("INSERT INTO kept VALUES (%s)", [number])
        connection.commit()


def insert_in_vain(url: str, number: int = 1, *, pipelined: bool = False) -> None:
    """The client is told that its connection was lost, not what became of its transaction."""
    with closing(psycopg.connect(url)) as connection:
        with pytest.raises(psycopg.OperationalError):
            insert(connection, number, pipelined=pipelined)
        assert connection.broken


@pytest.mark.parametrize("pipelined", [False, True])
def test_what_is_not_at_fault_goes_through_unchanged(
    server: Server, proxy: Proxy, database: str, pipelined: bool
) -> None:
    with psycopg.connect(proxy.url(database)) as connection:
        insert(connection, 1, pipelined=pipelined)
        big = "x" * 3_000_000
        assert connection.execute("SELECT %s::text", [big]).fetchone() == (big,)
        with connection.cursor().copy("COPY kept FROM STDIN") as copy:
            for number in range(2, 2_000):
                copy.write_row([number])
        assert len(connection.execute("SELECT * FROM kept").fetchall()) == 1_999
    assert len(rows(server, database)) == 1_999
    wait_until(lambda: proxy.connections == 0)
    assert "COMMIT" in [message.text for message in proxy.seen if message.executes]


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_commit_that_is_cut_off_before_it_arrives_did_not_happen(
    server: Server, proxy: Proxy, database: str, pipelined: bool
) -> None:
    fault = proxy.cut_before(executing("COMMIT"))
    insert_in_vain(proxy.url(database), pipelined=pipelined)
    assert fault.wait().text == "COMMIT"
    assert rows(server, database) == []
    with psycopg.connect(proxy.url(database)) as connection:  # once only
        insert(connection, 2)
    assert rows(server, database) == [2]


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_commit_whose_answer_is_lost_has_happened(
    server: Server, proxy: Proxy, database: str, pipelined: bool
) -> None:
    fault = proxy.cut_after(executing("COMMIT"))
    insert_in_vain(proxy.url(database), pipelined=pipelined)
    fault.wait()
    assert "COMMIT" in [answer.text for answer in fault.answers if answer.kind == "CommandComplete"]
    assert fault.answers[-1].kind == "ReadyForQuery"
    assert rows(server, database) == [1]


def test_a_commit_whose_answer_is_cut_in_two_has_happened(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.cut_within(answering("COMMIT"))
    insert_in_vain(proxy.url(database))
    fault.wait()
    assert rows(server, database) == [1]


def test_a_commit_that_arrives_by_half_did_not_happen(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.cut_within(executing("COMMIT"))
    insert_in_vain(proxy.url(database))
    fault.wait()
    assert rows(server, database) == []


def test_the_answer_of_a_commit_that_failed_is_lost_too(server: Server, proxy: Proxy, database: str) -> None:
    with psycopg.connect(server.url(database)) as connection:
        connection.execute("CREATE TABLE late (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    fault = proxy.cut_after(executing("COMMIT"))
    with closing(psycopg.connect(proxy.url(database))) as connection:
        connection.execute("INSERT INTO late VALUES (1), (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    fault.wait()
    assert [answer.text[:5] for answer in fault.answers if answer.kind == "ErrorResponse"] == ["23505"]


def test_the_cut_comes_at_the_n_th_message_over_all_connections(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.cut_before(executing("INSERT"), nth=3)
    with psycopg.connect(proxy.url(database)) as first, psycopg.connect(proxy.url(database)) as second:
        insert(first, 1)
        insert(second, 2)
        assert not fault.happened
    insert_in_vain(proxy.url(database), 3)
    assert fault.wait().text.startswith("INSERT")
    assert rows(server, database) == [1, 2]


def test_of_two_faults_at_one_message_the_second_waits_for_the_next(
    server: Server, proxy: Proxy, database: str
) -> None:
    first, second = proxy.cut_after(executing("COMMIT")), proxy.cut_before(executing("COMMIT"))
    insert_in_vain(proxy.url(database), 1)
    first.wait()
    assert not second.happened
    insert_in_vain(proxy.url(database), 2)
    second.wait()
    assert rows(server, database) == [1]


def test_disarmed_faults_do_not_happen(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.cut_before(executing("COMMIT"))
    proxy.disarm()
    with psycopg.connect(proxy.url(database)) as connection:
        insert(connection, 1)
    assert rows(server, database) == [1]
    with pytest.raises(TimeoutError, match="no message came for cut_before"):
        fault.wait(0)


def test_a_connection_can_be_cut_while_it_is_being_made(proxy: Proxy) -> None:
    for fault in (proxy.cut_before(client_sends("Startup")), proxy.cut_before(server_sends("ReadyForQuery"))):
        with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
            psycopg.connect(proxy.url())
        fault.wait()
    psycopg.connect(proxy.url()).close()


def test_a_held_commit_happens_when_it_is_released(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.hold(executing("COMMIT"))
    with psycopg.connect(proxy.url(database)) as connection:
        client = threading.Thread(target=insert, args=[connection, 1])
        client.start()
        fault.wait()
        assert rows(server, database) == []
        assert client.is_alive()
        fault.release()
        client.join(SECONDS_MAX)
        assert rows(server, database) == [1]


def test_a_held_commit_still_arrives_after_its_client_has_gone(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.hold(executing("COMMIT"))
    with closing(psycopg.connect(proxy.url(database))) as connection:
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.pgconn.send_query(b"COMMIT")
        fault.wait()
    assert rows(server, database) == []
    fault.release()
    wait_until(lambda: rows(server, database) == [1])


def test_a_cut_ends_what_is_held(server: Server, proxy: Proxy, database: str) -> None:
    fault = proxy.hold(executing("COMMIT"))
    with closing(psycopg.connect(proxy.url(database))) as connection:
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.pgconn.send_query(b"COMMIT")
        fault.wait()
        proxy.cut()
        wait_until(lambda: proxy.connections == 0)
    assert rows(server, database) == []


@pytest.mark.parametrize("arm", [Proxy.cut_before, Proxy.cut_within])
def test_a_server_that_is_kept_hears_nothing_of_the_cut(
    server: Server, proxy: Proxy, database: str, arm: Callable[..., Fault]
) -> None:
    fault = arm(proxy, executing("COMMIT"), keep_server=True)
    insert_in_vain(proxy.url(database))
    fault.wait()
    with psycopg.connect(server.url(database), autocommit=True) as other:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state = 'idle in transaction'"
        assert other.execute(sessions, [database]).fetchone() == (1,)
        assert proxy.connections == 1
        other.execute("SET lock_timeout = '10ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("INSERT INTO kept VALUES (1)")
        proxy.cut()
        other.execute("SET lock_timeout = 0")
        other.execute("INSERT INTO kept VALUES (1)")
    wait_until(lambda: proxy.connections == 0)


def test_while_stalled_nothing_passes_and_afterwards_nothing_is_lost(
    server: Server, proxy: Proxy, database: str
) -> None:
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:
        proxy.stall()
        connection.pgconn.send_query(b"INSERT INTO kept VALUES (1)")
        assert not select.select([connection.fileno()], [], [], 0.2)[0]
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(proxy.url(database), connect_timeout=2)
        assert rows(server, database) == []
        proxy.flow()
        assert last_result(connection).command_status == b"INSERT 0 1"
    assert rows(server, database) == [1]


def test_refused_connections_are_refused_and_standing_ones_go_on(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url()) as standing:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="Connection refused"):
            psycopg.connect(proxy.url())
        assert standing.execute("SELECT 1").fetchone() == (1,)
        proxy.accept()
        psycopg.connect(proxy.url()).close()


@pytest.mark.parametrize("reset", [False, True])
def test_all_connections_are_closed_or_reset_at_once(proxy: Proxy, reset: bool) -> None:
    with (
        socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as one,
        socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as other,
    ):
        wait_until(lambda: proxy.connections == 2)
        proxy.cut(reset=reset)
        for client in (one, other):
            with pytest.raises(ConnectionResetError) if reset else nullcontext():
                assert client.recv(1) == b""
        wait_until(lambda: proxy.connections == 0)


def test_a_client_is_told_what_the_server_said_last(server: Server, proxy: Proxy) -> None:
    with closing(psycopg.connect(proxy.url())) as connection:
        with psycopg.connect(server.url(), autocommit=True) as operator:
            operator.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("SELECT 1")


def test_a_request_to_cancel_goes_through(proxy: Proxy) -> None:
    with closing(psycopg.connect(proxy.url(), autocommit=True)) as connection:
        connection.pgconn.send_query(b"SELECT pg_sleep(600)")
        # The server reads a query at some moment; a request that comes before that cancels nothing.
        while not select.select([connection.fileno()], [], [], 0.05)[0]:
            connection.cancel_safe(timeout=SECONDS_MAX)
        assert last_result(connection).error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014"
    assert "CancelRequest" in [message.kind for message in proxy.seen]


def test_a_stopped_proxy_leaves_no_connection_and_no_thread(server: Server) -> None:
    before = set(threading.enumerate())
    proxy = Proxy.start(server)
    fault = proxy.hold(executing("SELECT"))
    with closing(psycopg.connect(proxy.url())) as one, closing(psycopg.connect(proxy.url())) as other:
        one.pgconn.send_query(b"SELECT 1")
        fault.wait()
        proxy.stop()
        assert set(threading.enumerate()) <= before
        for connection in (one, other):
            with pytest.raises(psycopg.OperationalError):
                connection.pgconn.consume_input()
    proxy.stop()


def test_messages_are_the_same_wherever_the_stream_is_cut(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url()) as connection, connection.pipeline():
        connection.execute("SELECT 1", prepare=True)
        connection.execute("SELECT 1", prepare=True)
    wait_until(lambda: proxy.connections == 0)
    for side, reader in (("client", ClientReader), ("server", ServerReader)):
        sent = [message for message in proxy.seen if message.side == side]
        stream = b"".join(message.data for message in sent)
        for size in (1, 7, len(stream)):
            read, found = reader(), list[Message]()
            for start in range(0, len(stream), size):
                found += read.read(stream[start : start + size])
            assert found == sent
    # A statement that was prepared under a name is recognised when it is executed a second time, too.
    assert [message.text for message in proxy.seen if message.kind == "Parse"].count("SELECT 1") == 1
    assert [message.text for message in proxy.seen if message.kind == "Execute"].count("SELECT 1") == 2
