"""Cursors and plans are written by servers of the store alone, and one that means nothing is refused as one that nobody wrote."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from server_shop import ShopApp, ShopWorld, open_shop
from server_world import open_server

from arriero.server.cursors import open_cursors

WHY = {"reason": "it was checked"}
LISTS: list[tuple[str, Any]] = [
    ("/v1/tasks", ["tasks", {}, "oldest"]),
    ("/v1/convoys", ["convoys", None]),
    ("/v1/ledgers?state=all", ["ledgers", "all"]),
    ("/v1/alerts?state=all", ["alerts", "all"]),
    ("/v1/tasks/task-0/history", ["history", 1]),
    ("/v1/tasks/task-0/children", ["children", 1]),
]
NONSENSE: list[Any] = [
    -1, 2**63, 10**30, 1.5, "1", None, True, [], [1], [1, 2, 3], [-1, None], [0, 2**63], [-(2**64), None], ["a\0", 1], {},
]  # fmt: skip
PLANS: list[Any] = [
    [0, [[0, 1]]],
    [0, [[2**63, 1]]],
    [0, [[1, 2**63]]],
    [2**63, [[1, 1]]],
    [-(2**70), [[1, 1]]],
    [0, [[1 + number, 1] for number in range(201)]],
    [0, "tasks"],
]


async def _submit(world: ShopWorld, count: int) -> None:
    tasks = [
        {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": f"task-{number}"}
        for number in range(count)
    ]
    (await world.http.post("/v1/tasks:submit", json={"tasks": tasks})).raise_for_status()


def forge(store_id: str, listing: Any, position: Any) -> list[str]:
    """Write cursors as far as one can who knows the code and the number of the store, but not its secret."""
    data = msgspec.json.encode(position)
    about = msgspec.json.encode([store_id, listing], order="deterministic")
    by_number = hashlib.blake2b(data, key=hashlib.blake2b(about, digest_size=32).digest(), digest_size=9).digest()
    without_key = hashlib.blake2b(about + b"\0" + data, person=b"arriero-cursor", digest_size=16).digest()
    return [base64.urlsafe_b64encode(digest + data).decode().rstrip("=") for digest in (by_number, without_key)]


async def _refuse(world: ShopWorld, path: str, cursor: str) -> None:
    answer = await world.http.get(f"{path}{'&' if '?' in path else '?'}cursor={cursor}")
    assert (answer.status_code, answer.json()["code"]) == (422, "cursor-invalid"), (path, cursor, answer.text)


async def test_nobody_writes_a_cursor_or_a_plan_who_knows_the_number_of_the_store_alone() -> None:
    async with open_shop() as world:
        await _submit(world, 2)
        store_id = world.app.session.store.store_id
        for path, listing in LISTS:
            for position in (0, 1, [0, None], [2**63, None]):
                for cursor in forge(store_id, listing, position):
                    await _refuse(world, path, cursor)
        for plan in forge(store_id, ["plan", "pause"], [0, [[1, 1]]]):
            answer = await world.http.post("/v1/tasks:pause", json={**WHY, "plan": plan})
            assert (answer.status_code, answer.json()["code"]) == (422, "cursor-invalid")
        assert await world.app.tasks(paused=True).count() == 0


@pytest.mark.parametrize("position", NONSENSE, ids=repr)
async def test_a_position_that_means_nothing_is_refused_though_the_digest_fits(position: Any) -> None:
    async with open_shop() as world:
        await _submit(world, 1)
        cursors = await open_cursors(world.app.session.store)
        for path, listing in LISTS:
            await _refuse(world, path, cursors.write(listing, position))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan)[:30])
async def test_a_plan_that_means_nothing_or_names_too_many_tasks_is_refused_though_the_digest_fits(plan: Any) -> None:
    async with open_shop() as world:
        await _submit(world, 1)
        cursors = await open_cursors(world.app.session.store)
        body = {**WHY, "plan": cursors.write(["plan", "pause"], plan)}
        answer = await world.http.post("/v1/tasks:pause", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "cursor-invalid")
        assert await world.app.tasks(paused=True).count() == 0


async def test_a_new_epoch_ends_the_cursors_and_plans_from_before() -> None:
    async with open_shop() as world:
        await _submit(world, 2)
        cursor = (await world.http.get("/v1/tasks?limit=1")).json()["next"]
        asked = {**WHY, "filter": {"workflow": "fulfil"}, "dry_run": True}
        plan = (await world.http.post("/v1/tasks:pause", json=asked)).json()["plan"]
        await world.app.session.store.new_epoch("ana")
        await _refuse(world, "/v1/tasks", cursor)
        answer = await world.http.post("/v1/tasks:pause", json={**WHY, "plan": plan})
        assert (answer.status_code, answer.json()["code"]) == (422, "cursor-invalid")
        assert "from before a new epoch: begin again" in answer.json()["detail"]


async def test_each_server_of_a_store_reads_the_cursors_of_the_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_shop(url) as world, open_server(ShopApp(url).app) as other:
        await _submit(world, 3)
        cursor = (await world.http.get("/v1/tasks?limit=1")).json()["next"]
        rest = (await other.http.get(f"/v1/tasks?cursor={cursor}")).json()
        assert [task["id"] for task in rest["tasks"]] == ["task-1", "task-2"]
