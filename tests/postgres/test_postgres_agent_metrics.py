"""Counts of calls where several processes write and fold at once, and on a schema that was brought up to date."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from agent_counts import sum_up
from postgres_servers import database, emptied, server, worker
from store_world import LEASE, TestClock

from arriero.core.agent_metrics import AgentCounts, encode_counts, find_minute
from arriero.inspection.facts import CountsRow
from arriero.store import schema_of
from arriero.store.postgres import migrating
from arriero.store.postgres.store import PostgresStore


@pytest.fixture
async def stores() -> AsyncIterator[list[PostgresStore]]:
    """Three processes at one database, on one clock."""
    url, clock = emptied(database()), TestClock()
    opened = [PostgresStore(url, clock=clock) for _ in range(3)]
    for store in opened:
        await store.open()
    yield opened
    for store in opened:
        await store.close()


def _row(store: PostgresStore, process_no: int, calls: int, minutes_ago: int = 0) -> CountsRow:
    counts = AgentCounts(outcomes={"succeeded": calls}, buckets={10: calls})
    minute = find_minute(store.now()) - minutes_ago
    text = encode_counts({"bank": counts})
    return CountsRow(app="shop", process_no=process_no, minute=minute, calls=calls, counts=text)


async def test_processes_that_fold_at_once_count_nothing_twice_and_lose_nothing(stores: list[PostgresStore]) -> None:
    numbers = [await store.register(f"process-{at}", LEASE) for at, store in enumerate(stores)]
    clock = stores[0]._clock
    assert isinstance(clock, TestClock)
    written = 0
    for turn in range(1, 6):
        for store, number in zip(stores, numbers, strict=True):
            await store.put_agent_counts([_row(store, number, turn, minutes_ago) for minutes_ago in range(20)])
            written += 20 * turn
        clock.move(90 * 60)
        folded = await asyncio.gather(*(store.fold_agent_counts() for store in stores))
        assert sum(folded) == 60
        found = await stores[0].measure_agents()
        assert [row.process_no for row in found.counts] == [0]
        assert sum_up(found.counts, found.now)["shop", "bank"].total.calls == written


def test_roles_of_the_release_before_write_and_read_metrics_once_the_schema_is_brought_up_to_date() -> None:
    running, name = server(), f"rights_metrics_{worker()}"
    rights = {f"metrics_read_{worker()}": "SELECT", f"metrics_run_{worker()}": "SELECT, INSERT"}
    running.drop_database(name)
    owner = running.create_database(name)
    known = migrating.known_migrations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "known_migrations", lambda: known()[:2])
        schema_of(owner).migrate()
    asked = "SELECT has_table_privilege(%s, 'arriero.agent_metrics', %s)"
    with psycopg.connect(owner, autocommit=True) as connection:
        for role, granted in rights.items():
            running.create_role(role)
            connection.execute(f"GRANT {granted} ON arriero.task TO {role}".encode())
        schema_of(owner).migrate()
        for role, granted in rights.items():
            found = {
                right for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
                if connection.execute(asked.encode(), (role, right)).fetchone() == (True,)
            }  # fmt: skip
            assert found == ({"SELECT"} if granted == "SELECT" else {"SELECT", "INSERT", "UPDATE", "DELETE"})
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        for role in rights:
            connection.execute(f"DROP ROLE {role}".encode())
