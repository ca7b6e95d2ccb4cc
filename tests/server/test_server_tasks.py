"""Tasks over HTTP: what they show, in which pages, and what a token without read-payloads does not get."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from server_shop import Order, ShopApp, ShopWorld, bearer, open_shop

from arriero import InvalidInput
from arriero.cli.main import commands
from arriero.server import cursors


async def _get(world: ShopWorld, path: str, **options: Any) -> Any:
    answer = await world.http.get(path, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _submit(world: ShopWorld, count: int) -> list[str]:
    ids = [f"task-{number}" for number in range(count)]
    tasks = [{"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": one} for one in ids]
    (await world.http.post("/v1/tasks:submit", json={"tasks": tasks})).raise_for_status()
    return ids


async def test_the_command_line_and_http_show_the_same_task(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_shop(url, running=True) as world:
        await world.sell()
    async with open_shop(url) as world:
        for task_id in ("processed", "compensated", "held", "sleeping"):
            over_http = await _get(world, f"/v1/tasks/{task_id}")
            assert over_http.pop("payloads") == "included"
            told = await _ask_command_line("task", "show", task_id, "--json", "--store", url)
            over_http["waited_seconds"] = told["waited_seconds"] = 0.0  # of what waits for an operator it grows
            assert over_http == told
        listed = (await _get(world, "/v1/tasks?order=newest"))["tasks"]
        assert listed == await _ask_command_line("task", "list", "--json", "--store", url, many=True)


async def _ask_command_line(*arguments: str, many: bool = False) -> Any:
    said = await asyncio.to_thread(CliRunner().invoke, commands, arguments)
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    return lines if many else lines[0]


def _without_ages(reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reasons without how long ago it was: the two are asked one after the other."""
    return [{**reason, "says": re.sub(r"\((less than )?\d+ s ago\)", "(ago)", reason["says"])} for reason in reasons]


