"""What a task costs its store: rows and commits, counted, so that nobody adds one without seeing it."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import arriero.store.sqlite.store as sqlite_store
from arriero import Agent, App, Attempt, workflow
from bench.counting import CountingConnection

OURS = re.compile(
    r"(INSERT|UPDATE|DELETE)( INTO| FROM|) arriero_(task|step|body|history|status|alert|convoy_tail|convoy)\b"
)

clerk = Agent("clerk", max_in_flight=100)  # with less room a step is taken from the store later, by one more link


@clerk.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def three(text: str) -> str:
    await echo(text)
    await echo(text)
    return await echo(text)


@workflow
async def one(text: str) -> str:
    return await echo(text)


class Written:
    """Rows that the store wrote, by statement and table, and the commits that held any of them."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.commits = 0
        self._open = False

    def note(self, statement: str, rows: int) -> None:
        if found := OURS.search(statement):
            self.rows[f"{found[1].lower()} {found[3]}"] += rows
            self._open = True
        elif statement == "COMMIT":
            self.commits += self._open
            self._open = False

    def since(self, before: "Written") -> tuple[dict[str, int], int]:
        return dict(self.rows - before.rows), self.commits - before.commits

    def copied(self) -> "Written":
        copy = Written()
        copy.rows, copy.commits = self.rows.copy(), self.commits
        return copy


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Of every connection to a file that the store opens from now on."""
    written, connect = Written(), sqlite_store.connect

    def counting(*args: Any, **options: Any) -> CountingConnection:
        return CountingConnection(connect(*args, **options), written.note)

    monkeypatch.setattr(sqlite_store, "connect", counting)
    return written


@pytest.fixture
def app() -> App:
    return App("costs", agents=[clerk], workflows=[three, one])


async def test_a_task_of_three_steps_is_written_in_four_commits_of_one_link_each(
    app: App, tmp_path: Path, written: Written
) -> None:
    async with app.running(store=f"sqlite:///{tmp_path}/store.db"):
        await (await app.submit(three("first"))).result()
        before = written.copied()
        task = await app.submit(three("second"))
        await task.result()
        rows, commits = written.since(before)
    # Submitted with the first request, twice a result with the next request, last result with the end.
    assert commits == 4
    assert rows == {
        "insert task": 1,
        "insert body": 1,
        "update task": 3,
        "insert step": 3,
        "update step": 3,
        "insert history": 4,
    }


async def test_a_task_that_is_claimed_costs_two_commits_more(app: App, tmp_path: Path, written: Written) -> None:
    async with app.running(store=f"sqlite:///{tmp_path}/store.db"):
        await (await app.submit(three("first"))).result()
        before = written.copied()
        task = await app.submit(three("second"), delay=0.001)
        await task.result()
        rows, commits = written.since(before)
    # Submitted, claimed, first request, and on as above.
    assert commits == rows["insert history"] == 6
    assert rows["update task"] == 5


async def test_a_message_of_a_busy_key_is_written_in_two_commits_and_one_more_of_its_step(
    app: App, tmp_path: Path, written: Written
) -> None:
    async with app.running(store=f"sqlite:///{tmp_path}/store.db"):
        tasks = [await app.submit(one(f"warm {number}"), convoy="key") for number in range(3)]
        for task in tasks:
            await task.result()
        before = written.copied()
        tasks = [await app.submit(one(f"{number}"), convoy="key") for number in range(100)]
        for task in tasks:
            await task.result()
        rows, commits = written.since(before)
    assert rows["insert task"] == rows["insert body"] == rows["insert step"] == rows["update step"] == 100
    assert (
        commits <= 210
    )  # each its submission and its end, with which the next one begins; a turn may be handed on late
    assert rows["update task"] <= 220
    assert rows["insert history"] <= 330


async def test_tasks_at_once_share_their_commits(app: App, tmp_path: Path, written: Written) -> None:
    async with app.running(store=f"sqlite:///{tmp_path}/store.db"):
        await (await app.submit(three("first"))).result()
        before = written.copied()
        tasks = await asyncio.gather(*(app.submit(three(f"{number}")) for number in range(100)))
        await asyncio.gather(*(task.result() for task in tasks))
        rows, commits = written.since(before)
    assert rows["insert history"] == 400
    assert commits < 100
