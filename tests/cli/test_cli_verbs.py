"""`arriero task resubmit`, `compensate`, `cancel`, `extend`, `answer`, `pause` and `resume`."""

import asyncio
import getpass
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_calls import APP, SECONDS_MAX, Call, Run, Terminal, json_lines, order

from arriero import TaskFailed
from arriero.cli import output

WHY = ("--by", "ana", "--reason", "asked by telephone")
OUT_OF_STOCK = ("h1", "h2", "h3")


@pytest.fixture
def troubled(call: Call) -> Call:
    """The command line on a store with tasks that need an operator, and one that sleeps."""
    from shopfront import Order, app, fulfil, held, later, shipped, wired

    async def sell() -> None:
        async with app.running():
            for task_id, work in (
                *((name, held(Order(name, pieces=11))) for name in OUT_OF_STOCK),
                ("doubtful", wired(Order("d"))),
                ("shipped", shipped(Order("s", pieces=11))),
                ("unrefundable", fulfil(Order("unrefundable", pieces=11))),
                ("compensated", fulfil(Order("c", pieces=11))),
                ("processed", fulfil(Order("p"))),
            ):
                task = await app.submit(work, task_id=task_id)
                with suppress(TaskFailed):
                    await task.result()
            await app.submit(later(Order("e")), task_id="later")

    asyncio.run(sell())
    return call


def shown(call: Call, task_id: str) -> Any:
    return json.loads(call("task", "show", task_id, "--json").stdout)


def finished(task_id: str) -> Any:
    """Run the App until the task has ended well; its output."""
    from shopfront import app

    async def run() -> Any:
        async with app.running():
            return await app.task(task_id).result()

    return asyncio.run(run())


def history(call: Call) -> str:
    return str(call("history", "--json").stdout)