async def test_the_command_line_and_http_explain_a_task_alike(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_shop(url, running=True) as world:
        await world.sell()
    async with open_shop(url) as world:
        for task_id in ("processed", "compensated", "held"):
            over_http = await _get(world, f"/v1/tasks/{task_id}/explain")
            told = await _ask_command_line("task", "explain", task_id, "--json", "--store", url)
            for name in ("state", "people", "results", "output"):
                assert over_http[name] == told[name]
            assert _without_ages(over_http["reasons"]) == _without_ages(told["reasons"])
            assert [verb["verb"] for verb in over_http["verbs"]] == [verb["verb"] for verb in told["verbs"]]


async def test_a_token_without_read_payloads_gets_no_payload_and_is_told_so() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        for task_id in ("processed", "compensated", "held"):
            for path in ("", "/history", "/explain", "/result"):
                answer = await world.http.get(f"/v1/tasks/{task_id}{path}", headers=bearer("read"))
                assert answer.status_code == 200
                assert answer.json()["payloads"] == "withheld"
                assert not {"receipt for", "lamp", "gold", "4711", "card"} & set(answer.text.replace('"', " ").split())
                assert "receipt for" not in answer.text
        whole = await _get(world, "/v1/tasks/compensated")
        assert whole["steps"][0]["failure"]["details"] == {"card": "4711"}
        assert whole["arguments"] == {"order": {"item": "gold", "amount": 1}}


async def test_a_list_comes_in_pages_in_either_order_and_each_task_once() -> None:
    async with open_shop() as world:
        ids = await _submit(world, 7)
        for order, expected in (("oldest", ids), ("newest", ids[::-1])):
            assert await _read_all(world, f"/v1/tasks?order={order}&limit=3") == expected
        assert await _read_all(world, "/v1/tasks?limit=3&workflow=fulfil&order=newest") == ids[::-1]


async def _read_all(world: ShopWorld, path: str) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = await _get(world, f"{path}{cursor and f'&cursor={cursor}'}")
        found += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            return found
        cursor = page["next"]


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_a_filter_that_finds_nothing_reads_a_bounded_part_of_the_store_for_each_page(
    monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(cursors, "SCANNED_MAX", 3)
    async with open_shop() as world:
        ids = await _submit(world, 10)
        page = await _get(world, f"/v1/tasks?text=nobody+said+so&order={order}")
        assert page["tasks"] == []
        assert page["next"]
        assert await _read_all(world, f"/v1/tasks?text=nobody+said+so&order={order}") == []
        expected = ids if order == "oldest" else ids[::-1]
        assert await _read_all(world, f"/v1/tasks?workflow=fulfil&order={order}&limit=2") == expected


async def test_a_cursor_fits_only_the_list_and_the_filter_it_came_from() -> None:
    async with open_shop() as world:
        await _submit(world, 3)
        cursor = (await _get(world, "/v1/tasks?limit=1"))["next"]
        assert len((await _get(world, f"/v1/tasks?limit=2&cursor={cursor}"))["tasks"]) == 2
        forged = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
        for path in (
            f"/v1/tasks?limit=1&state=held&cursor={cursor}",
            f"/v1/tasks?limit=1&order=newest&cursor={cursor}",
            f"/v1/tasks/task-1/history?cursor={cursor}",
            f"/v1/tasks?cursor={forged}",
            "/v1/tasks?cursor=nonsense",
            "/v1/tasks?cursor=",
            "/v1/tasks?cursor=%00%E2%80%AE",
        ):
            answer = await world.http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (422, "cursor-invalid"), path


async def test_a_history_comes_in_pages_and_says_what_the_events_are() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        whole = (await _get(world, "/v1/tasks/held/history?limit=200"))["entries"]
        found: list[Any] = []
        cursor = ""
        while cursor is not None:
            page = await _get(world, f"/v1/tasks/held/history?limit=1{cursor and f'&cursor={cursor}'}")
            found += page["entries"]
            cursor = page["next"]
        assert found == whole
        assert [entry["link"] for entry in whole] == list(range(1, len(whole) + 1))
        assert whole[0]["events"][0]["type"] == "task.submitted"
        assert all(len(entry["says"]) == len(entry["events"]) for entry in whole)


async def test_the_end_of_a_task_may_be_waited_for() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        done = await _get(world, "/v1/tasks/processed/result")
        assert (done["state"], done["output"]) == ("processed", "receipt for 1 lamp")
        held = await _get(world, "/v1/tasks/held/result?wait=1")
        assert (held["state"], held["code"]) == ("held", "closed")
        still = await world.http.get("/v1/tasks/sleeping/result?wait=0.01")
        assert (still.status_code, still.json()["state"]) == (202, "processing")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "order=random",
        "older_than=-1",
        "older_than=NaN",
        "older_than=inf",
        "paused=perhaps",
        "state=unknown",
        "since=yesterday",
        "since=2026-11-20T14:15:17",
        "since=nan",
        "since=-5",
        "workflow=",
        "text=+",
        "code=" + "x" * 5_000,
        "stat=error",
        "=",
        "limit=1&limit=2",
    ],
)
async def test_a_filter_that_is_none_is_refused(query: str) -> None:
    async with open_shop() as world:
        answer = await world.http.get(f"/v1/tasks?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


@pytest.mark.parametrize("given", [{"state": "unknown"}, {"workflow": ""}, {"older_than": -1.0}, {"text": " "}])
async def test_a_filter_is_refused_in_the_words_of_python(given: dict[str, Any]) -> None:
    shop = ShopApp()
    with pytest.raises(InvalidInput) as refused:
        shop.app.tasks(**given)
    async with open_shop() as world:
        answer = await world.http.post("/v1/tasks:pause", json={"filter": given, "reason": "x"})
        assert answer.json()["detail"] == str(refused.value)


async def test_a_task_of_an_unknown_id_is_refused_alike_everywhere() -> None:
    shop = ShopApp()
    async with shop.app:
        await shop.app.submit(shop.fulfil(Order("lamp")), task_id="known")
    async with open_shop() as world:
        for path in ("", "/history", "/children", "/explain", "/result"):
            answer = await world.http.get(f"/v1/tasks/unknown{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "task-unknown")


async def test_a_history_is_read_from_its_end_from_a_link_and_of_operators_alone() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        path = "/v1/tasks/held/history"
        oldest = [one["link"] for one in (await world.http.get(path)).json()["entries"]]
        newest = (await world.http.get(path, params={"order": "newest", "limit": 2})).json()
        assert [one["link"] for one in newest["entries"]] == oldest[:-3:-1]
        rest = (await world.http.get(path, params={"order": "newest", "cursor": newest["next"]})).json()
        assert [one["link"] for one in rest["entries"]] == oldest[-3::-1]
        assert rest["next"] is None
        down = (await world.http.get(path, params={"order": "newest", "link": 2})).json()["entries"]
        up = (await world.http.get(path, params={"link": 2})).json()["entries"]
        assert ([one["link"] for one in down], [one["link"] for one in up]) == ([2, 1], oldest[1:])
        (await world.http.post("/v1/tasks/held:compensate", json={"reason": "sold out"})).raise_for_status()
        acts = (await world.http.get(path, params={"operators": "true"})).json()["entries"]
        assert any("sold out" in says for one in acts for says in one["says"])
        assert {one["actor"] for one in acts} == {"operator"}
