"""`arriero task list` and `arriero task show`."""

import json
from pathlib import Path

from cli_calls import Call, json_lines


def ids(text: str) -> list[str]:
    return [task["id"] for task in json_lines(text)]


def test_list_shows_tasks_in_the_order_of_submission(sold: Call) -> None:
    lines = sold("task", "list").stdout.splitlines()
    assert lines[0].split() == ["no", "id", "workflow", "state", "failed", "submitted", "took", "reason"]
    assert [line.split()[1] for line in lines[1:]] == [
        "processed",
        "compensated",
        "unrefundable",
        "buggy",
        "step",
        "later",
    ]
    assert "out of stock" in lines[2]  # a reason of two lines is one line here


def test_list_filters_by_state_and_workflow(sold: Call) -> None:
    assert ids(sold("task", "list", "--json", "--state", "error").stdout) == ["unrefundable", "buggy"]
    assert ids(sold("task", "list", "--json", "--workflow", "step:charge").stdout) == ["step"]
    assert sold("task", "list", "--json", "--workflow", "nothing").stdout == ""


def test_list_goes_on_after_a_number_and_says_that_there_is_more(sold: Call) -> None:
    first = sold("task", "list", "--json", "--limit", "4")
    assert ids(first.stdout) == ["processed", "compensated", "unrefundable", "buggy"]
    assert first.stderr == "arriero: there are more: --after 4\n"
    rest = sold("task", "list", "--json", "--limit", "4", "--after", "4")
    assert (ids(rest.stdout), rest.stderr) == (["step", "later"], "")


def test_show_tells_steps_attempts_and_the_policy_with_its_product(sold: Call) -> None:
    text = sold("task", "show", "compensated").stdout
    assert "state:           compensated\n" in text
    assert "2 x 4 x 5 = 40" in text
    assert "permanent: out of stock [out_of_stock]" in text
    assert "undo of charge" in text


def test_show_tells_what_is_still_to_be_undone_and_who_must_act(sold: Call) -> None:
    shown = json.loads(sold("task", "show", "unrefundable", "--json").stdout)
    assert (shown["state"], shown["waiting_for"]) == ("error", "a person")
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
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"arriero: store {shop / 'arriero.db'}: there is no such file")
    assert not list(shop.glob("*.db*"))


def test_reading_leaves_another_programs_database_alone(call: Call, shop: Path) -> None:
    (shop / "empty.db").touch()
    assert "no tasks of arriero" in call("task", "list", "--store", "sqlite:///empty.db").stderr
    assert (shop / "empty.db").stat().st_size == 0
