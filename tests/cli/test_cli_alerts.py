"""`arriero alert list`: one by one, or by cause."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cli_calls import Call, json_lines

from arriero import TaskFailed


def hold(count: int) -> None:
    """Have tasks held by one bug of a release, and one that cannot be undone."""

    async def run() -> None:
        from shopfront import Order, app, buggy, fulfil

        async with app.running():
            for number in range(count):
                with suppress(TaskFailed):
                    await (await app.submit(buggy(Order(f"o {number}")), task_id=f"o {number}")).result(timeout=60)
            with suppress(TaskFailed):
                await (await app.submit(fulfil(Order("unrefundable", pieces=11)), task_id="undo")).result(timeout=60)

    asyncio.run(run())


def test_alerts_of_one_cause_are_one_entry_whose_command_acts_on_all_of_them(call: Call, shop: Path) -> None:
    hold(3)
    plain = call("alert", "list").stdout.splitlines()
    assert plain[0].split()[:4] == ["no", "task", "workflow", "cause"]
    assert len(plain) == 5
    causes: list[dict[str, Any]] = json_lines(call("alert", "list", "--by-cause", "--json").stdout)
    assert [(one["cause"], one["count"], one["first_task"]) for one in causes] == [
        ("bug", 3, "o 0"),
        ("undo", 1, "undo"),
    ]
    text = call("alert", "list", "--by-cause").stdout
    assert text.startswith("3 tasks of buggy: bug [bug]; first ")
    assert "1 task of fulfil: undo" in text
    assert f"  next: {causes[0]['command']}" in text.splitlines()
    command = causes[0]["command"].removeprefix("arriero ").split()
    done = call(*command, "--dry-run", "--by", "ana", "--reason", "mended", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["o 0", "o 1", "o 2"]


def test_the_next_page_begins_behind_the_last_number_and_closed_alerts_are_listed_too(call: Call, shop: Path) -> None:
    hold(2)
    first = call("alert", "list", "--limit", "2", "--json")
    assert [one["task_id"] for one in json_lines(first.stdout)] == ["o 0", "o 1"]
    after = first.stderr.split("--after ")[1].split()[0]
    assert [one["task_id"] for one in json_lines(call("alert", "list", "--after", after, "--json").stdout)] == ["undo"]
    call("task", "resubmit", "o 0", "--by", "ana", "--reason", "a test", "--yes")
    assert {one["task_id"] for one in json_lines(call("alert", "list", "--json").stdout)} == {"o 1", "undo"}
    assert len(json_lines(call("alert", "list", "--all", "--json").stdout)) == 3


def test_a_store_without_alerts_says_so_and_options_that_do_not_fit_are_refused(call: Call, sold: Call) -> None:
    call("task", "resubmit", "--state", "held", "--by", "ana", "--reason", "a test", "--yes")
    for options in ((), ("--by-cause",)):
        none = call("alert", "list", *options)
        assert (none.stdout, none.stderr.startswith("No open alerts")) == ("", True)
    refused = call("alert", "list", "--by-cause", "--all")
    assert (refused.exit_code, "leave out --all and --after" in refused.stderr) == (2, True)
