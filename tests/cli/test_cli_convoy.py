"""`arriero convoy list`, `show` and its verbs; and what the other commands tell of tasks in a convoy."""

import asyncio
import getpass
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, json_lines

from arriero import ConvoyOutcome, TaskFailed
from arriero.client.convoy import build_convoy_view, show_outcome
from arriero.model import ConvoyRow, Instant, TailRow
from arriero.store.contract import ConvoyLoaded

WHY = ("--by", "ana", "--reason", "asked by telephone")


@pytest.fixture
def keyed(call: Call) -> Call:
    """The command line on a store with a key that is stopped, one at a gap, one under way, and one that is idle.

    customer-7: order-11 held, order-12 and order-13 behind it. lane 4: sequence 1 done, 3 and 6 there. dozing: two that
    sleep. done: one that has ended.
    """
    from shopfront import Order, app, fulfil, held, later

    async def sell() -> None:
        async with app.running():
            for number, pieces in ((11, 11), (12, 1), (13, 1)):
                await app.submit(held(Order(f"{number}", pieces)), task_id=f"order-{number}", convoy="customer-7")
            for sequence in (3, 6, 1):
                task_id = f"lane-{sequence}"
                await app.submit(fulfil(Order(task_id)), task_id=task_id, convoy="lane 4", sequence=sequence)
            for number in (1, 2):
                await app.submit(later(Order("e")), task_id=f"doze-{number}", convoy="dozing")
            await app.submit(fulfil(Order("done")), task_id="done-1", convoy="done")
            for task_id in ("lane-1", "done-1"):
                await app.task(task_id).result()
            with pytest.raises(TaskFailed):
                await app.task("order-11").result()

    asyncio.run(sell())
    return call


def told(call: Call, *arguments: str) -> str:
    """The one line that a verb prints."""
    done = call("convoy", *arguments, *WHY)
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return str(line)


def board(call: Call, key: str) -> Any:
    return json.loads(call("convoy", "show", key, "--json").stdout)


# --- the export
def test_an_export_of_several_keys_that_people_acted_on_is_clean_and_names_each_key(keyed: Call) -> None:
    told(keyed, "move-to-head", "customer-7", "order-13")
    for verb, key in (
        ("skip", "customer-7"),
        ("skip", "lane 4"),
        ("park", "dozing"),
        ("park", "done"),
        ("release", "done"),
    ):
        told(keyed, verb, key)
    exported = keyed("export").stdout_bytes
    checked = keyed("check", "-", given=exported)
    assert (checked.exit_code, checked.stdout[:7]) == (0, "clean: "), checked.stdout
    rows = [json.loads(line) for line in exported.splitlines()[:-1]]
    named = {row["task_no"]: row["task"] for row in rows if row["task_no"] < 0}
    assert set(named.values()) == {"customer-7", "lane 4", "dozing", "done"}
    assert len(named) == 4
    assert "convoy:dozing" in keyed("history").stdout


# --- looking
def test_the_list_names_all_keys_that_are_not_idle(keyed: Call) -> None:
    listed = keyed("convoy", "list")
    assert (listed.exit_code, listed.stderr) == (0, "")
    columns, *lines = listed.stdout.splitlines()
    assert columns.split("  ")[0].startswith("no")
    assert [line.split()[1] for line in lines] == ["customer-7", "lane", "dozing"]
    assert lines[0].endswith("task order-11, which is held: resubmit it, or `arriero convoy skip customer-7`")
    assert "sequence 2, which has not come; if it does not by " in lines[1]
    assert lines[2].endswith("task doze-1, whose turn it is")


def test_the_list_takes_a_state_and_goes_on_where_it_was_cut(keyed: Call) -> None:
    (idle,) = json_lines(keyed("convoy", "list", "--state", "idle", "--json").stdout)
    assert (idle["key"], idle["state"], idle["waiting_for"]) == ("done", "idle", "a new task")
    first = keyed("convoy", "list", "--limit", "2", "--json")
    *_, last = json_lines(first.stdout)
    assert first.stderr == f"arriero: there are more: --after {last['no']}\n"
    rest = keyed("convoy", "list", "--after", str(last["no"]), "--json")
    assert ([one["key"] for one in json_lines(rest.stdout)], rest.stderr) == (["dozing"], "")
    assert keyed("convoy", "list", "--state", "parked", "--json").stdout == ""


