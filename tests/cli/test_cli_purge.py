"""`arriero purge`."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cli_calls import Call, Terminal, json_lines

from arriero import Entry

DAY = 86_400_000_000
OLD = ("processed", "compensated", "step")  # and ended well


@contextmanager
def store(shop: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(shop / "arriero.db")) as connection, connection:
        yield connection


def age(shop: Path, days: int = 10) -> None:
    """Everything as if it had happened so long ago, and everybody had been told of it."""
    with store(shop) as connection:
        connection.execute(
            "UPDATE arriero_task SET submitted_at = submitted_at - :age, ended_at = ended_at - :age",
            {"age": days * DAY},
        )
        connection.execute("UPDATE arriero_alert SET next_at = NULL")


@pytest.fixture
def aged(sold: Call, shop: Path) -> Call:
    """The command line on a store in which tasks ended ten days ago."""
    age(shop)
    return sold


def ids(call: Call) -> list[str]:
    return [task["id"] for task in json_lines(call("task", "list", "--after", "0", "--json").stdout)]


def test_what_ended_well_long_ago_is_removed_with_its_history(aged: Call, shop: Path) -> None:
    done = aged("purge", "--older-than", "8d", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("removed 3 tasks (processed, compensated; ended before ")
    assert done.stderr.startswith("arriero: remove tasks permanently (processed, compensated; ended before ")
    assert ids(aged) == ["unrefundable", "buggy", "later"]
    assert aged("task", "show", "processed").exit_code == 4
    (shop / "history.jsonl").write_bytes(aged("export").stdout_bytes)
    checked = aged("check", "history.jsonl")
    assert checked.exit_code == 0, checked.stdout


def test_errors_are_removed_only_when_asked_for(aged: Call) -> None:
    (done,) = json_lines(aged("purge", "--older-than", "8d", "--state", "held", "--yes", "--json").stdout)
    assert (done["states"], done["removed"]) == (["held"], 2)
    assert ids(aged) == [*OLD, "later"]


def test_small_batches_remove_all_the_same(aged: Call) -> None:
    done = aged("purge", "--older-than", "8d", "--batch", "1", "--yes", "--state", "processed", "--state", "held")
    assert done.stdout.startswith("removed 4 tasks (processed, held; ")
    assert ids(aged) == ["compensated", "later"]


def test_what_ended_more_recently_stays(sold: Call, shop: Path) -> None:
    age(shop, days=7)
    assert sold("purge", "--older-than", "8d", "--yes").stdout.startswith("removed 0 tasks")
    assert len(ids(sold)) == 6


def test_what_was_removed_may_be_submitted_anew(aged: Call) -> None:
    assert aged("purge", "--older-than", "8d", "--yes").exit_code == 0
    assert aged("submit", "shopfront:app", "jammed", "--task-id", "processed").stdout == "task processed is pending\n"


def test_a_dry_run_counts_and_removes_nothing(aged: Call) -> None:
    told = aged("purge", "--older-than", "8d", "--dry-run")
    assert told.stdout.startswith("would remove at most 3 tasks (processed, compensated; ended before ")
    (counted,) = json_lines(aged("purge", "--older-than", "8d", "--dry-run", "--json").stdout)
    assert (counted["at_most"], "removed" in counted) == (3, False)
    assert len(ids(aged)) == 6


def test_without_a_terminal_yes_is_required(aged: Call) -> None:
    refused = aged("purge", "--older-than", "8d")
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert "--yes" in line
    assert "--dry-run" in line
    assert len(ids(aged)) == 6


def test_on_a_terminal_a_person_is_asked_with_the_count(aged: Call, shop: Path) -> None:
    terminal = Terminal(shop, "purge", "--older-than", "8d")
    terminal.until("remove at most 3 tasks permanently (processed, compensated; ended before ")
    terminal.type("n")
    code, output, said = terminal.ended()
    assert (code, output) == (1, "")
    assert "nothing was changed" in said
    assert len(ids(aged)) == 6

    terminal = Terminal(shop, "purge", "--older-than", "8d")
    terminal.type("y")
    code, output, _ = terminal.ended()
    assert (code, output[:15]) == (0, "removed 3 tasks")
    assert len(ids(aged)) == 3


def test_nothing_is_removed_whose_id_must_still_answer(aged: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for more in ("--yes", "--dry-run"):
        refused = aged("purge", "--older-than", "6d", more)
        assert (refused.exit_code, refused.stdout) == (2, "")
        (line,) = refused.stderr.splitlines()
        assert "--older-than 518400 s is shorter than purge.idempotency_keep_seconds, 604800 s (default)" in line
    monkeypatch.setenv("ARRIERO_PURGE_IDEMPOTENCY_KEEP_SECONDS", "3600")
    assert aged("purge", "--older-than", "6d", "--yes").stdout.startswith("removed 3 tasks")


def test_tasks_with_messages_that_nobody_acknowledged_stay(aged: Call, shop: Path) -> None:
    with store(shop) as connection:
        connection.execute(
            "INSERT INTO arriero_status (queue, task_no, number, incarnation, kind, at, data)"
            " SELECT 'web', task_no, 1, 1, 'received', submitted_at, '{}' FROM arriero_task"
            " WHERE task_id = 'processed'"
        )
    assert aged("purge", "--older-than", "8d", "--yes").stdout.startswith("removed 2 tasks")
    assert aged("replies", "web").exit_code == 0
    assert aged("purge", "--older-than", "8d", "--yes").stdout.startswith("removed 1 task ")


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        ([], "give one of --older-than, --task, --convoy and --ledger", 2),
        (["--task", "a", "--convoy", "b"], "give one of --older-than, --task, --convoy and --ledger", 2),
        (["--older-than", "8d", "--ledger", "b"], "give one of --older-than, --task, --convoy and --ledger", 2),
        (["--task", "a", "--state", "held", "--yes"], "--state goes with --older-than", 2),
        (["--task", "a"], "nobody can be asked here; add --yes", 2),
        (["--task", "a", "--yes", "--store", "sqlite:///missing.db"], "there is no such file", 5),
        (["--older-than", "soon"], "'soon' is not a duration", 2),
        (
            ["--older-than", "8d", "--state", "pending"],
            "'pending' is not one of 'processed', 'compensated', 'held'",
            2,
        ),
        (["--older-than", "8d", "--batch", "0"], "0 is not in the range", 2),
        (["--older-than", "8d", "--yes", "--store", "sqlite:///missing.db"], "there is no such file", 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line_and_an_exit_code(call: Call, arguments: list[str], part: str, code: int) -> None:
    refused = call("purge", *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    assert part in line


# --- what is named
def test_a_named_task_is_removed_and_the_history_stays_clean(aged: Call, shop: Path) -> None:
    assert aged("purge", "--task", "processed", "--dry-run").stdout == "would remove task processed\n"
    assert "processed" in ids(aged)
    done = aged("purge", "--task", "processed", "--yes")
    assert (done.exit_code, done.stdout) == (0, "removed task processed\n")
    assert done.stderr == "arriero: remove task processed permanently\n"
    assert "processed" not in ids(aged)
    (shop / "history.jsonl").write_bytes(aged("export").stdout_bytes)
    assert aged("check", "history.jsonl").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["--task", "nobody"], "there is no task 'nobody'; nothing was removed", 4),
        (["--convoy", "nobody"], "there is no convoy 'nobody'; nothing was removed", 4),
        (["--ledger", "nobody"], "there is no ledger 'nobody'; nothing was removed", 4),
        (["--task", "later"], "task 'later' is p", 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_not_there_or_still_open_is_refused_by_name(
    aged: Call, arguments: list[str], part: str, code: int
) -> None:
    before = ids(aged)
    for how in ("--yes", "--dry-run"):
        refused = aged("purge", *arguments, how)
        assert (refused.exit_code, refused.stdout) == (code, "")
        (line,) = refused.stderr.splitlines()
        assert part in line
    assert ids(aged) == before


def test_a_named_task_that_ended_just_now_is_kept_for_its_id(sold: Call) -> None:
    refused = sold("purge", "--task", "processed", "--yes")
    assert refused.exit_code == 3
    assert "ended within purge.idempotency_keep_seconds: its id must still answer" in refused.stderr


def test_a_key_and_a_ledger_go_with_their_tasks_and_no_file_holds_a_byte_of_them(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shopfront import Order, app, fulfil

    secret, why = "Miss-Marple", ("--by", "Miss-Marple", "--reason", "Miss-Marple asked")

    async def sell() -> None:
        async with app.running():
            entries = [
                Entry(fulfil(Order(f"{secret}-{n}")), task_id=f"{secret}-{n}", convoy=f"{secret}-{n % 2}")
                for n in range(4)
            ]
            await app.submit_ledger(f"{secret}.csv", entries)
            for number in range(4):
                await app.task(f"{secret}-{number}").result()
            await app.submit(fulfil(Order("other")), task_id="other", convoy="other")
            await app.task("other").result()

    asyncio.run(sell())
    monkeypatch.setenv("ARRIERO_PURGE_IDEMPOTENCY_KEEP_SECONDS", "0.001")
    for verb in ("park", "release"):
        assert call("convoy", verb, f"{secret}-1", *why).exit_code == 0
    done = call("purge", "--ledger", f"{secret}.csv", "--yes", "--batch", "1")
    assert (done.exit_code, done.stdout) == (0, f"removed ledger {secret}.csv with 4 tasks\n"), done.stderr
    for number in (0, 1):
        (told,) = json_lines(call("purge", "--convoy", f"{secret}-{number}", "--yes", "--json").stdout)
        assert told == {"what": "convoy", "name": f"{secret}-{number}", "removed": 0}
    assert ids(call) == ["other"]
    assert [file for file in shop.glob("arriero.db*") if file.is_file() and secret.encode() in file.read_bytes()] == []
    (shop / "history.jsonl").write_bytes(call("export").stdout_bytes)
    checked = call("check", "history.jsonl")
    assert checked.exit_code == 0, checked.stdout


def test_a_purge_leaves_few_rows_of_processes_that_are_gone(aged: Call, shop: Path) -> None:
    with store(shop) as connection:
        copied = "INSERT INTO arriero_process (instance, lease_until, retired, about, room)"
        chosen = "SELECT ?, lease_until, 1, about, room FROM arriero_process WHERE process_no = 1"
        connection.executemany(f"{copied} {chosen}", [(f"p{n}",) for n in range(500)])
        connection.execute("UPDATE arriero_process SET retired = 1, lease_until = lease_until - ?", (20 * DAY,))
    assert aged("purge", "--older-than", "7d", "--yes").exit_code == 0
    with store(shop) as connection:
        assert connection.execute("SELECT count(*) FROM arriero_process").fetchone()[0] <= 3
    assert aged("task", "list").exit_code == 0
