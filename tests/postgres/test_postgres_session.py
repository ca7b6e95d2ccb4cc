"""What is known of a transaction after an error, and what a connection is good for afterwards."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from postgres_servers import database, emptied

from arriero.errors import StoreError
from arriero.runtime.settings import Settings
from arriero.store.postgres import connect_pauses
from arriero.store.postgres import session as session_module
from arriero.store.postgres.connect_pauses import CONNECT_SECONDS, CONNECT_SECONDS_MAX
from arriero.store.postgres.inspection import server_facts
from arriero.store.postgres.lanes import ENGINE, OTHERS, RENEWALS, Pages
from arriero.store.postgres.session import (
    PostgresSession,
    Statements,
    Transaction,
    TransactionLimits,
    Undecided,
)
from arriero.store.postgres.target import target_of
from arriero.testing.postgres import Server

LIMITS = TransactionLimits(lock=1.0, statement=10.0, idle=0.2)
TERMINATIONS = 5
TRIES_MAX = 50  # a commit takes a tenth of a second: a busy machine may not look in that time


@pytest.fixture
def url() -> str:
    return emptied(database())


@pytest.fixture
def stranger(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS public.kept")
        connection.execute("CREATE TABLE public.kept (number bigint)")
        yield connection
        connection.execute("DROP TABLE public.kept")


def session_of(url: str) -> PostgresSession:
    target = target_of(url)
    return PostgresSession(target, Statements(target.schema), limits=LIMITS)


@pytest.fixture
def session(url: str, stranger: psycopg.Connection[Any]) -> Iterator[PostgresSession]:
    session = session_of(url)
    yield session
    session.close()


def count(connection: psycopg.Connection[Any]) -> int:
    (found,) = connection.execute("SELECT count(*) FROM public.kept").fetchone() or (None,)
    assert isinstance(found, int)
    return found


def insert(transaction: Transaction) -> str:
    transaction.plain("INSERT INTO public.kept VALUES (1)")
    return "answer"


def test_a_server_that_hangs_up_while_it_commits_leaves_nothing_rolled_back_that_is_kept() -> None:
    with Server.start(16, durable=True) as server:
        url = server.create_database("hung_up")
        with psycopg.connect(url, autocommit=True) as stranger:
            stranger.execute("CREATE TABLE public.kept (number bigint)")
            terminated = 0
            for _ in range(TRIES_MAX):
                terminated += _terminate_in_commit(url, stranger)
                if terminated == TERMINATIONS:
                    return
            raise AssertionError(f"only {terminated} of {TRIES_MAX} transactions were ended while they committed")


def _terminate_in_commit(url: str, stranger: psycopg.Connection[Any]) -> bool:
    """End the back end of a transaction while it commits. Returns False if the commit was over before it was seen."""
    session, before = session_of(url), count(stranger)
    is_over = threading.Event()
    seen: list[bool] = []
    pid = session.get_connection().info.backend_pid

    def work(transaction: Transaction) -> None:
        transaction.plain("SET LOCAL commit_delay = 100000")  # a tenth of a second
        transaction.plain("SET LOCAL commit_siblings = 0")
        insert(transaction)

    def terminate() -> None:
        committing = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND query = 'COMMIT' AND state = 'active'"
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute(committing, (pid,)).fetchone() is None:
                if is_over.is_set():
                    return
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
            seen.append(True)

    thread = threading.Thread(target=terminate)
    thread.start()
    try:
        session.transact(work)
        is_unknown = False
    except Undecided:
        is_unknown = True
    finally:
        is_over.set()
        thread.join()
        session.close()
    assert count(stranger) == before + 1 or (is_unknown and count(stranger) == before)
    return bool(seen)


@pytest.mark.parametrize(("chance", "shortest"), [(0.0, 0.025), (1.0, 0.05)])
def test_a_session_whose_server_is_away_doubles_its_pauses_up_to_a_second(
    monkeypatch: pytest.MonkeyPatch, chance: float, shortest: float
) -> None:
    tick, now, tries = 0.0125, 0.0, list[float]()

    def refuse(*_: Any, **__: Any) -> Any:
        tries.append(now)
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(session_module.psycopg, "connect", refuse)
    monkeypatch.setattr(connect_pauses, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(
        connect_pauses, "random", SimpleNamespace(uniform=lambda low, high: low + (high - low) * chance)
    )
    session = session_of("postgresql://nobody@127.0.0.1/shop")
    while len(tries) < 9:
        with pytest.raises(StoreError, match="connection refused"):
            session.get_connection()
        now += tick
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    longest = shortest / CONNECT_SECONDS * CONNECT_SECONDS_MAX
    assert pauses == pytest.approx([min(shortest * 2**number, longest) for number in range(8)], abs=tick)


def test_a_connection_that_ended_while_nobody_used_it_costs_nothing(
    session: PostgresSession, stranger: psycopg.Connection[Any]
) -> None:
    def work(transaction: Transaction) -> str:
        answer = insert(transaction)
        transaction.arrive()
        return answer

    session.transact(lambda transaction: transaction.plain("SELECT 1").fetchone())
    stranger.execute("SELECT pg_terminate_backend(%s, 10000)", (session.get_connection().info.backend_pid,))
    assert session.transact(work) == "answer"
    assert count(stranger) == 1


def test_an_error_at_commit_means_rolled_back_and_the_connection_stays(
    session: PostgresSession, stranger: psycopg.Connection[Any]
) -> None:
    stranger.execute("ALTER TABLE public.kept ADD UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    session.transact(insert)
    pid = session.get_connection().info.backend_pid
    with pytest.raises(StoreError, match="duplicate key"):
        session.transact(insert)
    assert count(stranger) == 1
    assert session.get_connection().info.backend_pid == pid


@pytest.mark.parametrize(
    "spoil",
    ["DISCARD ALL", "ALTER TABLE public.kept ALTER COLUMN number TYPE text"],
    ids=["its prepared statements are gone", "a table has changed"],
)
def test_a_prepared_statement_that_went_bad_is_prepared_anew(
    session: PostgresSession, stranger: psycopg.Connection[Any], spoil: str
) -> None:
    def look() -> object:
        return session.transact(lambda transaction: transaction.plain("SELECT number FROM public.kept").fetchall())

    assert look() == []
    (session.get_connection() if spoil == "DISCARD ALL" else stranger).execute(spoil.encode())
    assert look() == []


def test_who_reads_a_history_page_by_page_may_take_its_time(
    session: PostgresSession, stranger: psycopg.Connection[Any]
) -> None:
    pages = Pages(session, Statements("arriero"), None, 0)
    pages.next()
    idle = session.get_connection().execute("SELECT current_setting('idle_in_transaction_session_timeout')").fetchone()
    assert idle == ("0",)
    pages.end()


def test_the_doctor_is_told_what_the_server_is_set_to_not_what_arriero_makes_of_it(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
        try:
            assert server_facts(url).synchronous_commit == "off"
        finally:
            connection.execute(f"ALTER DATABASE {name} RESET synchronous_commit".encode())


def test_a_connection_s_answers_do_not_stay_in_memory(
    session: PostgresSession, stranger: psycopg.Connection[Any]
) -> None:
    session.transact(lambda transaction: transaction.plain("SELECT repeat('x', 1000000)").fetchall())
    assert session._pipeline is not None
    assert session._pipeline._transformer.pgresult is None


def test_no_more_statements_are_prepared_than_the_server_should_keep(
    session: PostgresSession, stranger: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.store.postgres.pipeline.PREPARED_MAX", 5)
    for number in range(10):
        found = session.transact(lambda transaction, n=number: transaction.plain(f"SELECT {n}").fetchone())  # type: ignore[misc]
        assert found == (number,)
    kept = session.get_connection().execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert kept == (5,)


def test_a_leader_that_freezes_in_a_transaction_keeps_its_lease_locked_for_less_than_the_lease() -> None:
    settings = Settings()
    assert max(OTHERS.idle, ENGINE.idle) < settings.leader_seconds
    assert RENEWALS.idle < settings.leader_seconds
