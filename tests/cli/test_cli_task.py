"""`arriero task list` and `arriero task show`."""

import json
from pathlib import Path

import pytest
from cli_calls import Call, json_lines

from arriero.cli import task
from arriero.explain import past
from arriero.model import Instant, TaskRow


def ids(text: str) -> list[str]:
    return [task["id"] for task in json_lines(text)]


def test_list_shows_the_newest_first(sold: Call) -> None:
    lines = sold("task", "list").stdout.splitlines()
    assert lines[0].split() == ["no", "id", "workflow", "state", "failed", "submitted", "took", "reason"]
    assert [line.split()[1] for line in lines[1:]] == [
        "later",
        "step",
        "buggy",
        "unrefundable",
        "compensated",
        "processed",
    ]
    assert "out of stock" in lines[5]  # a reason of two lines is one line here


def test_list_filters_by_state_and_workflow(sold: Call) -> None:
    assert ids(sold("task", "list", "--json", "--state", "held").stdout) == ["buggy", "unrefundable"]
    assert ids(sold("task", "list", "--json", "--workflow", "step:charge").stdout) == ["step"]
    assert sold("task", "list", "--json", "--workflow", "nothing").stdout == ""


def test_list_says_how_many_more_there_are_and_goes_on_before_a_number(sold: Call) -> None:
    first = sold("task", "list", "--json", "--limit", "4")
    assert ids(first.stdout) == ["later", "step", "buggy", "unrefundable"]
    assert first.stderr == "arriero: and 2 more; --limit 0 shows all, --before 3 the next\n"
    rest = sold("task", "list", "--json", "--limit", "4", "--before", "3")
    assert (ids(rest.stdout), rest.stderr) == (["compensated", "processed"], "")
    of_error = sold("task", "list", "--json", "--limit", "1", "--state", "held")
    assert of_error.stderr == "arriero: and 1 more; --limit 0 shows all, --before 4 the next\n"


def test_with_after_list_goes_on_in_the_order_of_submission(sold: Call) -> None:
    first = sold("task", "list", "--json", "--limit", "4", "--after", "0")
    assert ids(first.stdout) == ["processed", "compensated", "unrefundable", "buggy"]
    assert first.stderr == "arriero: and 2 more; --limit 0 shows all, --after 4 the next\n"
    rest = sold("task", "list", "--json", "--limit", "4", "--after", "4")
    assert (ids(rest.stdout), rest.stderr) == (["step", "later"], "")
    between = sold("task", "list", "--json", "--after", "1", "--before", "4")
    assert ids(between.stdout) == ["compensated", "unrefundable"]


def test_limit_0_lists_all_page_by_page(sold: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "PAGE", 2)
    for limit in ("0", "6", "100"):
        told = sold("task", "list", "--json", "--limit", limit)
        assert ids(told.stdout) == ["later", "step", "buggy", "unrefundable", "compensated", "processed"]
        assert told.stderr == ""


def test_list_takes_since_as_a_duration_or_an_instant(sold: Call) -> None:
    everything = ids(sold("task", "list", "--json").stdout)
    submitted = {task["id"]: task["submitted_at"] for task in json_lines(sold("task", "list", "--json").stdout)}
    assert ids(sold("task", "list", "--json", "--since", "2h").stdout) == everything
    assert ids(sold("task", "list", "--json", "--since", "2020-01-01").stdout) == everything
    assert ids(sold("task", "list", "--json", "--since", submitted["buggy"]).stdout) == ["later", "step", "buggy"]
    assert ids(sold("task", "list", "--json", "--since", "0").stdout) == []
    for wrong in ("yesterday", "2h30", "", "2026-13-01"):
        refused = sold("task", "list", "--since", wrong)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "is neither a duration like 90, 15m, 2h or 3d nor an instant like" in refused.stderr


def test_a_verb_takes_since_as_a_filter_and_no_limit(sold: Call) -> None:
    refused = sold("task", "pause", "--since", "2020-01-01", "--reason", "x", "--limit", "1")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--limit" in refused.stderr
    both = sold("task", "pause", "later", "--since", "2h", "--reason", "x")
    assert "both the ID 'later' and a filter (--since 7200 s) are given" in both.stderr
    paused = sold("task", "pause", "--since", "2020-01-01", "--reason", "x", "--dry-run")
    assert "accepted for 1 of 1 task; 5 tasks left out" in paused.stdout
    nobody = sold("task", "pause", "--since", "2999-01-01T12:00+01:00", "--reason", "x")
    assert "no task fits --since 2999-01-01T11:00:00Z" in nobody.stderr