# --- one task
@pytest.mark.parametrize(
    ("arguments", "state", "paused"),
    [
        (["resubmit", "h1"], "pending", False),
        (["resubmit", "compensated"], "pending", False),
        (["compensate", "processed"], "compensating", False),
        (["cancel", "later"], "compensating", False),
        (["extend", "h1", "--within", "2d"], "held", False),
        (["pause", "later"], "processing", True),
        (["adjust", "later", "--deadline", "2d"], "processing", False),
        (["answer", "doubtful", "transfer", "--did-not-happen"], "held", False),
        (["answer", "unrefundable", "undo:charge"], "held", False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_verb_needs_a_store_and_no_code(
    troubled: Call, shop: Path, arguments: list[str], state: str, paused: bool
) -> None:
    (shop / "shopfront.py").unlink()
    verb, task_id, *_ = arguments
    if verb == "extend":  # only what has not ended has a limit to move
        assert troubled("task", "resubmit", task_id, *WHY).exit_code == 0
        state = "pending"
    done = troubled("task", *arguments, *WHY)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"task {task_id} is {state}{', paused' if paused else ''}; it waits for ")
    told = json_lines(troubled("task", "list", "--json").stdout)
    (listed,) = (task for task in told if task["id"] == task_id)
    assert (listed["state"], listed["paused"]) == (state, paused)


def test_a_verb_prints_what_the_task_is_now_as_json(troubled: Call) -> None:
    (done,) = json_lines(troubled("task", "resubmit", "h1", *WHY, "--json").stdout)
    assert (done["id"], done["verb"], done["outcome"]) == ("h1", "resubmit", "done")
    assert (done["task"]["state"], done["task"]["incarnation"]) == ("pending", 2)


def test_who_asked_and_why_stand_in_the_history(troubled: Call) -> None:
    assert troubled("task", "pause", "later", "--reason", "night").exit_code == 0
    last = json_lines(history(troubled))[-1]["events"][0]
    assert (last["verb"], last["by"], last["reason"]) == ("pause", getpass.getuser(), "night")


def test_a_paused_task_is_resumed(troubled: Call) -> None:
    assert troubled("task", "pause", "later", *WHY).exit_code == 0
    assert [task["id"] for task in json_lines(troubled("task", "list", "--paused", "--json").stdout)] == ["later"]
    assert "processing, paused" in troubled("task", "list").stdout
    assert troubled("task", "resume", "later", *WHY).exit_code == 0
    assert troubled("task", "list", "--paused", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["cancel", "processed"], "cancel is not allowed there; allowed: compensate", 3),
        (["resume", "later"], "'later' is not paused; allowed: compensate, cancel, adjust, pause", 3),
        (
            ["compensate", "shipped"],
            "step ship is a pivot and has or may have happened; also allowed: resubmit, answer",
            3,
        ),
        (["extend", "later", "--within", "2h"], "'later' has no limit of its own", 3),
        (["adjust", "later", "--attempts", "9"], "has no open step whose limits could change", 3),
        (["adjust", "later", "--at-step", "charge", "--attempts", "9"], "has no step 'charge'", 2),
        (["adjust", "later"], "no limit is named; give at least one of --deadline, --attempts", 2),
        (["adjust", "later", "--deadline", "0"], "--deadline is 0.0 seconds", 2),
        (["adjust", "later", "--attempts", "many"], "'many'", 2),
        (["adjust", "later", "--at-step", "charge", "--deadline", "2h"], "--at-step names a step", 2),
        (["answer", "h1", "charge", "--did-not-happen"], "step charge has a result already; it never changes", 3),
        (["cancel", "nobody"], "no task 'nobody' in the store sqlite:///", 4),
        (
            ["resubmit", "later", "--app", APP, "--arguments", '{"order": {}}'],
            "'later' is processing: resubmit is not allowed there",
            3,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_refusal_is_one_line_that_names_what_is_allowed(
    troubled: Call, arguments: list[str], part: str, code: int
) -> None:
    before = history(troubled)
    for more in ([], ["--dry-run"], ["--json"]):
        refused = troubled("task", *arguments, *WHY, *more)
        assert (refused.exit_code, refused.stdout) == (code, "")
        (line,) = refused.stderr.splitlines()
        assert part in line
    assert history(troubled) == before


def test_a_dry_run_changes_nothing(troubled: Call) -> None:
    before = history(troubled)
    told = troubled("task", "resubmit", "h1", *WHY, "--dry-run")
    assert told.stdout.startswith("resubmit would be accepted; task h1 is held; it waits for an operator; out of stock")
    many = troubled("task", "resubmit", "--state", "held", *WHY, "--dry-run")
    assert many.stdout.splitlines()[0] == "would resubmit h1"
    assert history(troubled) == before


def test_what_was_changed_and_what_was_not_is_told_as_the_dry_run_foretold_it(troubled: Call) -> None:
    asked = ("task", "adjust", "later", *WHY, "--deadline", "2d", "--attempts", "9")
    foretold, done = troubled(*asked, "--dry-run").stdout.splitlines(), troubled(*asked).stdout.splitlines()
    assert foretold[0].startswith("adjust would be accepted; task later is processing")
    assert done[0].startswith("task later is processing")
    assert foretold[1].startswith("would change: to be done by ")
    assert done[1].startswith("changed: to be done by ")
    assert foretold[2] == done[2] == "unchanged: there is no open step"
    as_json = json.loads(troubled(*asked, "--json").stdout)
    assert as_json["changes"][1] == "unchanged: there is no open step"
    many = ("task", "adjust", "--state", "processing", *WHY, "--deadline", "3d", "--attempts", "9", "--yes")
    told = troubled(*many).stdout.splitlines()
    assert told[0].startswith("adjust later: to be done by ")
    assert "; unchanged: there is no open step" in "".join(told)
    (line,) = map(json.loads, troubled(*many, "--json").stdout.splitlines())
    assert (line["outcome"], line["changes"][1]) == ("done", "unchanged: there is no open step")


def test_a_dry_run_on_many_tasks_tells_where_the_verb_would_only_count_as_an_approval(
    troubled: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_PAUSE", "2")
    many = ("task", "pause", "--state", "processing", *WHY, "--dry-run")
    told = " ".join(troubled(*many).stdout.split())
    assert told.endswith("pause: would be accepted for 1 of 1 task, for 1 only as one approval of several")
    line = json.loads(troubled(*many, "--json").stdout)
    assert (line["id"], line["outcome"]) == ("later", "would_count")
    assert line["changes"][0].startswith("would be kept as an approval by ")


def test_a_verb_says_that_nothing_runs(troubled: Call, shop: Path) -> None:
    note = f"arriero: note: no Scheduler is alive on the store sqlite:///{shop}/arriero.db"
    assert troubled("task", "resubmit", "h1", *WHY).stderr.startswith(note)
    assert note in troubled("task", "resubmit", "--state", "held", *WHY, "--yes").stderr


def test_a_verb_says_nothing_of_that_when_something_runs(troubled: Call, start: Callable[..., Run]) -> None:
    start().until("ready")
    assert troubled("task", "pause", "later", *WHY).stderr == ""


# --- edited arguments
def test_a_failed_step_is_sent_other_arguments_and_the_rest_stays_as_it_was(troubled: Call) -> None:
    done = troubled("task", "resubmit", "h1", *WHY, "--app", APP, "--arguments", order("h1", 3))
    assert done.exit_code == 0, done.stderr
    assert finished("h1") == "receipt-h1"
    charge, reserve = shown(troubled, "h1")["steps"]
    assert (charge["attempt"], reserve["attempt"]) == (1, 2)
    assert reserve["arguments"] == {"order": {"id": "h1", "pieces": 3}}


def test_what_was_undone_runs_again_with_other_arguments_of_its_workflow(troubled: Call) -> None:
    one = troubled("task", "resubmit", "compensated", *WHY, "--app", APP, "--arguments", '{"order": {"id": "other"}}')
    assert one.exit_code == 0, one.stderr
    assert finished("compensated") == "receipt-other"
    assert shown(troubled, "compensated")["arguments"] == {"order": {"id": "other", "pieces": 1}}


def test_the_step_whose_arguments_are_edited_is_named_by_label_or_number(troubled: Call) -> None:
    for name in ("reserve", "2"):
        told = troubled(
            "task", "resubmit", "h1", *WHY, "--app", APP, "--arguments", order("1"), "--at-step", name, "--dry-run"
        )
        assert told.exit_code == 0, told.stderr
    wrong = troubled("task", "resubmit", "h1", *WHY, "--app", APP, "--arguments", order("1"), "--at-step", "charge")
    assert "only the arguments of a step that is done again can be edited: reserve" in wrong.stderr


def test_the_configured_app_checks_the_types_too(troubled: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("task", "resubmit", "h1", *WHY, "--dry-run", "--arguments")
    refused = troubled(*asked, order("h1", 3))
    assert refused.exit_code == 2
    assert "name the App with --app MODULE:APP, or set ARRIERO_APP or app in arriero.toml" in refused.stderr
    monkeypatch.setenv("ARRIERO_APP", APP)
    assert troubled(*asked, order("h1", 3)).exit_code == 0
    assert "Expected `int`, got `str` - at `$.order.pieces`" in troubled(*asked, '{"order": {"pieces": "3"}}').stderr


# --- answers
def test_a_result_given_by_hand_ends_the_task(troubled: Call) -> None:
    asked = ("task", "answer", "doubtful", "transfer", *WHY, "--app", APP, "--result")
    assert "step transfer: result: Expected `str`, got `int`" in troubled(*asked, "5").stderr
    done = troubled(*asked, '"paid by hand"')
    assert done.exit_code == 0
    assert "it stays held until `arriero task resubmit doubtful` continues it" in done.stderr
    assert troubled("task", "resubmit", "doubtful", *WHY).exit_code == 0
    assert finished("doubtful") == "paid by hand"


def test_a_result_may_come_from_standard_input(troubled: Call) -> None:
    asked = ("task", "answer", "doubtful", "--at-step", "1", *WHY, "--app", APP, "--result", "-")
    assert troubled(*asked, given='"piped"').exit_code == 0
    assert shown(troubled, "doubtful")["steps"][0]["result"] == "piped"


def test_an_undo_done_by_hand_needs_neither_result_nor_code(troubled: Call) -> None:
    assert troubled("task", "answer", "unrefundable", "undo:charge", *WHY).exit_code == 0
    assert troubled("task", "resubmit", "unrefundable", *WHY).exit_code == 0
    from shopfront import app

    async def run() -> None:
        async with app.running():
            with suppress(TaskFailed):
                await app.task("unrefundable").result()

    asyncio.run(run())
    assert shown(troubled, "unrefundable")["state"] == "compensated"


# --- many tasks
def test_many_are_changed_only_with_yes_where_nobody_can_be_asked(troubled: Call) -> None:
    before = history(troubled)
    refused = troubled("task", "resubmit", "--workflow", "held", *WHY)
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("arriero: resubmit 3 tasks: nobody can be asked here; add --yes to do it, or --dry-run ")
    assert history(troubled) == before
    done = troubled("task", "resubmit", "--workflow", "held", *WHY, "--yes")
    assert (done.exit_code, done.stdout) == (0, "resubmit: accepted for 3 of 3 tasks\n")
    assert done.stderr.startswith("arriero: resubmit 3 tasks\n")
    assert {shown(troubled, name)["incarnation"] for name in OUT_OF_STOCK} == {2}


def test_what_is_refused_of_many_is_listed_with_its_reason(troubled: Call) -> None:
    asked = ("task", "compensate", "--state", "held", "--text", "STOCK", *WHY, "--yes")
    for more, word in (("--dry-run", "would be refused"), ("--yes", "refused")):
        done = troubled(*asked, more)
        assert done.exit_code == 1
        *_, shipped, unrefundable, summary = done.stdout.splitlines()
        assert shipped.startswith(f"{word} shipped: task 'shipped' cannot be compensated: step ship is a pivot")
        assert unrefundable.startswith(f"{word} unrefundable: task 'unrefundable': its undo has begun and failed")
        assert summary.endswith("accepted for 3 of 5 tasks, refused for 2")
    refused = json_lines(troubled(*asked, "--json").stdout)
    assert [(one["id"], one["outcome"]) for one in refused] == [("shipped", "refused"), ("unrefundable", "refused")]


def test_a_filter_that_names_nothing_is_one_line_and_an_exit_code(troubled: Call) -> None:
    refused = troubled("task", "cancel", "--workflow", "parcel", "--older-than", "2h", *WHY, "--yes")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert refused.stderr == (
        "arriero: no task fits --workflow parcel --older-than 7200 s; `arriero task list` takes the same options\n"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--workflow", "wired"], ["doubtful"]),
        (["--agent", "payments", "--state", "held"], ["doubtful", "unrefundable"]),
        (["--step", "transfer"], ["doubtful"]),
        (["--older-than", "0", "--workflow", "later"], ["later"]),
        (["--older-than", "1d"], []),
        (["--code", "out_of_stock", "--workflow", "held"], list(OUT_OF_STOCK)),
        (["--code", "out_of"], []),
        (["--text", "pivot"], ["shipped"]),
        (["--not-paused", "--state", "processing"], ["later"]),
    ],
    ids=" ".join,
)
def test_list_and_verbs_take_the_same_filter(troubled: Call, options: list[str], named: list[str]) -> None:
    listed = json_lines(troubled("task", "list", *options, "--json", "--after", "0").stdout)
    assert [task["id"] for task in listed] == named
    told = json_lines(troubled("task", "compensate", *options, *WHY, "--dry-run", "--json").stdout)
    assert sorted(one["id"] for one in told) == sorted(named)


def test_a_verb_for_many_offers_to_act_only_on_tasks_that_allow_it(troubled: Call, shop: Path) -> None:
    terminal = Terminal(shop, "task", "cancel", "--older-than", "0", *WHY)
    terminal.until("cancel 1 task; 8 tasks left out (6 held, 1 compensated, 1 processed)? [y/N] ")
    terminal.type("y")
    summary = "accepted for 1 of 1 task; 8 tasks left out (6 held, 1 compensated, 1 processed)\n"
    assert terminal.ended()[:2] == (0, f"cancel: {summary}")
    assert shown(troubled, "later")["state"] == "compensating"


def test_a_dry_run_names_only_tasks_that_allow_the_verb(troubled: Call) -> None:
    asked = ("task", "compensate", "--older-than", "0", *WHY, "--dry-run")
    told = troubled(*asked)
    assert told.exit_code == 1  # two are past a pivot, or being undone
    summary = "would be accepted for 6 of 8 tasks, refused for 2; 1 task left out (1 compensated)"
    assert told.stdout.splitlines()[-1] == f"compensate: {summary}"
    assert "would compensate compensated" not in told.stdout
    as_json = troubled(*asked, "--json")
    assert "compensated" not in [one["id"] for one in json_lines(as_json.stdout)]
    assert as_json.stderr == "arriero: 1 task left out (1 compensated)\n"


def test_what_is_refused_of_many_is_not_counted_when_a_person_is_asked(troubled: Call, shop: Path) -> None:
    terminal = Terminal(shop, "task", "compensate", "--state", "held", "--text", "STOCK", *WHY)
    terminal.until("compensate 3 tasks, refused for 2? [y/N] ")
    terminal.type("y")
    code, output, _ = terminal.ended()
    assert (code, output.splitlines()[-1]) == (1, "compensate: accepted for 3 of 5 tasks, refused for 2")


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"], ["--json", "--yes"]], ids=" ".join)
def test_a_verb_that_no_task_of_the_filter_allows_is_one_line_and_an_exit_code(troubled: Call, more: list[str]) -> None:
    before = history(troubled)
    refused = troubled("task", "cancel", "--workflow", "fulfil", *WHY, *more)
    assert (refused.exit_code, refused.stdout) == (3, "")
    says = (
        "there is nothing to cancel among what fits --workflow fulfil: 3 tasks left out (1 held, 1 compensated,"
        " 1 processed); cancel is for tasks that are pending, processing"
    )
    line = json.loads(refused.stderr)["detail"] + "\n" if "--json" in more else refused.stderr.removeprefix("arriero: ")
    assert line == says + "\n"
    assert history(troubled) == before


def test_many_are_answered_alike(troubled: Call) -> None:
    asked = ("task", "answer", "--state", "held", "--step", "reserve", "--at-step", "reserve", *WHY, "--yes")
    done = troubled(*asked, "--app", APP, "--result", "null")
    assert done.exit_code == 1  # of what is being undone the step can no longer be answered
    assert "accepted for 4 of 5 tasks, refused for 1" in done.stdout
    assert "note: 4 tasks held until `arriero task resubmit` continues from there" in done.stderr


def test_on_a_terminal_a_person_is_asked_with_the_count(troubled: Call, shop: Path) -> None:
    before = history(troubled)
    terminal = Terminal(shop, "task", "resubmit", "--workflow", "held", *WHY)
    terminal.until("resubmit 3 tasks? [y/N] ")
    terminal.type("")
    code, output, said = terminal.ended()
    assert (code, output) == (1, "")
    assert "nothing was changed" in said
    assert history(troubled) == before

    terminal = Terminal(shop, "task", "resubmit", "--workflow", "held", *WHY)
    terminal.type("y")
    assert terminal.ended()[:2] == (0, "resubmit: accepted for 3 of 3 tasks\n")


def test_what_fits_the_filter_only_after_a_person_was_asked_is_left_alone(troubled: Call, shop: Path) -> None:
    terminal = Terminal(shop, "task", "pause", "--workflow", "later", *WHY)
    terminal.until("pause 1 task? [y/N] ")
    assert troubled("submit", APP, "later", "--arguments", order("1"), "--task-id", "another").exit_code == 0
    terminal.type("yes")
    assert terminal.ended()[:2] == (0, "pause: accepted for 1 of 1 task\n")
    assert [task["id"] for task in json_lines(troubled("task", "list", "--paused", "--json").stdout)] == ["later"]


def test_what_no_longer_fits_the_filter_once_a_person_has_answered_is_left_alone(troubled: Call, shop: Path) -> None:
    terminal = Terminal(shop, "task", "compensate", "--workflow", "held", "--state", "held", *WHY)
    terminal.until("compensate 3 tasks? [y/N] ")
    assert troubled("task", "resubmit", "h2", *WHY).exit_code == 0
    terminal.type("y")
    code, output, _ = terminal.ended()
    assert (code, output) == (0, "compensate: accepted for 2 of 2 tasks; 1 no longer fit the filter\n")
    assert shown(troubled, "h2")["state"] == "pending"


def test_a_long_change_shows_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", 0.0)  # as if a second had passed
    keyboard, screen = os.openpty()
    with os.fdopen(screen, "w") as terminal, monkeypatch.context() as with_terminal:
        with_terminal.setattr(sys, "stderr", terminal)
        with output.Progress("pause", "tasks", beside_data=False) as progress:
            progress.set_count(200)
            progress.set_count(1_234)
        said = ""
        while not said.endswith("\n"):  # a terminal gives what has come so far
            said += os.read(keyboard, 1_000).decode()
    os.close(keyboard)
    assert said.startswith("\rpause: 200 tasks")
    assert said.endswith("\rpause: 1,234 tasks\r\n")


# --- bad input
@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["resubmit", *WHY], "resubmit what? Give the ID of a task, or say what many have in common", 2),
        (["pause", "h1", "--state", "held", *WHY], "both the ID 'h1' and a filter (--state held) are given", 2),
        (["answer", "h1", "charge", "--step", "charge", *WHY], "a step of one task is named by --at-step", 2),
        (["pause", "h1"], "Missing option '--reason'", 2),
        (["pause", "h1", "--reason", " "], "reason is ' '", 2),
        (["pause", "h1", "--reason", "x", "--by", ""], "by is ''", 2),
        (["pause", "a\tb", *WHY], "control characters", 2),
        (["cancel", "--workflow", "", *WHY, "--yes"], "workflow has 0 characters", 2),
        (["cancel", "--agent", "", *WHY, "--yes"], "agent has 0 characters", 2),
        (["cancel", "--step", "", *WHY, "--yes"], "step has 0 characters", 2),
        (["cancel", "--code", "", *WHY, "--yes"], "--code is empty", 2),
        (["cancel", "--text", "", *WHY, "--yes"], "--text is empty", 2),
        (
            ["cancel", "--older-than", "2w", *WHY],
            "'2w' is neither a duration like 90, 15m, 2h",
            2,
        ),
        (["cancel", "--older-than", "-1", *WHY], "'-1' is neither a duration", 2),
        (["cancel", "--older-than", "nan", *WHY], "'nan' is neither a duration", 2),
        (["cancel", "--older-than", "9" * 400, *WHY], "it must lie between", 2),
        (["extend", "h1", *WHY], "Missing option '--within'", 2),
        (["extend", "h1", *WHY, "--within", "0"], "within is 0.0 seconds", 2),
        (["answer", "h1", *WHY], "answer which step?", 2),
        (["answer", "h1", "charge", "--at-step", "charge", *WHY], "the step is named twice", 2),
        (["answer", "h1", "nothing", *WHY], "it has charge, reserve", 2),
        (["answer", "h1", "reserve", *WHY], "give the result of step reserve, or say that it did not happen", 2),
        (["answer", "h1", "reserve", *WHY, "--result", "1", "--did-not-happen"], "exclude each other", 2),
        (
            ["answer", "h1", "reserve", *WHY, "--result", "null"],
            "--result is checked against the types in your code",
            2,
        ),
        (["answer", "h1", "reserve", *WHY, "--app", APP, "--result", "{"], "--result is not JSON", 2),
        (["answer", "h1", "reserve", *WHY, "--app", APP, "--result", '[{"a": 1, "a": 1}]'], "has the key 'a' twice", 2),
        (
            ["answer", "unrefundable", "undo:charge", *WHY, "--app", APP, "--result", "1"],
            "undo:charge is a compensation and has no result",
            2,
        ),
        (["resubmit", "h1", *WHY, "--at-step", "reserve"], "give both, or none", 2),
        (["resubmit", "--state", "held", *WHY, "--arguments", "{}"], "of one task at a time", 2),
        (["resubmit", "h1", *WHY, "--app", APP, "--arguments", "[]"], "must be a JSON object", 2),
        (["resubmit", "h1", *WHY, "--app", APP, "--arguments", "{}"], "by parameter name, at least one", 2),
        (["resubmit", "h1", *WHY, "--app", APP, "--arguments", '{"oder": 1}'], "unknown field `oder`", 2),
        (
            ["resubmit", "h1", *WHY, "--app", APP, "--arguments", '{"order": {"id": "1", "id": "2"}}'],
            "--arguments has the key 'id' twice",
            2,
        ),
        (["resubmit", "h1", *WHY, "--app", "nowhere:app"], "there is no module 'nowhere'", 2),
        (["pause", "h1", *WHY, "--store", "memory://"], "dies with it", 2),
        (["pause", "h1", *WHY, "--store", "sqlite:///missing.db"], "there is no such file", 5),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_bad_input_is_one_line_and_an_exit_code_and_changes_nothing(
    troubled: Call, arguments: list[str], part: str, code: int
) -> None:
    before = history(troubled)
    refused = troubled("task", *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("arriero: ")
    assert part in line
    assert history(troubled) == before


def test_submit_refuses_doubled_keys_too(call: Call) -> None:
    refused = call("submit", APP, "fulfil", "--arguments", '{"order": {"id": "1"}, "order": {"id": "2"}}')
    assert refused.exit_code == 2
    assert "--arguments has the key 'order' twice" in refused.stderr


def test_what_standard_input_cannot_give_is_one_line_and_an_exit_code(call: Call, shop: Path) -> None:
    asked = ("submit", APP, "fulfil", "--arguments", "-")
    assert "byte 1 of standard input is not UTF-8" in call(*asked, given=b"{\xff}").stderr
    closed = arriero_with_closed_input(shop, *asked)
    assert closed.returncode == 2
    assert closed.stderr == "arriero: --arguments - reads standard input, which is closed\n"


def arriero_with_closed_input(shop: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = shlex.join([sys.executable, "-m", "arriero", *arguments])
    return subprocess.run(
        f"{command} <&-", shell=True, cwd=shop, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )


def test_an_empty_store_is_not_made_by_a_verb(call: Call, shop: Path) -> None:
    assert call("task", "cancel", "one", *WHY).exit_code == 5
    assert not list(shop.glob("*.db*"))


def test_text_of_a_task_moves_no_cursor(call: Call) -> None:
    call("submit", APP, "later", "--arguments", order("1"), "--task-id", "one")
    assert call("task", "cancel", "one", "--by", "ana", "--reason", "\x1b[2J\nred").exit_code == 0
    refused = call("task", "resubmit", "--workflow", "later", *WHY, "--yes")
    assert "\x1b" not in refused.stdout + refused.stderr + call("task", "list").stdout
