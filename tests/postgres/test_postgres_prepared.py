"""Statements are prepared where that is safe: on a connection of one's own to the server, not through a pooler."""

import psycopg
import pytest
from postgres_servers import database, emptied, pooled

from arriero.errors import StoreError
from arriero.store.postgres.session import PostgresSession, Statements, TransactionLimits
from arriero.store.postgres.target import target_of

LIMITS = TransactionLimits(lock=1.0, statement=5.0)
COUNT = "SELECT count(*) FROM pg_prepared_statements"


def _prepared(url: str) -> int:
    target = target_of(url)
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)
    try:
        for _ in range(3):
            session.transact(lambda transaction: transaction.ask("select_now", {"given": None}).fetchone())
        row = session.get_connection().execute(COUNT).fetchone()
        assert row is not None
        return int(row[0])
    finally:
        session.close()


@pytest.fixture
def url() -> str:
    return emptied(database())


def test_statements_are_prepared_on_a_connection_to_the_server(url: str) -> None:
    assert _prepared(url) > 0


def test_none_is_prepared_where_the_url_says_so(url: str) -> None:
    assert _prepared(f"{url}?prepare=off") == 0


def test_a_pooler_in_between_is_noticed_and_nothing_is_prepared(url: str) -> None:
    assert _prepared(pooled(url)) == 0


def test_a_prepared_statement_survives_a_schema_that_another_release_extends(url: str) -> None:
    target = target_of(url)
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)

    def look() -> object:
        return session.transact(lambda transaction: transaction.ask("select_existing", {"task_nos": [1]}).fetchone())

    look()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE arriero.task ADD COLUMN of_a_later_release text")
        try:
            look()
        finally:
            connection.execute("ALTER TABLE arriero.task DROP COLUMN of_a_later_release")
    look()
    session.close()


SHOWN = "SELECT current_setting('lock_timeout'), current_setting('search_path')"
OURS = ("1s", "pg_catalog, pg_temp")


def _settings(url: str) -> tuple[object, object]:
    """Inside a transaction of ours, and after it."""
    target = target_of(url)
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)
    try:
        inside = session.transact(lambda transaction: transaction.plain(SHOWN).fetchone())
        return inside, session.get_connection().execute(SHOWN).fetchone()
    finally:
        session.close()


def test_a_connection_to_the_server_has_its_settings_for_good(url: str) -> None:
    assert _settings(url) == (OURS, OURS)


def test_settings_do_not_stay_with_a_pooler_s_connection(url: str) -> None:
    inside, after = _settings(pooled(url))
    assert inside == OURS
    assert after != OURS


def test_settings_outlive_a_transaction_that_failed(url: str) -> None:
    target = target_of(url)
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)
    with pytest.raises(StoreError):
        session.transact(lambda transaction: transaction.plain("SELECT 1 / 0 FROM nothing_of_the_kind").fetchone())
    assert session.transact(lambda transaction: transaction.plain(SHOWN).fetchone()) == OURS
    session.close()
