"""Two Apps with Agents, steps and workflows of the same names on one store: each runs what is its own."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_checks import disagreements, history_violations

from arriero import Agent, App, Attempt, Entry, InvalidInput, Permanent, TaskCompensated, Undo, workflow
from arriero.client.app_assignment import Assignment, assign
from arriero.errors import AppCollision
from arriero.store.sqlite.store import SqliteStore

PATIENCE = 60.0


def made(name: str, seen: list[str], store: str) -> App:
    """An App whose steps say whose they are."""
    payments = Agent("payments")

    @payments.step
    async def charge(attempt: Attempt, order: str) -> str:
        seen.append(f"{name} charges {order}")
        return f"{name}: {order}"

    @charge.compensation
    async def refund(undo: Undo[str], order: str) -> None:
        seen.append(f"{name} refunds {order}")

    @payments.step
    async def refuse(attempt: Attempt) -> None:
        raise Permanent("no", code="no")

    @workflow
    async def fulfil(order: str, fails: bool = False) -> str:
        charged = await charge(order)
        if fails:
            await refuse()
        return charged

    return App(name, agents=[payments], workflows=[fulfil], store=store)


async def sound(url: str) -> None:
    store = SqliteStore(url.removeprefix("sqlite:///"))
    await store.open()
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    await store.close()


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return f"sqlite:///{tmp_path}/arriero.db"


async def test_each_app_runs_its_own_tasks_and_undoes_them_also_in_one_convoy(url: str) -> None:
    seen: list[str] = []
    apps = [made(name, seen, url) for name in ("shop", "travel")]
    async with apps[0].running(), apps[1].running():
        tasks = []
        for number in range(6):
            app = apps[number % 2]
            call = app.workflows[0](f"o-{number}", fails=number >= 4)
            tasks.append(await app.submit(call, task_id=f"t-{number}", convoy="k" if number % 3 else None))
        for number, task in enumerate(tasks):
            if number < 4:
                assert await task.result(PATIENCE) == f"{apps[number % 2].name}: o-{number}"
            else:
                with pytest.raises(TaskCompensated):
                    await task.result(PATIENCE)
    own = [f"{apps[number % 2].name} charges o-{number}" for number in range(6)]
    assert sorted(seen) == sorted([*own, "shop refunds o-4", "travel refunds o-5"])
    await sound(url)


async def test_an_app_of_another_name_leaves_the_tasks_of_the_first_alone(url: str) -> None:
    seen: list[str] = []
    shop, travel = made("shop", seen, url), made("travel", seen, url)
    async with shop:
        await shop.submit(shop.workflows[0]("o-1"), task_id="first")
    async with travel.running():
        assert await (await travel.submit(travel.workflows[0]("o-2"), task_id="second")).result(PATIENCE)
        assert (await travel.task("first").view()).state == "pending"
        with pytest.raises(InvalidInput, match="task 'first' exists with another App"):
            await travel.submit(travel.workflows[0]("o-1"), task_id="first")
    assert seen == ["travel charges o-2"]


async def test_a_task_of_another_app_is_viewed_without_the_types_of_ones_own(url: str) -> None:
    payments = Agent("payments")

    @payments.step
    async def charge(attempt: Attempt, order: str) -> int:
        return 1

    shop = made("shop", [], url)
    async with shop.running():
        await (await shop.submit(shop.workflows[0]("o-1"), task_id="t")).result(PATIENCE)
    async with App("travel", agents=[payments], store=url) as travel:
        view = await travel.task("t").view()
    assert (view.app, view.steps[0].result, view.output, view.unreadable) == ("shop", "shop: o-1", "shop: o-1", ())


async def test_the_same_lines_under_the_same_ledger_id_are_another_ledger_in_another_app(url: str) -> None:
    def nightly(app: App) -> list[Entry]:
        return [Entry(app.workflows[0](f"o-{n}"), task_id=f"t-{n}") for n in range(3)]

    shop, travel = made("shop", [], url), made("travel", [], url)
    async with shop, travel:
        assert (await shop.submit_ledger("2026-11-23", nightly(shop))).accepted == 3
        assert (await shop.submit_ledger("2026-11-23", nightly(shop))).duplicates == 3
        with pytest.raises(InvalidInput, match="known with another content or of another App"):
            await travel.submit_ledger("2026-11-23", nightly(travel))


async def test_a_ledger_that_an_older_release_has_written_is_known_when_it_comes_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = made("shop", [], url)
    entries = [Entry(shop.workflows[0](f"o-{n}"), task_id=f"t-{n}") for n in range(3)]
    async with shop:
        with monkeypatch.context() as older:
            older.setattr("arriero.client.ledger.start_digest", lambda _app: "")
            await shop.submit_ledger("night", entries)
        assert (await shop.submit_ledger("night", entries)).duplicates == 3
        with pytest.raises(InvalidInput, match="another content"):
            await shop.submit_ledger("night", entries[:2])


async def test_tasks_of_an_older_ledger_that_was_not_let_go_to_its_end_are_counted_and_can_be_given_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    shop, travel = made("shop", seen, url), made("travel", seen, url)
    async with shop.running():
        pass

    async def dies(*_: object) -> None:
        raise ConnectionError("the process that submits dies here")

    async with shop:
        with monkeypatch.context() as dying, pytest.raises(ConnectionError):
            dying.setattr(SqliteStore, "let_go", dies)
            await shop.submit_ledger("day", [Entry(shop.workflows[0](f"o-{n}"), task_id=f"t-{n}") for n in range(3)])
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE arriero_task SET app = ''")
        with pytest.raises(AppCollision, match="3 open tasks"):
            async with travel.running():
                pass
        given = await assign(shop.session, Assignment(app="shop"), by="ana", reason="ours")
        assert (given.workflows, given.refused) == ({"fulfil": 3}, ())
    await sound(url)
    async with travel.running(), shop.running():
        for n in range(3):
            await shop.task(f"t-{n}").result(PATIENCE)
    assert sorted(seen) == ["shop charges o-0", "shop charges o-1", "shop charges o-2"]


async def test_tasks_of_a_ledger_are_of_the_app_that_submitted_it_whoever_lets_them_go(url: str) -> None:
    seen: list[str] = []
    shop, travel = made("shop", seen, url), made("travel", seen, url)
    async with shop, travel.running():
        await shop.submit_ledger("day", [Entry(shop.workflows[0](f"o-{n}"), task_id=f"t-{n}") for n in range(3)])
        assert {(await shop.task(f"t-{n}").view()).app for n in range(3)} == {"shop"}
        async with shop.running():
            for number in range(3):
                assert await shop.task(f"t-{number}", shop.workflows[0]).result(PATIENCE) == f"shop: o-{number}"
    await sound(url)


async def test_agents_in_a_process_of_their_own_attempt_only_steps_of_their_app(url: str) -> None:
    seen: list[str] = []
    shop, of_shop = made("shop", seen, url), made("shop", seen, url)
    travel = made("travel", seen, url)
    async with shop.running(roles=["scheduler", "supervisor"]), travel.running(roles=["agents"]):
        task = await shop.submit(shop.workflows[0]("o-1"))
        async with of_shop.running(roles=["agents"]):
            assert await task.result(PATIENCE) == "shop: o-1"
    assert seen == ["shop charges o-1"]


async def test_a_second_app_on_an_older_store_is_refused_and_begins_nothing(url: str) -> None:
    seen: list[str] = []
    shop, travel = made("shop", seen, url), made("travel", seen, url)
    async with shop.running():
        pass
    async with shop:
        await shop.submit(shop.workflows[0]("o-1"), task_id="first")
    store = SqliteStore(url.removeprefix("sqlite:///"))
    await store.open()
    await store._write(lambda tables: tables.connection.execute("UPDATE arriero_task SET app = ''"))
    await store.close()
    with pytest.raises(AppCollision, match="arriero store assign --to shop"):
        async with travel.running():
            pass
    assert seen == []
    async with shop.running():
        assert await shop.task("first", shop.workflows[0]).result(PATIENCE) == "shop: o-1"


async def test_of_two_apps_that_start_at_once_on_an_older_store_one_is_refused(url: str) -> None:
    seen: list[str] = []
    shop, travel = made("shop", seen, url), made("travel", seen, url)
    async with shop:
        await shop.submit(shop.workflows[0]("o-1"), task_id="first", delay=3_600)  # open for as long as both start
    store = SqliteStore(url.removeprefix("sqlite:///"))
    await store.open()
    await store._write(lambda tables: tables.connection.execute("UPDATE arriero_task SET app = ''"))
    await store.close()

    async def begin(app: App) -> str:
        async with app.running():
            return "begun"

    results = await asyncio.gather(begin(shop), begin(travel), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["AppCollision", "str"]
    assert seen == []
