"""Commits by which operators acted, the newest first, in every store; and the history of the store itself, read backwards."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_world import LEASE, World, submission

from arriero import App
from arriero.client.operator_acts import SCANNED_MAX, load_act_page
from arriero.model.commands import Operate
from arriero.model.tokens import NewToken
from arriero.model.verb_rules import Verb
from arriero.store.sqlite.task_rows import query


async def act(world: World, task_id: str, by: str, reason: str) -> None:
    """An operator cancels a task."""
    found = await world.store.find(task_id)
    assert found is not None
    task = found.task
    await world.apply(
        Operate(
            actor="operator",
            verb=Verb.CANCEL,
            task_no=task.task_no,
            incarnation=task.incarnation,
            by=by,
            reason=reason,
        )
    )


async def plant(world: World) -> None:
    """Acts of several kinds, and commits of processes and submitters among them."""
    store = world.store
    await store.submit([submission("a"), submission("b")])
    await act(world, "a", "ana", "ordered twice")
    await store.register("worker", LEASE)
    await store.add_token(
        NewToken(token_id="t" * 16, name="ci", digest="d", scopes=("read",), created_by="bob", expires_in=None)
    )
    await store.acquire_lease("nightly", "host-1", "host-1", 60.0)
    await store.break_lease("nightly", "ana", "host-1 hangs", at_once=True)
    await store.submit([submission("c")])
    await act(world, "b", "eva", "for the auditors")
    await store.revoke_token("t" * 16, "ana", "lost")


async def test_acts_come_newest_first_with_who_what_on_which_thing_and_why(world: World) -> None:
    await plant(world)
    page = await load_act_page(world.store)
    assert page.before is None
    assert [(one.by, one.verb, one.kind, one.subject, one.reason) for one in page.acts] == [
        ("ana", "revoked", "token", "ci", "lost"),
        ("eva", "cancel", "task", "b", "for the auditors"),
        ("ana", "broken", "lease", "nightly", "host-1 hangs"),
        ("bob", "created", "token", "ci", ""),
        ("ana", "cancel", "task", "a", "ordered twice"),
    ]
    assert [one.at for one in page.acts] == sorted((one.at for one in page.acts), reverse=True)


async def test_acts_come_in_pages_that_together_are_all(world: World) -> None:
    await plant(world)
    whole = (await load_act_page(world.store)).acts
    found, before = [], None
    while True:
        page = await load_act_page(world.store, before=before, limit=2)
        assert len(page.acts) <= 2
        found += page.acts
        if (before := page.before) is None:
            break
    assert tuple(found) == whole


async def test_acts_of_one_operator_and_those_without_tokens(world: World) -> None:
    await plant(world)
    assert [one.subject for one in (await load_act_page(world.store, by="ana")).acts] == ["ci", "nightly", "a"]
    assert (await load_act_page(world.store, by="nobody")).acts == ()
    kinds = {one.kind for one in (await load_act_page(world.store, tokens=False)).acts}
    assert kinds == {"task", "lease"}


async def test_a_page_looks_through_a_bounded_part_and_says_where_to_continue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(world)
    monkeypatch.setattr("arriero.client.operator_acts.SCANNED_MAX", 2)
    monkeypatch.setattr("arriero.client.operator_acts.CHUNK", 2)
    assert SCANNED_MAX > 2
    first = await load_act_page(world.store, by="bob")
    assert first.acts == ()
    assert first.before is not None
    second = await load_act_page(world.store, by="bob", before=first.before)
    assert [one.verb for one in second.acts] == ["created"]


async def test_the_history_of_the_store_is_read_backwards(world: World) -> None:
    await plant(world)
    forwards = [row async for row in world.store.history(0)]
    assert await world.store.load_store_stream_back(limit=1_000) == forwards[::-1]
    assert await world.store.load_store_stream_back(forwards[3].link, limit=2) == [forwards[2], forwards[1]]


async def test_an_index_finds_acts_on_sqlite(tmp_path: Path) -> None:
    async with App("shop", store=f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        for name, index in (
            ("select_acts", "arriero_history_acts"),
            ("select_store_stream_back", "arriero_history_of_task"),
        ):
            explained = connection.execute(f"EXPLAIN QUERY PLAN {query(name)}", {"before": 900, "limit": 5})
            plan = [row[3] for row in explained]
            assert index in plan[0], plan
            assert not any("TEMP B-TREE" in step for step in plan)
