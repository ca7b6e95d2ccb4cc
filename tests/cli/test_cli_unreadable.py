"""The command line on a row that this release cannot read: it shows the rest, names the column, and never breaks."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_calls import Call, json_lines

BREAKS = {
    "policy": ("later", "task", "policy", '{"x": 1}'),
    "state": ("later", "task", "state", "archived"),
    "failure": ("compensated", "task", "failure", "?"),
    "number": ("later", "task", "failure_count", "many"),
    "instant": ("later", "task", "submitted_at", 10**18),
    "step": ("compensated", "step", "policy", "[]"),
    "step state": ("compensated", "step", "state", "dreaming"),
}


def damage(shop: Path, task_id: str, table: str, column: str, value: object) -> None:
    with closing(sqlite3.connect(shop / "arriero.db")) as connection, connection:
        of_task = "SELECT task_no FROM arriero_task WHERE task_id = ?"
        changed = connection.execute(
            f"UPDATE arriero_{table} SET {column} = ? WHERE task_no = ({of_task})", (value, task_id)
        )
        assert changed.rowcount


@pytest.mark.parametrize("which", BREAKS)
def test_every_command_that_looks_at_tasks_shows_what_can_be_read_and_names_the_column(
    sold: Call, shop: Path, which: str
) -> None:
    task_id, table, column, value = BREAKS[which]
    damage(shop, task_id, table, column, value)
    named = f"column {column} of table {table}"

    shown = sold("task", "show", task_id)
    assert shown.exit_code == 0
    assert f"cannot be read:  {named}" in shown.stdout
    assert f"task:            {task_id} (number" in shown.stdout
    told = json.loads(sold("task", "show", task_id, "--json").stdout)
    assert told["id"] == task_id
    assert any(named in text for text in told["unreadable"])

    explained = sold("task", "explain", task_id)
    assert explained.exit_code == 0
    assert named in explained.stdout
    assert "no verb would move it" in explained.stdout
    assert json.loads(sold("task", "explain", task_id, "--json").stdout)["verbs"] == []

    listed = sold("task", "list", "--json")
    assert listed.exit_code == 0
    reasons = {task["id"]: task["reason"] for task in json_lines(listed.stdout)}
    assert len(reasons) == 6
    assert (named in reasons[task_id]) == (table == "task")


@pytest.mark.parametrize("verb", ["cancel", "resubmit", "compensate", "pause", "resume"])
def test_a_verb_is_refused_in_one_line_that_names_the_column(sold: Call, shop: Path, verb: str) -> None:
    damage(shop, "later", "task", "policy", '{"x": 1}')
    refused = sold("task", verb, "later", "--reason", "test")
    assert refused.exit_code == 3
    assert refused.stderr.startswith("arriero: task 'later' cannot be read: column policy of table task")
    assert refused.stderr.count("\n") == 1


def test_a_verb_for_many_does_what_it_can_and_says_why_not_the_rest(sold: Call, shop: Path) -> None:
    damage(shop, "processed", "task", "policy", '{"x": 1}')
    done = sold("task", "compensate", "--workflow", "fulfil", "--state", "processed", "--reason", "t", "--yes")
    assert "refused processed: task 'processed' cannot be read: column policy of table task" in done.stdout
    tried = sold("task", "pause", "--workflow", "later", "--reason", "t", "--yes", "--dry-run")
    assert tried.exit_code == 0


def test_the_failure_of_one_task_does_not_hide_the_others_from_a_filter_by_failure(sold: Call, shop: Path) -> None:
    damage(shop, "compensated", "task", "failure", "{no json")
    found = sold("task", "list", "--json", "--text", "the bank")
    assert found.exit_code == 0
    assert sold("task", "list", "--json", "--code", "closed").exit_code == 0


def test_export_check_and_history_do_not_look_at_rows_that_cannot_be_read(sold: Call, shop: Path) -> None:
    damage(shop, "later", "task", "state", "archived")
    exported = sold("export")
    assert exported.exit_code == 0
    (shop / "export.jsonl").write_text(exported.stdout)
    assert sold("check", "export.jsonl").exit_code == 0
    assert sold("history", "later").exit_code == 0


def test_doctor_names_the_task_the_column_and_the_next_command(sold: Call, shop: Path) -> None:
    damage(shop, "later", "task", "state", "archived")
    from shopfront import app

    async def run_until_told() -> None:
        async with app.running():
            while all(alert.cause != "unreadable" for alert in await app.session.store.alerts()):
                await asyncio.sleep(0.01)

    damage(shop, "later", "task", "not_before", 0)
    asyncio.run(run_until_told())
    looked_at = sold("doctor")
    assert looked_at.exit_code == 1
    assert "CARE  task later is set apart since" in looked_at.stdout
    assert "column state of table task" in looked_at.stdout
    assert "-> arriero task show later" in looked_at.stdout


def test_a_damaged_commit_of_the_history_hides_neither_the_others_nor_the_next_command(sold: Call, shop: Path) -> None:
    with closing(sqlite3.connect(shop / "arriero.db")) as connection, connection:
        connection.execute("UPDATE arriero_history SET events = 'nothing' WHERE link = 2 AND task_no > 0")
    assert sold("task", "explain", "later").exit_code == 0
    told = sold("history", "compensated")
    assert told.exit_code == 0
    assert "link 2 of its history is damaged and cannot be read" in told.stdout
    assert "submitted to workflow fulfil" in told.stdout
    assert "unreadable link=2" in sold("history").stdout


def test_doctor_names_a_row_that_no_statement_would_find(sold: Call, shop: Path) -> None:
    damage(shop, "later", "task", "not_before", "soon")
    looked_at = sold("doctor")
    assert looked_at.exit_code == 1
    assert (
        "CARE  the file holds what this release cannot read: column not_before of table task (row" in looked_at.stdout
    )
    assert "restore the store from a backup" in looked_at.stdout
