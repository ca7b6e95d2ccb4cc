"""Senders of signals and requests as JSON: what the command line and HTTP answer, and how each refuses what is bad."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from click.testing import CliRunner
from server_world import TOKENS, ServerWorld

from arriero.cli.main import commands

APP = "signal_shop:app"
Kind = Literal["signal", "request"]
REFUSED = (2, 3, 4, 5)  # exit codes
OVER_HTTP = {"is not JSON": "invalid-json", "the key 'by' twice": "invalid-json"}  # the gate refuses the whole body
Bad = tuple[str, str, str, str, str, int, str]


class Said(NamedTuple):
    """What an interface answered. ``code``: of its problem; empty: it accepted. ``status``: its exit code, or that of HTTP."""

    code: str
    says: str
    because: str
    status: int
    answer: Any
    headers: Any = None


def _read(document: Any, status: int, headers: Any = None) -> Said:
    said = [document.get(name, "") for name in ("code", "detail", "because")]
    return Said(*said, status, document, headers)


async def call(url: str, *arguments: str, given: str = "") -> Any:
    """The command line in this process."""
    return await asyncio.to_thread(CliRunner().invoke, commands, [*arguments, "--store", url], given)


async def by_command(kind: Kind, url: str, task: str, name: str, value: str, sent_id: str) -> Said:
    options = [f"--{kind}-id", sent_id, "--by", "ana", "--app", APP, "--json"]
    done = await call(url, "task", "send" if kind == "signal" else kind, task, name, "-", *options, given=value)
    document = json.loads((done.stderr if done.exit_code in REFUSED else done.stdout).splitlines()[0])
    assert done.exit_code == 0 or len(done.stderr.splitlines()) == 1, done.stderr
    return _read(document, done.exit_code)


async def by_http(
    kind: Kind,
    world: ServerWorld,
    task: str,
    name: str,
    value: str,
    sent_id: str,
    prefer: str = "wait=30",
    of: str = "admin",
) -> Said:
    body = f'{{"value": {value}, "{kind}_id": {json.dumps(sent_id)}}}'
    headers = {"Content-Type": "application/json", "Prefer": prefer, "Authorization": f"Bearer {TOKENS[of]}"}
    answer = await world.http.post(f"/v1/tasks/{task}/{kind}s/{name}", content=body.encode(), headers=headers)
    return _read(answer.json(), answer.status_code, answer.headers)


async def check_refusals(kind: Kind, url: str, world: ServerWorld, bad: Iterable[Bad]) -> None:
    """Send what is bad by both interfaces.

    Args:
        bad: task, name in a path, value, id; the code of the problem, with ``because`` after a colon; the exit code; a part of what
            both say.
    """
    for task, name, value, sent_id, code, exit_code, says in bad:
        typed = await by_command(kind, url, task, name.replace("%23", "#"), value, sent_id)
        asked = await by_http(kind, world, task, name, value, sent_id)
        where = (task, name, value[:30], sent_id)
        wanted, _, because = code.partition(":")
        assert (typed.code, typed.status, typed.because) == (wanted, exit_code, because), (where, typed)
        assert (asked.code, asked.because) == (OVER_HTTP.get(says, wanted), because), (where, asked)
        for one in (typed, asked):
            assert says in one.says, (where, one)
            assert len(one.says) < 500, where
            assert "\n" not in one.says, where
