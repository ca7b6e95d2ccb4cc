"""`arriero demo --serve`: the HTTP API beside the demonstration, and after it until Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.acceptance

OPTIONS = ("--orders", "12", "--kills", "0", "--faults", "none", "--seed", "3", "--json", "--serve")


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}
    with subprocess.Popen(
        [sys.executable, "-m", "arriero", "demo", *OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    ) as process:
        yield process
        process.kill()


def read_until(process: subprocess.Popen[str], start: str) -> str:
    """The rest of the first line of standard error that begins so."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise AssertionError(f"it ended without saying {start!r}")


def ask(url: str, token: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Prefer": "wait=30"}
    with urlopen(Request(url, data, headers), timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_it_prints_an_address_and_a_token_with_which_orders_are_seen_and_submitted(
    demo: subprocess.Popen[str],
) -> None:
    url, token = read_until(demo, "HTTP API:"), read_until(demo, "token:")
    assert read_until(demo, "HTTP API:") == url  # again at the end, below what the demonstration said
    assert read_until(demo, "token:") == token
    read_until(demo, "serving until Ctrl-C")
    tasks = ask(f"{url}/v1/tasks?workflow=fulfil&limit=1", token)["tasks"]
    assert isinstance(tasks, list)
    (task,) = tasks
    shown = ask(f"{url}/v1/tasks/{task['id']}", token)
    assert json.dumps(shown).count('"state":') > 1
    again = {"workflow": "fulfil", "id": "over-http", "arguments": find_arguments(shown)}
    ended = ask(f"{url}/v1/tasks", token, again)
    assert ended["created"] is True
    assert isinstance(ended["end"], dict)
    assert ended["end"]["state"] == "processed"
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal sends it: to all processes of the group
    assert demo.wait(60) == 0
    assert demo.stdout is not None
    figures = json.loads(demo.stdout.read())
    assert figures["orders"] == 12


def find_arguments(shown: object) -> object:
    """The arguments of the workflow, as the API shows a task."""
    assert isinstance(shown, dict)
    return shown["task"]["arguments"] if "task" in shown else shown["arguments"]
