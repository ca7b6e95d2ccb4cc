"""Tags on PostgreSQL: by SQL, in the caller's transaction, refused as in Python, and found by the index."""

import json
from typing import Any

import psycopg
import pytest
from postgres_servers import database, emptied
from store_checks import disagreements, history_violations
from store_world import submission

from arriero import Agent, App, InvalidInput, workflow
from arriero.model.tags import check_tags, encode_tags
from arriero.store.postgres.store import PostgresStore
from arriero.store.task_filter import TaskFilter

agent = Agent("agent", breaker=None)
ACCEPTED: list[dict[str, str]] = [
    {"tenant": "acme", "b": "2"},
    {"tenant": "<b>&\"'\\ größe ✓ a=b"},
    {"a/b.c": "x" * 256},
    {f"t{number:02}": "x" for number in range(20)},
    {},
]
REFUSED: list[Any] = [
    {"tenant": ["x"] * 1_000},
    {"tenant": "x" * 10_240},
    {"tenant": "x" * 257},
    {"tenant": ""},
    {"tenant": None},
    {"tenant": 7},
    {"tenant": "a\nb"},
    {"tenant": "a\u0085b"},
    {"": "x"},
    {"old-": "x"},
    {"a b": "x"},
    {"größe": "x"},
    {"a" * 65: "x"},
    {f"t{number}": "x" for number in range(21)},
    ["tenant"],
]


@workflow
async def wait_long() -> None: ...


def _ask(url: str, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(sql.encode(), parameters)
        return done.fetchall() if done.description else []


@pytest.fixture
def url() -> str:
    return emptied(database(kind="joined"))


@pytest.mark.parametrize("tags", ACCEPTED, ids=[str(number) for number in range(len(ACCEPTED))])
def test_sql_records_tags_as_python_does(url: str, tags: dict[str, str]) -> None:
    wanted = encode_tags(check_tags(tags))
    ((found, refusal),) = _ask(url, "SELECT tags, refusal FROM arriero.judged_tags(%s)", json.dumps(tags))
    assert (found, refusal) == (wanted, None)


@pytest.mark.parametrize("tags", REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_sql_refuses_what_python_refuses_and_names_the_limit(url: str, tags: Any) -> None:
    with pytest.raises(InvalidInput):
        check_tags(tags)
    ((found, refusal, hint),) = _ask(url, "SELECT * FROM arriero.judged_tags(%s)", json.dumps(tags))
    assert found is None
    assert refusal
    assert len(refusal) < 300
    assert hint


async def test_a_task_is_tagged_by_sql_and_in_the_callers_transaction(url: str) -> None:
    app = App("shop", agents=[agent], workflows=[wait_long], store=url)
    async with app.running():
        pass
    submit = "SELECT arriero.submit('wait_long', '{}', task_id => %s, delay_seconds => 60, tags => %s)"
    async with app:
        _ask(url, submit, "sql", '{"tenant": "acme", "b": "2"}')
        _ask(url, submit, "sql", '{"tenant": "other"}')  # the same task: the first tags count
        with psycopg.connect(url) as connection:
            await app.submit(wait_long(), task_id="joined", delay=60, tags={"tenant": "acme"}, connection=connection)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="tag 'tenant' has the value") as refused:
            _ask(url, submit, "bad", '{"tenant": ["a", "b"]}')
        assert "1 to 256 characters" in (refused.value.diag.message_hint or "")
        assert sorted([view.id async for view in app.tasks(tags={"tenant": "acme"})]) == ["joined", "sql"]
        assert (await app.task("sql").view()).tags == {"b": "2", "tenant": "acme"}
    store = PostgresStore(url)
    await store.open()
    assert (await history_violations(store), await disagreements(store)) == ([], [])
    await store.close()


async def test_the_index_follows_whoever_writes_the_row_and_a_page_reads_only_its_tasks(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    for first in range(0, 2_000, 400):
        tags = [encode_tags({"tenant": "acme"} if number % 100 == 0 else {"tenant": "big"}) for number in range(400)]
        await store.submit([submission(f"t{first + number}", tags=one) for number, one in enumerate(tags)])
    _ask(url, "ANALYZE arriero.task, arriero.task_tag")
    found = await store.list_tasks(TaskFilter(tags={"tenant": "acme"}), limit=5)
    assert [task.task_id for task in found] == ["t0", "t100", "t200", "t300", "t400"]
    with psycopg.connect(url) as connection:  # by hand, which nobody should; the index still says the same as the row
        connection.execute("UPDATE arriero.task SET tags = NULL WHERE task_id = 't0'")
        assert connection.execute("SELECT count(*) FROM arriero.task_tag WHERE value = 'acme'").fetchone() == (19,)
        connection.rollback()
    await store.close()
