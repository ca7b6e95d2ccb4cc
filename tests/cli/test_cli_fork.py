"""``arriero task fork``: its output in words and as JSON, its preview, and what it refuses."""

import asyncio
from pathlib import Path

import pytest
from cli_calls import Call, json_lines
from forked_shop import Shop, approved

from arriero import TaskHeld

STORE = "sqlite:///shop.db"


@pytest.fixture
def held(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line on a store with an order that is held at its last step."""

    async def order() -> None:
        shop = Shop(STORE)
        shop.seconds = 0.01
        async with shop.app.running():
            task = await shop.app.submit(shop.fulfil("1"), task_id="first")
            await task.send(approved("yes"))
            with pytest.raises(TaskHeld):
                await task.result()

    asyncio.run(order())
    monkeypatch.setenv("ARRIERO_STORE", STORE)
    return call


def test_a_fork_is_previewed_made_and_known_again(held: Call) -> None:
    asked = (
        "task",
        "fork",
        "first",
        "--from",
        "pack",
        "--task-id",
        "second",
        "--by",
        "ana",
        "--reason",
        "a larger box",
    )
    tried = held(*asked, "--dry-run")
    assert tried.stdout.splitlines() == [
        "fork would be accepted; it does task first from step pack on again",
        "copied: charge, signal:approved, look; their effects stay task first's",
        "done again: pack; each has happened there, or may have",
    ]
    assert len(json_lines(held("task", "list", "--workflow", "fulfil", "--json").stdout)) == 1
    done = held(*asked)
    assert done.stdout.splitlines()[0] == "task second does task first from step pack on again"
    assert done.stdout.splitlines()[-1] == "next: arriero task show second"
    assert "no Scheduler" in done.stderr
    (again,) = json_lines(held(*asked, "--json").stdout)
    assert again == {
        "id": "second",
        "outcome": "done",
        "created": False,
        "workflow": "fulfil",
        "forked_from": "first",
        "forked_step": "pack",
        "copied": ["charge", "signal:approved", "look"],
        "again": ["pack"],
    }


def test_a_fork_is_shown_with_its_origin_and_its_copies(held: Call) -> None:
    held("task", "fork", "first", "--from", "6", "--task-id", "second", "--by", "ana", "--reason", "a larger box")
    shown = held("task", "show", "second").stdout
    assert "forked from:     first, from its step reserve on\n" in shown
    assert "copied from first, step 1" in shown
    assert "task first/pack.4, processed" in shown
    history = held("history", "second").stdout
    assert "forked from step 6 (reserve) of task first, asked by ana: a larger box" in history
    assert "step charge is copied from task number 1, where it is step 1" in history
    assert "step look has failed in task number 1, where it is step 3" in history
    explained = held("task", "explain", "first").stdout
    assert "1 task is forked from it: second (pending)" in explained


def test_what_cannot_be_forked_is_refused_and_changes_nothing(held: Call) -> None:
    for given, exit_code, says in (
        (("first", "--from", "ship"), 2, "has no step 'ship' to be forked from; it has 1 charge"),
        (("nothing", "--from", "1"), 4, "there is no task 'nothing'"),
        (("first", "--from", "1", "--task-id", "first"), 2, "which is the task that is forked"),
        (("first", "--from", "1", "--convoy", ""), 2, "convoy"),
        (("first",), 2, "--from"),
    ):
        refused = held("task", "fork", *given)
        assert refused.exit_code == exit_code, refused.stderr
        assert says in refused.stderr
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert len(json_lines(held("task", "list", "--json").stdout)) == 2  # the order, and its child
