"""lab.postgres: PgBouncer before a server."""

from collections.abc import Iterator

import psycopg
import pytest

from arriero.testing.postgres import NotInstalled, ProgramFailed, Server
from lab.postgres import PgBouncer, bouncer

needs_pgbouncer = pytest.mark.skipif(
    not PgBouncer.installed(), reason="PgBouncer is not installed; run: apt-get install pgbouncer"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start(durable=False) as running:
        yield running


@needs_pgbouncer
def test_in_transaction_mode_clients_share_one_connection_of_the_server(server: Server) -> None:
    url = server.create_database("pooled")
    with PgBouncer.start(server, settings={"default_pool_size": "1"}) as pooler:
        # None: what a client prepares would stay with a connection that is the next client's.
        with (
            psycopg.connect(pooler.url("pooled"), prepare_threshold=None) as first,
            psycopg.connect(pooler.url("pooled"), prepare_threshold=None) as second,
        ):
            pids = set()
            for connection in (first, second, first):
                pids.add(connection.execute("SELECT pg_backend_pid() WHERE %s > 0", [1]).fetchone())
                connection.commit()
            assert len(pids) == 1
        assert url != pooler.url("pooled")
        processes = pooler.processes()
    assert len(processes) == 1
    assert pooler.processes() == []
    assert not pooler.folder.exists()


@needs_pgbouncer
def test_in_session_mode_each_client_has_its_own(server: Server) -> None:
    with (
        PgBouncer.start(server, "session") as pooler,
        psycopg.connect(pooler.url()) as first,
        psycopg.connect(pooler.url()) as second,
    ):
        pids = {one.execute("SELECT pg_backend_pid()").fetchone() for one in (first, second)}
        assert len(pids) == 2


@needs_pgbouncer
def test_a_pooler_wants_the_server_s_password(server: Server) -> None:
    with PgBouncer.start(server) as pooler:
        assert (pooler.folder / "users").stat().st_mode & 0o777 == 0o600
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(pooler.url().replace(f":{server.password}@", "@"))


@needs_pgbouncer
def test_a_pooler_that_does_not_start_says_why(server: Server) -> None:
    with pytest.raises(ProgramFailed, match="unknown parameter"):
        PgBouncer.start(server, settings={"pool_mod": "transaction"})


def test_without_its_program_the_remedy_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bouncer, "SYSTEM_PROGRAMS", ())
    monkeypatch.setenv("PATH", "")
    assert not PgBouncer.installed()
    with pytest.raises(NotInstalled, match="apt-get install pgbouncer"):
        PgBouncer.start(server)
