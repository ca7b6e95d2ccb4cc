"""`arriero ledger`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_calls import APP, Call, Run, Terminal, arriero, json_lines

from arriero import StoreError
from arriero.store.sqlite.store import SqliteStore

SPLITTER = '''
"""Splitters for the tests."""

from arriero import Entry
from shopfront import Order, fulfil


def entries(path):
    for line in path.read_text().splitlines():
        if line == "break":
            raise ValueError("no such line")
        order, _, key = line.partition(",")
        yield Entry(fulfil(Order(order)), task_id=order, convoy=key or None) if order != "?" else Entry.bad("no order")


async def awaited(path):
    for entry in entries(path):
        yield entry


def nothing(path):
    return None


def unreadable(path):
    raise OSError("no right")


no_function = 3
'''


@pytest.fixture
def file(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(shop)
    monkeypatch.delitem(sys.modules, "splitters", raising=False)  # it holds on to another test's App
    (shop / "splitters.py").write_text(SPLITTER)
    path = shop / "may.csv"
    path.write_text("a,customer 1\nb\nc,customer 1\n")
    return path


def submit(call: Call, file: Path, *options: str, splitter: str = "splitters:entries") -> Any:
    return call("ledger", "submit", APP, str(file), "--splitter", splitter, *options)


def tasks(call: Call) -> list[str]:
    listed = call("task", "list", "--after", "0", "--json")
    return [task["id"] for task in json_lines(listed.stdout)] if listed.exit_code == 0 else []


def begun(file: Path) -> None:
    """Somebody died after a batch of the ledger was written."""

    async def begin() -> None:
        from shopfront import app
        from splitters import entries  # type: ignore[import-not-found]  # written by the test

        async def dead(*args: Any) -> None:
            raise StoreError("the process is dead")

        async with app:
            store = app.session.store
            store.open_ledger = dead  # type: ignore[method-assign]
            with pytest.raises(StoreError):
                await app.submit_ledger(file.name, entries(file))

    asyncio.run(begin())


@pytest.mark.parametrize("splitter", ["splitters:entries", "splitters:awaited"])
def test_each_line_is_a_task_and_the_same_file_again_changes_nothing(call: Call, file: Path, splitter: str) -> None:
    first = submit(call, file, splitter=splitter)
    assert (first.exit_code, first.stdout) == (0, "ledger may.csv: 3 accepted, 0 duplicates\n"), first.stderr
    assert first.stderr == ""
    again = submit(call, file, splitter=splitter)
    assert (again.exit_code, again.stdout) == (0, "ledger may.csv: 0 accepted, 3 duplicates\n")
    assert tasks(call) == ["a", "b", "c"]


def test_a_file_is_submitted_to_the_configured_app(call: Call, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_APP", APP)
    assert call("ledger", "submit", str(file), "--splitter", "splitters:entries").exit_code == 0
    assert tasks(call) == ["a", "b", "c"]


def test_another_content_under_the_same_name_is_refused_and_another_name_is_not(call: Call, file: Path) -> None:
    submit(call, file)
    file.write_text("a,customer 1\nb\nd\n")
    refused = submit(call, file)
    assert refused.exit_code == 3
    assert "ledger 'may.csv' is known with another content" in refused.stderr
    named = submit(call, file, "--ledger-id", "may again")
    assert named.stdout == "ledger may again: 1 accepted, 2 duplicates\n"


def test_a_bad_line_refuses_the_file_or_is_set_aside(call: Call, file: Path) -> None:
    file.write_text("a\n?\nc\n?\n")
    refused = submit(call, file)
    assert refused.exit_code == 2
    assert "ledger 'may.csv', line 2: no order. Nothing of the ledger was submitted" in refused.stderr
    assert tasks(call) == []
    set_aside = submit(call, file, "--bad", "set_aside")
    assert set_aside.exit_code == 1
    told = "ledger may.csv: 2 accepted, 0 duplicates, 2 set aside\nline 2: no order\nline 4: no order\n"
    assert set_aside.stdout == told
    again = submit(call, file, "--bad", "set_aside", "--json")
    assert json.loads(again.stdout) == {
        "ledger": "may.csv",
        "accepted": 0,
        "duplicates": 2,
        "set_aside": ["line 2: no order", "line 4: no order"],
    }


@pytest.mark.parametrize(
    ("splitter", "said"),
    [
        ("splitters", "'splitters' does not name a splitter; write MODULE:FUNCTION"),
        ("nowhere:entries", "there is no module 'nowhere'"),
        ("splitters:absent", "there is no splitters:absent"),
        ("splitters:no_function", "splitters:no_function is not a function"),
        ("splitters:nothing", "answered with None; it must answer with an iterable of Entry"),
        ("splitters:unreadable", "failed after entry 0: OSError: no right"),
    ],
)
def test_a_splitter_that_cannot_be_used_is_refused(call: Call, file: Path, splitter: str, said: str) -> None:
    refused = submit(call, file, splitter=splitter)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_splitter_that_breaks_is_told_with_its_place_and_nothing_is_visible(call: Call, file: Path) -> None:
    file.write_text("a\nb\nbreak\n")
    for splitter in ("splitters:entries", "splitters:awaited"):
        refused = submit(call, file, splitter=splitter)
        assert refused.exit_code == 2
        assert "failed after entry 2: ValueError: no such line" in refused.stderr
        assert "splitters.py, line 11" in refused.stderr
        assert "nothing of the ledger is visible" in refused.stderr
        assert tasks(call) == []


def test_a_file_that_is_not_there_is_refused(call: Call, shop: Path) -> None:
    refused = submit(call, shop / "absent.csv")
    assert refused.exit_code == 2
    assert "absent.csv" in refused.stderr


def test_what_was_begun_is_listed_and_goes_on_where_it_stood(call: Call, file: Path) -> None:
    begun(file)
    assert tasks(call) == []
    (listed,) = json_lines(call("ledger", "list", "--json").stdout)
    assert (listed["ledger"], listed["state"], listed["written"]) == ("may.csv", "writing", 3)
    shown = call("ledger", "show", "may.csv").stdout.splitlines()
    assert shown[0] == "ledger may.csv is writing: nothing of it is visible; submit it again to continue, or discard it"
    assert shown[1] == "  3 entries: 3 accepted, 0 duplicates, 0 set aside"
    assert submit(call, file).stdout == "ledger may.csv: 3 accepted, 0 duplicates\n"
    unfinished = call("ledger", "list")
    assert (unfinished.stdout, unfinished.stderr) == (
        "",
        "No unfinished ledgers; --all lists the others.\n",
    )
    table = call("ledger", "list", "--all").stdout.splitlines()
    assert table[0].split()[:3] == ["LEDGER", "STATE", "WRITTEN"]
    assert table[1].split()[:3] == ["may.csv", "done", "3"]


def test_entries_set_aside_are_shown_later_too(call: Call, file: Path) -> None:
    file.write_text("a\n?\n")
    submit(call, file, "--bad", "set_aside")
    assert call("ledger", "show", "may.csv").stdout.splitlines()[-1] == "line 2: no order"
    shown = json.loads(call("ledger", "show", "may.csv", "--json").stdout)
    assert (shown["state"], shown["aside"], shown["set_aside"]) == ("done", 1, ["line 2: no order"])


def test_what_was_begun_may_be_discarded_and_begun_anew(call: Call, file: Path) -> None:
    begun(file)
    file.write_text("x\n")
    refused = submit(call, file)
    assert "discard it with `arriero ledger discard`" in refused.stderr
    unasked = call("ledger", "discard", "may.csv", "--reason", "the wrong file")
    assert unasked.exit_code == 2
    assert "add --yes to do it" in unasked.stderr
    discarded = call("ledger", "discard", "may.csv", "--by", "ada", "--reason", "the wrong file", "--yes")
    assert (discarded.exit_code, discarded.stdout) == (0, "ledger may.csv is discarded, 3 entries\n")
    (event,) = [
        (row["actor"], event["reason"])
        for row in json_lines(call("history", "--json").stdout)
        for event in row.get("events", [])
        if event["type"] == "ledger.discarded"
    ]
    assert event == ("operator ada", "the wrong file")
    assert submit(call, file).stdout == "ledger may.csv: 1 accepted, 0 duplicates\n"


def test_an_opened_ledger_is_not_discarded_and_an_unknown_one_is_refused(call: Call, file: Path) -> None:
    submit(call, file)
    refused = call("ledger", "discard", "may.csv", "--reason", "x", "--yes")
    assert refused.exit_code == 3
    assert "ledger 'may.csv' is opened: its tasks are there" in refused.stderr
    unknown = call("ledger", "show", "june.csv")
    assert unknown.exit_code == 4
    assert "there is no ledger 'june.csv'" in unknown.stderr


def test_progress_is_shown_on_a_terminal(shop: Path, file: Path) -> None:
    file.write_text("".join(f"order {number}\n" for number in range(20)))
    (shop / "slow.py").write_text(
        "import arriero.cli.output, splitters\n"
        "arriero.cli.output.PROGRESS_AFTER_SECONDS = 0\n"
        "def entries(path):\n    yield from splitters.entries(path)\n"
    )
    arguments = ("ledger", "submit", APP, str(file), "--splitter", "slow:entries")
    code, output, said = Terminal(shop, *arguments).ended()
    assert (code, output) == (0, "ledger may.csv: 20 accepted, 0 duplicates\n")
    assert "written: 20 entries" in said
    assert "let go: 20 entries" in said


def test_without_a_terminal_progress_is_plain_lines(call: Call, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.cli.ledger.PROGRESS_SECONDS", 0.0)
    told = submit(call, file)
    assert told.stderr.splitlines() == ["arriero: written: 3 entries", "arriero: let go: 3 entries"]


def test_a_killed_submission_goes_on_in_another_process(shop: Path, file: Path) -> None:
    file.write_text("".join(f"order {number}\n" for number in range(1_200)))
    (shop / "killed.py").write_text(
        "import os, signal, splitters\n"
        "def entries(path):\n"
        "    for number, entry in enumerate(splitters.entries(path)):\n"
        "        if number == 700:\n            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        yield entry\n"
    )
    arguments = ("ledger", "submit", APP, str(file), "--splitter")
    assert arriero(shop, *arguments, "killed:entries").returncode == -9
    assert json_lines(arriero(shop, "task", "list", "--json").stdout) == []
    (listed,) = json_lines(arriero(shop, "ledger", "list", "--json").stdout)
    assert listed["written"] == 500
    done = arriero(shop, *arguments, "splitters:entries", "--json")
    assert json.loads(done.stdout)["accepted"] == 1_200

    async def count() -> int:
        store = SqliteStore(str(shop / "arriero.db"))
        await store.open()
        try:
            return sum((await store.counts()).values())
        finally:
            await store.close()

    assert asyncio.run(count()) == 1_200


# --- the tasks that it brought
def carry_out(ledger_id: str) -> None:
    """Run the App until all tasks of a ledger have ended."""

    async def run() -> None:
        from shopfront import app

        async with app.running():
            await app.ledger(ledger_id).wait(timeout=60)

    asyncio.run(run())


def test_the_tasks_of_a_ledger_are_listed_and_cancelled_as_one_and_the_ledger_says_how_they_stand(
    call: Call, file: Path
) -> None:
    submit(call, file)
    file.write_text("alone\n")
    submit(call, file, "--ledger-id", "june.csv")
    listed = call("task", "list", "--ledger", "may.csv", "--after", "0", "--json")
    assert [task["id"] for task in json_lines(listed.stdout)] == ["a", "b", "c"]
    assert "  tasks: 3 pending; not all have ended" in call("ledger", "show", "may.csv").stdout.splitlines()
    line, other = json_lines(call("ledger", "list", "--all", "--json").stdout)
    assert (line["ledger"], line["ended"], "tasks" in line, other["ledger"]) == ("may.csv", False, False, "june.csv")
    signed = ("--by", "ana", "--reason", "the wrong file", "--yes")
    done = call("task", "cancel", "--ledger", "may.csv", *signed)
    assert done.exit_code == 0, done.stderr
    carry_out("june.csv")
    carry_out("may.csv")
    shown = json.loads(call("ledger", "show", "may.csv", "--json").stdout)
    assert (shown["tasks"], shown["purged"], shown["ended"]) == ({"compensated": 3}, 0, True)
    text = call("ledger", "show", "may.csv").stdout
    assert f"  tasks: 3 compensated; all have ended by {shown['ended_at'][:10]}" in text
    assert call("ledger", "list", "--all").stdout.splitlines()[1].split()[7] == "yes"
    (alone,) = json_lines(call("task", "list", "--state", "processed", "--json").stdout)
    assert alone["id"] == "alone"
    empty = call("task", "list", "--ledger", "")
    assert (empty.exit_code, "ledger" in empty.stderr) == (2, True)


def test_a_wait_for_a_ledger_exits_by_how_its_tasks_ended(call: Call, file: Path) -> None:
    submit(call, file)
    waited = call("ledger", "wait", "may.csv", "--timeout", "0s")
    assert (waited.exit_code, "not all have ended" in waited.stdout) == (75, True)
    signed = ("--by", "ana", "--reason", "the wrong file", "--yes")
    call("task", "cancel", "--ledger", "may.csv", *signed)
    carry_out("may.csv")
    undone = call("ledger", "wait", "may.csv", "--json")
    assert (undone.exit_code, json.loads(undone.stdout)["ended"]) == (1, True)
    file.write_text("")
    submit(call, file, "--ledger-id", "empty")
    empty = call("ledger", "wait", "empty")
    assert (empty.exit_code, "tasks: none; all have ended" in empty.stdout) == (0, True)
    unknown = call("ledger", "wait", "june.csv")
    assert (unknown.exit_code, "there is no ledger 'june.csv'" in unknown.stderr) == (4, True)


def test_a_wait_for_a_ledger_ends_when_another_process_has_processed_its_tasks(shop: Path, file: Path) -> None:
    assert arriero(shop, "ledger", "submit", APP, str(file), "--splitter", "splitters:entries").returncode == 0
    running = Run(shop)
    running.until("ready")
    waited = arriero(shop, "ledger", "wait", "may.csv", "--timeout", "60s")
    assert (waited.returncode, "tasks: 3 processed; all have ended" in waited.stdout) == (0, True), waited
    running.close()
