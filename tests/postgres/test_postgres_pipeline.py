"""Statements that travel together: their values and answers, their errors, and what is left of them afterwards."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_servers import database, emptied
from psycopg.errors import AdminShutdown, InFailedSqlTransaction, LockNotAvailable, UniqueViolation

from arriero.store.postgres.pipeline import Pipeline, parse_statement
from arriero.store.postgres.session import hang_up
from arriero.store.postgres.target import target_of

LARGE = "x" * 30_000_000  # more than any buffer between client and server holds
NAMED = "SELECT %(number)s::bigint, %(text)s::text, %(number)s::bigint + 1"


@pytest.fixture(params=[True, False], ids=["prepared", "not prepared"])
def prepares(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def url() -> str:
    return emptied(database())


@pytest.fixture
def stranger(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(target_of(url).conninfo, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS public.kept")
        connection.execute("CREATE TABLE public.kept (number bigint PRIMARY KEY)")
        yield connection
        connection.execute("DROP TABLE public.kept")


@pytest.fixture
def connection(url: str, stranger: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(target_of(url).conninfo, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture
def pipeline(connection: psycopg.Connection[Any], prepares: bool) -> Pipeline:
    made = Pipeline(connection, prepares=prepares)
    made.enter()
    return made


def numbers_kept(stranger: psycopg.Connection[Any]) -> list[int]:
    return [number for (number,) in stranger.execute("SELECT number FROM public.kept ORDER BY number").fetchall()]


def insert(pipeline: Pipeline, number: object) -> None:
    pipeline.ask("INSERT INTO public.kept VALUES (%(number)s::bigint)", {"number": number})


def test_a_parameter_that_is_named_twice_has_one_number() -> None:
    statement = parse_statement(NAMED)
    assert statement.sql == b"SELECT $1::bigint, $2::text, $1::bigint + 1"
    assert statement.names == ("number", "text")


def test_answers_are_read_in_any_order(pipeline: Pipeline) -> None:
    first = pipeline.ask(NAMED, {"number": 1, "text": "a"})
    second = pipeline.ask("SELECT generate_series(1, 3)")
    none = pipeline.ask("SELECT 1 WHERE false")
    assert second.fetchall() == [(1,), (2,), (3,)]
    assert first.fetchone() == (1, "a", 2)
    assert none.fetchone() is None
    assert none.fetchall() == []


def test_values_of_every_kind_come_back_as_they_were_sent(pipeline: Pipeline) -> None:
    values: dict[str, object] = {
        "bigint": 2**63 - 1,
        "smallint": 7,
        "text": "ein Maultier, \u9a74, '\\\" %s $1",
        "boolean": True,
        "bigint[]": [1, 2**40, None],
        "text[]": ['a"b', "", "NULL", "{}"],
        "double precision": 0.1,
        "integer": None,
    }
    for kind, value in values.items():
        assert pipeline.ask(f"SELECT %(value)s::{kind}", {"value": value}).fetchone() == (value,)


def test_who_asks_twice_for_other_kinds_of_values_is_answered_each_time(pipeline: Pipeline) -> None:
    asked = [pipeline.ask("SELECT %(value)s::text", {"value": value}) for value in (1, 2**40, "text", None, 1)]
    assert [answer.fetchone() for answer in asked] == [("1",), (str(2**40),), ("text",), (None,), ("1",)]


def test_it_is_known_how_many_rows_were_written_and_what_was_done(pipeline: Pipeline) -> None:
    written = pipeline.ask("INSERT INTO public.kept SELECT generate_series(1, 5)")
    assert (written.rowcount, written.statusmessage) == (5, "INSERT 0 5")


def test_the_first_error_is_told_and_nothing_after_it_is_done(
    pipeline: Pipeline, stranger: psycopg.Connection[Any]
) -> None:
    pipeline.ask("BEGIN")
    insert(pipeline, 1)
    insert(pipeline, 1)
    insert(pipeline, 2)
    pipeline.ask("SELECT 1 / 0")
    with pytest.raises(UniqueViolation):
        pipeline.arrive()
    with pytest.raises(InFailedSqlTransaction):
        pipeline.ask("SELECT 1").fetchone()
    pipeline.give_up()
    assert numbers_kept(stranger) == []


@pytest.mark.parametrize("arrives", [True, False], ids=["an error that was read", "an error that nobody has read"])
def test_after_an_error_the_connection_serves_the_next_transaction(
    pipeline: Pipeline, stranger: psycopg.Connection[Any], arrives: bool
) -> None:
    pipeline.ask("BEGIN")
    pipeline.ask("SELECT nothing_of_the_kind")
    insert(pipeline, 1)  # if it is to be prepared, it was not
    if arrives:
        with pytest.raises(psycopg.ProgrammingError):
            pipeline.arrive()
    pipeline.give_up()
    pipeline.enter()
    pipeline.ask("BEGIN")
    insert(pipeline, 2)
    pipeline.ask("COMMIT")
    pipeline.arrive()
    pipeline.leave()
    assert numbers_kept(stranger) == [2]


def test_given_up_without_an_error_is_rolled_back(pipeline: Pipeline, stranger: psycopg.Connection[Any]) -> None:
    pipeline.ask("BEGIN")
    insert(pipeline, 1)
    pipeline.give_up()
    assert numbers_kept(stranger) == []
    pipeline.enter()
    insert(pipeline, 2)
    pipeline.arrive()
    assert numbers_kept(stranger) == [2]


def test_a_value_that_no_text_can_hold_is_refused_and_nothing_of_it_is_sent(
    pipeline: Pipeline, stranger: psycopg.Connection[Any]
) -> None:
    pipeline.ask("BEGIN")
    with pytest.raises(psycopg.DataError):
        pipeline.ask("SELECT %(value)s::text", {"value": "before\0after"})
    with pytest.raises(UnicodeError):
        pipeline.ask("SELECT %(value)s::text", {"value": "\ud800"})
    insert(pipeline, 1)
    pipeline.ask("COMMIT")
    pipeline.arrive()
    assert numbers_kept(stranger) == [1]


def test_a_large_statement_passes_a_large_answer(pipeline: Pipeline) -> None:
    asked = [pipeline.ask("SELECT %(value)s::text", {"value": LARGE}) for _ in range(3)]
    assert [answer.fetchone() for answer in asked] == [(LARGE,)] * 3


def test_the_server_s_last_words_are_told(
    pipeline: Pipeline, connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]
) -> None:
    with pytest.raises(AdminShutdown):
        pipeline.ask("SELECT pg_terminate_backend(pg_backend_pid())").fetchone()
    assert connection.closed


def test_a_connection_that_ended_before_is_told_of(
    pipeline: Pipeline, connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]
) -> None:
    stranger.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        pipeline.ask("SELECT 1").fetchone()
    with pytest.raises(psycopg.OperationalError):
        pipeline.give_up()
    assert connection.closed


def test_a_wait_ends_when_another_thread_hangs_up(
    pipeline: Pipeline, connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]
) -> None:

    stranger.execute("BEGIN")
    stranger.execute("LOCK TABLE public.kept")
    pipeline.ask("BEGIN")
    insert(pipeline, 1)
    waiting = threading.Thread(target=_hang_up_when_it_waits, args=(stranger, connection))
    waiting.start()
    with pytest.raises(psycopg.OperationalError):
        pipeline.arrive()
    waiting.join()
    stranger.execute("ROLLBACK")
    assert numbers_kept(stranger) == []


def _hang_up_when_it_waits(stranger: psycopg.Connection[Any], connection: psycopg.Connection[Any]) -> None:
    waits = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
    while stranger.execute(waits, (connection.info.backend_pid,)).fetchone() is None:
        pass
    hang_up(connection)


def test_a_statement_that_cannot_be_planned_now_can_be_prepared_later(
    connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]
) -> None:
    pipeline = Pipeline(connection, prepares=True)
    pipeline.enter()
    for _ in range(2):
        with pytest.raises(psycopg.ProgrammingError):
            pipeline.ask("SELECT number FROM public.later").fetchall()
    stranger.execute("CREATE TABLE public.later AS SELECT 1::bigint AS number")
    try:
        assert pipeline.ask("SELECT number FROM public.later").fetchall() == [(1,)]
    finally:
        stranger.execute("DROP TABLE public.later")


def test_a_statement_is_prepared_once(connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]) -> None:
    pipeline = Pipeline(connection, prepares=True)
    for turn in range(3):
        pipeline.enter()
        insert(pipeline, turn)
        pipeline.arrive()
        pipeline.leave()
    count = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT %'"
    assert connection.execute(count).fetchone() == (1,)


def test_what_others_told_this_connection_is_not_kept(
    pipeline: Pipeline, connection: psycopg.Connection[Any], stranger: psycopg.Connection[Any]
) -> None:
    pipeline.ask("LISTEN somebody")
    pipeline.arrive()
    stranger.execute("NOTIFY somebody")
    pipeline.ask("SELECT 1").fetchone()
    pipeline.leave()
    assert connection.pgconn.notifies() is None


def test_a_row_that_is_locked_by_somebody_is_told_of_after_the_limit(
    pipeline: Pipeline, stranger: psycopg.Connection[Any]
) -> None:
    stranger.execute("INSERT INTO public.kept VALUES (1)")
    stranger.execute("BEGIN")
    stranger.execute("SELECT 1 FROM public.kept FOR UPDATE")
    pipeline.ask("BEGIN")
    pipeline.ask("SET LOCAL lock_timeout = 1")
    with pytest.raises(LockNotAvailable):
        pipeline.ask("SELECT 1 FROM public.kept FOR UPDATE").fetchone()
    pipeline.give_up()
    stranger.execute("ROLLBACK")