def test_show_tells_steps_attempts_and_the_policy_with_its_product(sold: Call) -> None:
    text = sold("task", "show", "compensated", "--policy").stdout
    assert "state:           compensated\n" in text
    assert "2 x 4 x 5 = 40" in text
    assert "1/20" in text
    assert "calls at most" not in sold("task", "show", "compensated").stdout
    assert "permanent: out of stock [out_of_stock]" in text
    assert "undo of charge" in text


def test_show_tells_what_is_still_to_be_undone_and_who_must_act(sold: Call) -> None:
    shown = json.loads(sold("task", "show", "unrefundable", "--json").stdout)
    assert (shown["state"], shown["waiting_for"]) == ("held", "an operator")
    assert shown["open_compensations"] == ["charge"]
    assert "still to undo:   charge\n" in sold("task", "show", "unrefundable").stdout
    charge, reserve, refund = shown["steps"]
    assert (charge["policy"]["calls_max"], charge["result"]) == (40, "receipt-unrefundable")
    assert (reserve["failure"]["code"], reserve["state"]) == ("out_of_stock", "failed")
    assert (refund["kind"], refund["undoes"], refund["failure"]["code"]) == ("compensation", 1, "closed")


def test_show_tells_until_when_a_task_sleeps(sold: Call) -> None:
    text = sold("task", "show", "later").stdout
    assert "waits for:       the time " in text
    assert "timer sleep" in text


def test_reading_makes_no_store(call: Call, shop: Path) -> None:
    for command in (["task", "list"], ["task", "show", "one"], ["history"], ["history", "one"], ["export"]):
        refused = call(*command)
        assert refused.exit_code == 5
        assert refused.stderr.startswith(f"arriero: store {shop / 'arriero.db'}: there is no such file")
    assert not list(shop.glob("*.db*"))


def test_reading_leaves_another_programs_database_alone(call: Call, shop: Path) -> None:
    (shop / "empty.db").touch()
    assert "no tasks of arriero" in call("task", "list", "--store", "sqlite:///empty.db").stderr
    assert (shop / "empty.db").stat().st_size == 0


def test_show_prints_results_the_output_and_what_it_took(sold: Call) -> None:
    text = sold("task", "show", "processed").stdout
    assert 'output:          "receipt-a"\n' in text
    assert '1  charge  "receipt-a"\n' in text
    assert "\ntook:            0." in text
    assert "idempotency key" not in text  # nobody has to ask for what is done
    shown = json.loads(sold("task", "show", "processed", "--json").stdout)
    assert 0 <= shown["took_seconds"] < 60
    assert (shown["waited_seconds"], shown["held_by"]) == (0, None)
    assert all(step["opened_at"] <= step["started_at"] <= step["finished_at"] for step in shown["steps"])


def test_show_prints_the_idempotency_key_of_what_failed(sold: Call) -> None:
    shown = json.loads(sold("task", "show", "unrefundable", "--json").stdout)
    _, reserve, refund = shown["steps"]
    text = sold("task", "show", "unrefundable").stdout
    keys = text.partition("idempotency key\n")[2].partition("\n\n")[0]
    assert [line.split()[-1] for line in keys.splitlines()] == [reserve["idempotency_key"], refund["idempotency_key"]]
    assert "undo of charge" in keys


def test_show_tells_the_time_that_a_task_waits_for_a_person_apart(sold: Call) -> None:
    lines = sold("task", "show", "unrefundable").stdout.splitlines()
    (took,) = [line for line in lines if line.startswith("took:")]
    assert took.endswith(" waiting for an operator)")
    assert json.loads(sold("task", "show", "unrefundable", "--json").stdout)["waited_seconds"] > 0


def test_list_does_not_count_the_time_that_a_task_waited_for_a_person(
    sold: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "SHORT_SECONDS", 0.0)  # as if they had taken long

    def measure_task(self: past.TaskPast, task: TaskRow, now: Instant) -> past.Elapsed:
        return past.Elapsed(2.1, 10_800.0)

    monkeypatch.setattr(past.TaskPast, "measure_task", measure_task)
    lines = sold("task", "list", "--state", "held").stdout.splitlines()
    assert all("2.1 s" in line for line in lines[1:])