def test_the_board_of_a_key_tells_what_it_waits_for_and_who_comes_next(keyed: Call) -> None:
    lines = keyed("convoy", "show", "customer-7").stdout.splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert found["convoy"] == "customer-7 (number 1), ordered by place"
    assert (found["state"], found["head"], found["next"]) == ("stopped", "order-11", "order-12, order-13")
    assert found["waits for"].startswith("task order-11, which is held")
    assert found["since"].endswith("Z")
    assert found["policy"] == "head wait; gap wait; gap within 3600 s"
    assert "missing" not in found


def test_the_board_of_a_sequence_tells_what_is_missing(keyed: Call) -> None:
    shown = keyed("convoy", "show", "lane 4", "--limit", "1").stdout
    assert "missing:         sequence 2\n" in shown
    assert "next:            lane-3 and 1 more\n" in shown
    assert board(keyed, "lane 4")["missing"] == [[2, 2], [4, 5]]


def test_what_was_set_aside_stands_on_the_board_with_its_reason(keyed: Call) -> None:
    told(keyed, "skip", "customer-7")
    assert board(keyed, "customer-7")["set_aside_tasks"] == [["order-11", "out of\nstock"]]
    assert keyed("convoy", "show", "customer-7").stdout.splitlines()[-1] == "order-11   out of stock"


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["show", "nobody"], "there is no convoy 'nobody' in the store sqlite:///", 4),
        (["show", ""], "convoy", 2),
        (["list", "--state", "broken"], "'broken' is not one of 'idle', 'open', 'stopped', 'gap', 'parked'", 2),
        (["skip", "nobody", *WHY], "no convoy 'nobody' in the store sqlite:///", 4),
        (["skip", "customer-7"], "Missing option '--reason'", 2),
        (["park", "", *WHY], "convoy has 0 characters", 2),
        (["skip", "customer-7", "--by", "", "--reason", "x"], "a verb says who asks for it and why", 2),
        (
            ["release", "customer-7", *WHY],
            "is stopped: release is not allowed there; allowed: set, skip, park, move-to",
            3,
        ),
        (["skip", "dozing", *WHY], "is open: skip is not allowed there; allowed: set, park, move-to-head", 3),
        (
            ["move-to-head", "customer-7", "order-12", *WHY],
            "'order-12' is the next already; also allowed: set, skip",
            3,
        ),
        (["move-to-head", "customer-7", "doze-2", *WHY], "the task is not in it", 3),
        (["move-to-head", "customer-7", "nobody", *WHY], "no task 'nobody' in the store sqlite:///", 4),
        (["set", "customer-7", *WHY], "Give at least one of head, gap and gap_within", 2),
        (["set", "customer-7", "--head", "stop", *WHY], "'stop' is not one of 'wait', 'skip', 'park', 'workflow'", 2),
        (["set", "customer-7", "--gap-within", "soon", *WHY], "'--gap-within': 'soon' is not a duration", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_refusal_is_one_line_and_an_exit_code(keyed: Call, arguments: list[str], part: str, code: int) -> None:
    before = keyed("history", "--json").stdout
    for more in ([], ["--json"]):
        refused = keyed("convoy", *arguments, *more)
        assert (refused.exit_code, refused.stdout) == (code, "")
        (line,) = refused.stderr.splitlines()
        assert part in line
    assert keyed("history", "--json").stdout == before


def test_the_group_alone_tells_its_commands(call: Call) -> None:
    assert "move-to-head" in call("convoy").stdout


# --- acting
def test_a_verb_needs_a_store_and_no_code(keyed: Call, shop: Path) -> None:
    (shop / "shopfront.py").unlink()
    assert told(keyed, "park", "dozing") == (
        "convoy 'dozing' is parked; task doze-1 goes to its end, and nothing more begins until"
        " `arriero convoy release dozing`"
    )


def test_a_release_tells_what_the_key_goes_on_with_or_still_waits_for(keyed: Call) -> None:
    park = "convoy 'customer-7' is parked; nothing more begins until `arriero convoy release customer-7`"
    assert told(keyed, "park", "customer-7") == park
    assert told(keyed, "release", "customer-7") == (
        "convoy 'customer-7' is released; it still waits for task order-11, which is held: resubmit it, or"
        " `arriero convoy skip customer-7`"
    )
    told(keyed, "park", "customer-7")
    skipped = (
        "convoy 'customer-7': task order-11 is set aside; it stays parked until `arriero convoy release customer-7`"
    )
    assert told(keyed, "skip", "customer-7") == skipped
    assert told(keyed, "release", "customer-7") == "convoy 'customer-7' is released; it continues with task order-12"
    told(keyed, "park", "done")
    assert told(keyed, "release", "done") == "convoy 'done' is released; nothing waits in it"


def test_a_skip_at_a_gap_tells_what_is_skipped(keyed: Call) -> None:
    assert told(keyed, "skip", "lane 4") == "convoy 'lane 4': sequence 2 is skipped; it continues with task lane-3"


def test_a_task_is_moved_to_the_head(keyed: Call) -> None:
    assert told(keyed, "move-to-head", "customer-7", "order-13").startswith(
        "convoy 'customer-7': task order-13 comes before all others that wait; it waits for task order-11,"
    )
    assert board(keyed, "customer-7")["next_tasks"] == ["order-13", "order-12"]


def test_a_key_gets_a_policy_of_its_own_and_gives_parts_of_it_back(keyed: Call) -> None:
    line = told(keyed, "set", "lane 4", "--gap", "park", "--gap-within", "2h")
    assert line.startswith(
        "convoy 'lane 4' has the policy head wait; gap park (its own); gap within 7200 s (its own); it still waits for"
    )
    told(keyed, "set", "lane 4", "--head", "skip", "--gap-within", "workflow")
    assert board(keyed, "lane 4")["own_policy"] == {"head": "skip", "gap": "park"}
    assert told(keyed, "set", "done", "--head", "park") == (
        "convoy 'done' has the policy head park (its own); else that of the workflow of each task"
    )
    assert told(keyed, "set", "customer-7", "--head", "skip").endswith("; it continues with task order-12")


def test_a_verb_tells_the_task_that_it_let_go_also_if_that_has_ended_since() -> None:
    convoy = ConvoyRow(convoy_no=1, key="lane 4", ordering="sequence")
    since = build_convoy_view(
        ConvoyLoaded(convoy, TailRow(convoy_no=1, key="lane 4", ordering="sequence"), 0, 0), Instant(0)
    )
    shown = show_outcome(since, ConvoyOutcome("open", "lane-3"))
    assert (shown.state, shown.open_task, shown.waiting_for) == ("open", "lane-3", "task lane-3, whose turn it is")
    assert show_outcome(since, ConvoyOutcome("idle", None)) is since


def test_a_verb_prints_what_the_convoy_is_now_as_json(keyed: Call) -> None:
    (done,) = json_lines(keyed("convoy", "park", "customer-7", *WHY, "--json").stdout)
    assert (done["key"], done["verb"], done["outcome"]) == ("customer-7", "park", "done")
    assert (done["convoy"]["state"], done["convoy"]["open_task"]) == ("parked", "order-11")


def test_who_asked_and_why_stand_in_the_history(keyed: Call) -> None:
    assert keyed("convoy", "park", "dozing", "--reason", "night").exit_code == 0
    last = json_lines(keyed("history", "--json").stdout)[-1]["events"][0]
    assert (last["verb"], last["by"], last["reason"]) == ("park", getpass.getuser(), "night")


def test_a_verb_says_that_nothing_runs(keyed: Call) -> None:
    assert "note: no Scheduler is alive" in keyed("convoy", "skip", "customer-7", *WHY).stderr


def test_what_it_says_to_type_works_as_it_is_typed(keyed: Call) -> None:
    words = board(keyed, "lane 4")["waiting_for"]
    assert "`" not in words  # its limit has not passed: nobody needs to act
    told(keyed, "set", "lane 4", "--gap-within", "0")
    (typed,) = board(keyed, "lane 4")["waiting_for"].split("`")[1::2]
    assert typed == "arriero convoy skip 'lane 4'"
    done = keyed(*shlex.split(typed)[1:], *WHY)
    assert done.exit_code == 0, done.stderr


# --- other commands
def test_a_task_shows_its_convoy_its_place_and_what_it_waits_for(keyed: Call) -> None:
    shown = keyed("task", "show", "order-13").stdout
    assert "convoy:          'customer-7', place 3: its turn has not come\n" in shown
    assert (
        "waits for:       its turn in convoy 'customer-7', behind 2 others; the convoy is blocked on task order-11,"
        " which is held\n"
    ) in shown
    one = json.loads(keyed("task", "show", "lane-3", "--json").stdout)
    assert (one["convoy"], one["place"], one["sequence"], one["turn"]) == ("lane 4", 1, 3, "waiting")
    assert one["waiting_for"] == "its turn in convoy 'lane 4'; sequence 2 has not come"
    assert "convoy:" not in keyed("task", "show", "doze-1").stdout.replace("convoy:          'dozing'", "")


def test_a_task_explains_what_it_waits_for_in_its_convoy(keyed: Call) -> None:
    waiting = keyed("task", "explain", "order-12").stdout
    assert (
        "- it waits for its turn in convoy 'customer-7', behind 1 other; the convoy is blocked on task order-11, which is"
        " held; it has place 2\n"
    ) in waiting
    assert "only news of a step would wake it" not in waiting
    stopped = keyed("task", "explain", "order-11").stdout
    assert (
        "- it has the turn in convoy 'customer-7', which is blocked until it is fixed; to continue without it:"
        " `arriero convoy skip customer-7`\n"
    ) in stopped
    under_way = keyed("task", "explain", "doze-1").stdout
    assert (
        "- it has the turn in convoy 'dozing', with place 1: the others of the convoy wait for its end\n" in under_way
    )
    told(keyed, "park", "customer-7")
    assert "; the convoy is parked besides (by ana: asked by telephone) until `arriero convoy release customer-7`" in (
        keyed("task", "explain", "order-11").stdout
    )
    (reason, *_) = json.loads(keyed("task", "explain", "order-12", "--json").stdout)["reasons"]
    assert reason["kind"] == "waits_for_turn"


def test_what_was_set_aside_explains_that_its_place_is_lost_when_it_comes_back_late(keyed: Call) -> None:
    told(keyed, "skip", "customer-7")
    told(keyed, "set", "customer-7", "--head", "skip")
    from shopfront import app

    async def run() -> None:
        async with app.running():
            await app.task("order-13").result()

    asyncio.run(run())
    explained = keyed("task", "explain", "order-11").stdout
    assert "- convoy 'customer-7' has set it aside and continues without it; resubmit brings it back" in explained
    assert "its place is lost then: others that came after it have gone before" in explained
    assert "- resubmit: does again: reserve; recorded results stay; it waits for its turn in convoy" in explained
    told(keyed, "park", "customer-7")
    done = keyed("task", "resubmit", "order-11", *WHY)
    assert done.stdout.strip().endswith("; its place is lost: others that came after it have gone before")


def test_the_doctor_finds_keys_that_stand_still(keyed: Call) -> None:
    def care() -> dict[str, str]:
        findings = json.loads(keyed("doctor", "--json").stdout)["findings"]
        return {one["says"]: one["remedy"] for one in findings if one["about"] == "convoys" and one["level"] == "care"}

    ((says, remedy),) = care().items()
    assert says.startswith(
        "1 convoy stands still on a held task, with 2 tasks waiting; the first is 'customer-7' since"
    )
    assert remedy.startswith("arriero convoy list --state stopped; fix that task, or set it aside with")
    told(keyed, "set", "lane 4", "--gap-within", "0")
    told(keyed, "park", "dozing")
    told(keyed, "park", "done")
    assert [line.split(" still ")[1].split(",")[0] for line in care()] == [
        "on a held task",
        "until an operator releases it",
        "for a number that has not come in time",
    ]
    assert "2 convoys stand still until an operator releases it" in " ".join(care())
    told(keyed, "release", "dozing")
    assert not any("until an operator" in says for says in care())  # nothing waits in the one that is parked
