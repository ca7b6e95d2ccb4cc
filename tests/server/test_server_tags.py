"""Tags over HTTP and on the command line: the same answers and the same refusals as in Python."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from server_shop import ShopWorld, open_shop

from arriero import InvalidInput
from arriero.cli.main import commands

ORDER = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}
BAD: list[Any] = [
    {"tenant": ["x"] * 1_000},
    {"tenant": "x" * 10_240},
    {"<script>alert(1)</script>": "x"},
    {"": "x"},
    {"tenant": 7},
    {"tenant": "a\nb"},
    {f"t{number}": "x" for number in range(21)},
]


async def _post(world: ShopWorld, path: str, body: Any, status: int = 200) -> Any:
    answer = await world.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def _type(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, commands, arguments)


@pytest.mark.parametrize("tags", BAD, ids=[str(number) for number in range(len(BAD))])
async def test_http_refuses_bad_tags_in_the_words_of_python(tags: Any) -> None:
    async with open_shop() as world:
        with pytest.raises(InvalidInput) as refused:
            world.app.tasks(tags=tags)
        problem = await _post(world, "/v1/tasks", {**ORDER, "tags": tags}, 422)
        assert problem["detail"] == str(refused.value)
        assert await world.app.tasks().count() == 0


async def test_a_task_is_found_and_changed_by_its_tags(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_shop(url) as world:
        for name, tags in (("a", {"tenant": "acme"}), ("b", {"tenant": "acme", "region": "eu"}), ("c", None)):
            await _post(world, "/v1/tasks", {**ORDER, "id": name, "tags": tags}, 201)
        answer = await world.http.get("/v1/tasks", params={"tag": ["tenant=acme", "region=eu"]})
        assert answer.status_code == 200, answer.text
        listed = answer.json()
        assert [(task["id"], task["tags"]) for task in listed["tasks"]] == [("b", {"region": "eu", "tenant": "acme"})]
        assert (await world.http.get("/v1/tasks", params={"tag": "tenant"})).status_code == 422
        one = await _post(world, "/v1/tasks/c:tag", {"reason": "moved", "put": {"tenant": "globex"}})
        assert one["task"]["tags"] == {"tenant": "globex"}
        body = {
            "reason": "moved",
            "filter": {"tags": {"tenant": "acme"}},
            "put": {"tenant": "globex"},
            "remove": ["region"],
        }
        assert (await _post(world, "/v1/tasks:tag", body))["done"] == ["a", "b"]
        shown = (await world.http.get("/v1/tasks/b")).json()
        assert shown["tags"] == {"tenant": "globex"}
        problem = await _post(world, "/v1/tasks/b:tag", {"reason": "r", "put": {"tenant": ["x"] * 1_000}}, 422)
        assert "a tag has one value" in problem["detail"]
        assert (await _post(world, "/v1/tasks/b:tag", {"reason": "r"}, 422))["detail"].startswith("no tag is named")
        told = await _type("task", "list", "--tag", "tenant=globex", "--json", "--store", url)
        assert sorted(json.loads(line)["id"] for line in told.stdout.splitlines()) == ["a", "b", "c"]


async def test_the_command_line_puts_and_removes_tags_of_one_task_and_of_many(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    who = ("--by", "ana", "--reason", "moved", "--store", url)
    async with open_shop(url) as world:
        for name in ("a", "b"):
            await _post(world, "/v1/tasks", {**ORDER, "id": name, "tags": {"old": "<b>", "tenant": "acme"}}, 201)
    assert (await _type("task", "tag", "a", "tenant=globex", "old-", *who)).exit_code == 0
    shown = await _type("task", "show", "a", "--store", url)
    assert "tenant=globex" in shown.stdout
    many = await _type("task", "tag", "--tag", "tenant=acme", "plan=gold", "old-", "--yes", *who)
    assert (many.exit_code, "tag: accepted for 1 of 1 task" in many.stdout) == (0, True), many.output
    document = json.loads((await _type("task", "show", "b", "--json", "--store", url)).stdout)
    assert document["tags"] == {"plan": "gold", "tenant": "acme"}
    history = (await _type("history", "b", "--store", url)).stdout
    assert "old=<b> is removed" in " ".join(history.split())
    for words, says in (
        (("a", "tenant"), "'tenant' is not a change of a tag"),
        (("a", "tenant=acme", "tenant=globex"), "is given twice"),
        (("a", "tenant="), "tag 'tenant' has a value of 0 characters"),
        (("a",), "no tag is named"),
        (("x=1",), "no tag is named"),
        (("--tag", "tenant", "x=1"), "is not a tag; write NAME=VALUE"),
    ):
        refused = await _type("task", "tag", *words, *who)
        assert refused.exit_code == 2, (words, refused.output)
        assert says in " ".join(refused.output.split())
