"""`arriero supervise`: what an operator at night, and a cron job, see of it."""

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_calls import APP, Call, Run, arriero, order

from arriero import TaskFailed
from arriero.cli import supervise as module

Start = Callable[..., Run]


@pytest.fixture
def store(call: Call) -> str:
    """An empty store in the working folder."""
    from shopfront import app

    async def make() -> None:
        async with app:
            pass

    asyncio.run(make())
    return "sqlite:///arriero.db"


@pytest.fixture(autouse=True)
def level_of_the_log() -> Iterator[None]:
    """The command makes arriero's log more talkative for its process, which is ours here."""
    logger = logging.getLogger("arriero")
    level = logger.level
    yield
    logger.setLevel(level)


# --- one pass
def test_with_nothing_due_it_says_so(call: Call, store: str, shop: Path) -> None:
    result = call("supervise", "--once")
    assert result.stdout.splitlines() == [
        f"arriero: supervised sqlite:///{shop / 'arriero.db'} under term 1",
        "arriero: nothing was due",
    ]
    assert (result.exit_code, result.stderr) == (0, "")


def test_with_json_it_prints_one_object_of_what_it_did(call: Call, store: str, shop: Path) -> None:
    result = call("supervise", "--once", "--json")
    assert json.loads(result.stdout) == {
        "store": f"sqlite:///{shop / 'arriero.db'}",
        "led": True,
        "led_by": None,
        "term": 1,
        "last_retry_at": None,
        "upkeep_failed": False,
        **dict.fromkeys(("processes_lost", "tasks_freed", "attempts_retried", "steps_failed"), 0),
        **dict.fromkeys(("tasks_undone", "tasks_held", "ledgers", "statuses_dropped"), 0),
        **dict.fromkeys(("convoys_mended", "tasks_readable", "runs_submitted", "alerts_told", "alerts_failed"), 0),
    }
    assert result.exit_code == 0


@pytest.mark.acceptance
def test_it_frees_what_a_killed_process_held_and_leaves_a_clean_history(shop: Path, start: Start) -> None:
    run = start("--roles", "scheduler,agents")
    run.until("ready")
    arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one")
    run.until("packing 1")
    run.signal(signal.SIGKILL)
    run.ended()
    once = arriero(shop, "supervise", "--once")
    assert once.stdout.splitlines()[1:] == ["arriero: 1 task freed of 1 lost process"]
    assert (once.returncode, once.stderr) == (0, "")
    again = arriero(shop, "supervise", "--once", "--json")
    assert (json.loads(again.stdout)["tasks_freed"], json.loads(again.stdout)["term"]) == (0, 2)
    (shop / "history.jsonl").write_text(arriero(shop, "export").stdout)
    assert arriero(shop, "check", "history.jsonl", "--redispatch-per-second", "200").returncode == 0


@pytest.mark.acceptance
def test_if_another_process_leads_it_says_which_and_exits_with_0(shop: Path, start: Start) -> None:
    leader = start(command=("supervise", "--store", "sqlite:///arriero.db"))
    code, output, errors = leader.ended()
    assert (code, output) == (5, "")  # no store is made by this command
    assert "there is no such file" in errors
    run = start("--roles", "supervisor")
    run.until("ready")
    name = None
    while name is None:  # it asks for the lease a moment after it is ready
        found = json.loads(arriero(shop, "supervise", "--once", "--json").stdout)
        name = found["led_by"]
    assert not found["led"]
    told = arriero(shop, "supervise", "--once")
    assert told.stdout == f"arriero: nothing done on sqlite:///{shop / 'arriero.db'}: process {name} leads\n"
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize(("program", "code"), [("true", 0), ("false", 1)])
def test_an_alert_that_cannot_be_told_makes_it_exit_with_1(
    call: Call, monkeypatch: pytest.MonkeyPatch, program: str, code: int
) -> None:
    from shopfront import Order, app, buggy

    async def hold() -> None:
        async with app.running(roles=["scheduler", "agents"]):
            with suppress(TaskFailed):
                await (await app.submit(buggy(Order("c")))).result()

    asyncio.run(hold())
    monkeypatch.setenv("ARRIERO_ALERTS_LOG", "false")
    monkeypatch.setenv("ARRIERO_ALERTS_COMMAND", json.dumps([program]))
    result = call("supervise", "--once")
    assert result.exit_code == code
    says = (
        "1 alert delivered"
        if code == 0
        else "1 alert could not be delivered and will be repeated; the log above says why"
    )
    assert result.stdout.splitlines()[1:] == [f"arriero: {says}"]
    assert call("supervise", "--once").stdout.splitlines()[1:] == ["arriero: nothing was due"]  # told, or not yet again


# --- what goes wrong
@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (("--json",), "--json prints what one pass did; give --once too", 2),
        (("--twice",), "No such option '--twice'", 2),
        (("--once", "--store", ""), "it is empty; name a store, or leave the option out", 2),
        (("--once", "--store", "memory://"), "it lives inside one process and dies with it", 2),
        (("--once", "--store", "sqlite:///elsewhere.db"), "there is no such file", 5),
        (("--once", "--store", "postgresql://nobody@127.0.0.1:1/shop"), "nobody listens there", 5),
        (("--store", "postgresql://nobody@127.0.0.1:1/shop"), "nobody listens there", 5),
        (("shopfront:app",), "unexpected extra argument", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_work_is_one_line_on_standard_error_and_an_exit_code(
    call: Call, arguments: tuple[str, ...], part: str, code: int
) -> None:
    result = call("supervise", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith('{"type":"urn:arriero:problem:' if "--json" in arguments else "arriero: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_pass_that_does_not_end_says_so_and_exits_with_5(
    call: Call, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arriero.client import assembly

    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(assembly, "supervise_once", hang)
    monkeypatch.setattr(module, "PASS_SECONDS_MAX", 0.01)
    result = call("supervise", "--once")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "the pass did not end within 0.01 s; what it wrote stays written" in result.stderr


# --- until a signal
@pytest.mark.acceptance
def test_without_once_it_supervises_until_a_signal_and_needs_no_app(shop: Path, store: str, start: Start) -> None:
    (shop / "shopfront.py").unlink()
    run = start(command=("supervise",))
    ready = run.until("ready")
    assert f"store sqlite:///{shop / 'arriero.db'}, roles supervisor, process " in ready
    run.signal(signal.SIGTERM)
    code, output, errors = run.ended()
    assert (code, errors) == (0, "")
    assert "drained" in output
