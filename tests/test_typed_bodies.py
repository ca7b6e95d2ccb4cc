"""Arguments of many types have one JSON text: in every process, and by every interface that submits them."""

import asyncio
import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import typed_bodies
from click.testing import CliRunner
from postgres_servers import database, emptied
from server_world import open_server
from typed_bodies import LABELS, MAKERS, Box, Colour, Item, Line, Order, Parcel, send

from arriero import App, Entry
from arriero.cli.main import commands
from arriero.client.session import load_task


def test_the_text_of_a_value_does_not_depend_on_the_hash_seed_of_the_process() -> None:
    seed = random.randrange(2**32)
    printed = {
        subprocess.run(
            [sys.executable, typed_bodies.__file__, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("1", "2", "3")
    }
    (text,) = printed
    assert text.count("\n") == 10 * len(MAKERS)


# --- interfaces
PARCEL = Parcel(
    items=[Item(itemId="1", labels=frozenset(LABELS))],
    labels=set(LABELS),
    nested={"a": {3, 1, 2}},
    line=Line("x", frozenset("ab")),
)
ORDER = Order(
    "o", {Line("a"), Line("b")}, frozenset({frozenset({1, 2}), frozenset({3})}), datetime(2026, 1, 2, tzinfo=UTC)
)
BOX = Box("l", frozenset({Colour.RED, Colour.BLUE}))


def spell(text: str) -> str:
    """The same arguments as people write them: keys and sets in another order, with spaces."""
    value = msgspec.json.decode(text)
    value["parcel"]["labels"].reverse()
    value["parcel"]["items"][0]["labels"].reverse()
    value["order"]["lines"].reverse()
    value["order"]["lines"] = [{key: part for key, part in one.items() if part} for one in value["order"]["lines"]]
    value["box"]["colours"].reverse()
    return msgspec.json.format(msgspec.json.encode(dict(reversed(value.items()))), indent=2).decode()


@pytest.mark.parametrize("server", [None, 16], ids=["sqlite", "postgres"])
async def test_every_interface_records_the_same_body_of_typed_arguments(
    server: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'typed.db'}" if server is None else emptied(database(server))
    texts = {}
    shop = App("typed", workflows=[send], store=url)
    async with shop.running():
        pass  # from here on, SQL knows the workflow
    call = send(PARCEL, ORDER, BOX)
    async with open_server(App("typed", workflows=[send], store=url)) as world:
        app = world.app

        async def read(task_id: str) -> str:
            return (await load_task(app.session, task_id)).arguments

        def by_command(task_id: str) -> Any:
            options = ["--arguments", "-", "--task-id", task_id, "--store", url]
            return CliRunner().invoke(
                commands, ["submit", "typed_bodies:app", "send", *options], input=spell(call.arguments)
            )

        def by_sync(task_id: str) -> None:
            with App("typed", workflows=[send], store=url).sync as front:
                front.submit(send(PARCEL, ORDER, BOX), task_id=task_id)

        async def by_http(task_id: str) -> Any:
            body = {"workflow": "send", "arguments": msgspec.json.decode(spell(call.arguments)), "id": task_id}
            return await world.http.post("/v1/tasks", json=body)

        async def by_ledger(task_id: str) -> None:
            await app.submit_ledger(f"ledger {task_id}", [Entry(send(PARCEL, ORDER, BOX), task_id=task_id)])

        for task_id in ("own", "shared"):
            suffix = "" if task_id == "shared" else "{}"
            await app.submit(call, task_id=task_id + suffix.format(" python"))
            await asyncio.to_thread(by_sync, task_id + suffix.format(" sync"))
            done = await asyncio.to_thread(by_command, task_id + suffix.format(" command"))
            assert done.exit_code == 0, done.output
            answer = await by_http(task_id + suffix.format(" http"))
            assert answer.status_code in (200, 201), answer.text
            await by_ledger(task_id + suffix.format(" ledger"))
            if server is not None:
                with psycopg.connect(url) as connection:
                    statement = "SELECT arriero.submit('send', %s, task_id => %s)"
                    connection.execute(statement, (call.arguments, task_id + suffix.format(" sql")))
        names = ["python", "sync", "command", "http", "ledger", *(["sql"] if server is not None else [])]
        texts = {name: await read(f"own {name}") for name in names}
        assert set(texts.values()) == {call.arguments}
