"""`arriero store assign`: whose the tasks of a store are, said by an operator."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_calls import APP, Call, arriero, json_lines

from arriero import StoreError
from arriero.store.sqlite.store import SqliteStore

TRAVEL = "from shopfront import app\nfrom arriero import App\napp = App('travel', agents=app.agents, workflows=app.workflows)\n"


def older(shop: Path) -> None:
    """The tasks stand as release 0.4.0 kept them."""
    with closing(sqlite3.connect(shop / "arriero.db")) as connection:
        connection.execute("UPDATE arriero_task SET app = ''")
        connection.execute("UPDATE arriero_step SET app = ''")
        connection.commit()


def apps(call: Call) -> dict[str, str]:
    return {line["id"]: line["app"] for line in json_lines(call("task", "list", "--json").stdout)}


def test_a_second_app_is_refused_in_one_line_until_a_person_says_whose_the_open_tasks_are(
    sold: Call, shop: Path
) -> None:
    (shop / "travel.py").write_text(TRAVEL)
    older(shop)
    refused = arriero(shop, "run", "travel:app")
    assert (refused.returncode, refused.stdout) == (3, "")
    (line,) = refused.stderr.splitlines()
    assert "App 'travel' and App 'shopfront' both have a workflow" in line
    assert "open tasks of 'buggy', 'fulfil', 'later' were kept by a release that did not record their App" in line
    assert "arriero store assign --to shopfront --reason WHY" in line
    assert sold("store", "assign", "--to", "shopfront", "--reason", "ours", "--yes").exit_code == 0
    begun = sold("submit", "travel:app", "fulfil", "--arguments", '{"order":{"id":"x"}}', "--task-id", "new")
    assert begun.exit_code == 0
    assert apps(sold)["new"] == "travel"
    assert apps(sold)["later"] == "shopfront"


def test_a_dry_run_counts_and_changes_nothing(sold: Call, shop: Path) -> None:
    older(shop)
    done = sold("store", "assign", "--to", "shopfront", "--reason", "ours", "--dry-run")
    assert (done.exit_code, done.stdout) == (
        0,
        "3 tasks would be of App 'shopfront': 1 of buggy, 1 of fulfil, 1 of later\n",
    )
    assert set(apps(sold).values()) == {""}


def test_what_is_open_or_in_error_is_given_and_the_rest_when_it_is_asked_for(sold: Call, shop: Path) -> None:
    older(shop)
    asked = ("store", "assign", "--to", "shopfront", "--reason", "ours", "--by", "ana", "--yes", "--json")
    (told,) = json_lines(sold(*asked).stdout)
    assert told == {
        "app": "shopfront",
        "from_app": "",
        "dry_run": False,
        "workflows": {"buggy": 1, "fulfil": 1, "later": 1},
        "refused": {},
    }
    assert {task_id for task_id, app in apps(sold).items() if app} == {"unrefundable", "buggy", "later"}
    (told,) = json_lines(sold(*asked, "--ended").stdout)
    assert told["workflows"] == {"fulfil": 2, "step:charge": 1}
    assert set(apps(sold).values()) == {"shopfront"}
    assert "ana gives it to App 'shopfront', nothing said whose it was: ours" in sold("history", "later").stdout


def test_one_task_is_given_by_its_id(sold: Call, shop: Path) -> None:
    older(shop)
    asked = ("store", "assign", "--to", "travel", "--reason", "theirs", "--yes")
    assert sold(*asked, "--task", "later").stdout == "1 task is of App 'travel': 1 of later\n"
    assert {task_id for task_id, app in apps(sold).items() if app} == {"later"}
    missing = sold(*asked, "--task", "nowhere")
    assert (missing.exit_code, missing.stderr.count("\n")) == (4, 1)
    assert "there is no task 'nowhere'" in missing.stderr


def test_an_app_that_was_renamed_hands_over_its_tasks(sold: Call, shop: Path) -> None:
    done = sold("store", "assign", "--from", "shopfront", "--to", "front", "--reason", "renamed", "--yes")
    assert (done.exit_code, done.stdout) == (0, "3 tasks are of App 'front': 1 of buggy, 1 of fulfil, 1 of later\n")
    assert "app.renamed" in sold("history").stdout
    (shop / "h.jsonl").write_text(sold("export").stdout)
    assert sold("check", "h.jsonl").exit_code == 0
    refused = sold("store", "assign", "--task", "later", "--to", "travel", "--reason", "no", "--yes")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "task 'later' is of App 'front': give it away with --from front" in refused.stderr


def test_bad_names_are_refused_and_so_is_what_nobody_can_be_asked_about(sold: Call, shop: Path) -> None:
    older(shop)
    for wrong in (("--to", ""), ("--to", "a\x1bb"), ("--to", "shopfront", "--from", "shopfront")):
        refused = sold("store", "assign", *wrong, "--reason", "ours", "--yes")
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    refused = sold("store", "assign", "--to", "shopfront", "--reason", "ours")
    assert refused.exit_code == 2
    assert "nobody can be asked here" in refused.stderr
    assert "a verb says who asks for it and why" in sold("store", "assign", "--to", "x", "--reason", " ").stderr


def test_tasks_of_an_app_that_runs_are_its_own(call: Call, start: object) -> None:
    run = start()  # type: ignore[operator]
    run.until("ready")
    refused = call("store", "assign", "--from", "shopfront", "--to", "travel", "--reason", "no", "--yes")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "App 'shopfront' runs in process 1: stop it first" in refused.stderr


def test_a_list_tells_the_app_beside_the_workflow_only_where_there_are_several(sold: Call, shop: Path) -> None:
    assert "(shopfront)" not in sold("task", "list").stdout
    assert "App:             shopfront" in sold("task", "show", "later").stdout
    (shop / "travel.py").write_text(TRAVEL)
    sold("submit", "travel:app", "fulfil", "--arguments", '{"order":{"id":"x"}}', "--task-id", "new")
    listed = sold("task", "list").stdout
    assert "fulfil (travel)" in listed
    assert "fulfil (shopfront)" in listed
    again = sold("submit", APP, "fulfil", "--arguments", '{"order":{"id":"x"}}', "--task-id", "new")
    assert (again.exit_code, again.stdout) == (3, "")
    assert "task 'new' exists with another App" in again.stderr


def test_an_app_that_the_store_does_not_know_is_refused_and_no_rename_is_recorded(sold: Call) -> None:
    asked = ("store", "assign", "--from", "shopfrnt", "--to", "boutique", "--reason", "a new name", "--yes")
    for more in ((), ("--dry-run",)):
        refused = sold(*asked, *more)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert "there is no App 'shopfrnt' in the store" in refused.stderr
        assert refused.stderr.endswith("; Apps of its latest tasks: 'shopfront'\n")
    assert "app.renamed" not in sold("export").stdout


def test_a_rename_may_be_asked_for_again_also_when_a_crash_came_before_it_was_recorded(
    sold: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        raise StoreError("the process died here")

    asked = ("store", "assign", "--from", "shopfront", "--to", "boutique", "--reason", "a new name", "--yes", "--ended")
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "rename_app", crash)
        assert sold(*asked).exit_code == 5
    assert set(apps(sold).values()) == {"boutique"}
    for _ in range(2):
        assert sold(*asked).stdout == "0 tasks are of App 'boutique'\n"
    assert sold("export").stdout.count('"app.renamed"') == 2
