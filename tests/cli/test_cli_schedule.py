"""``arriero schedule``: what an operator sees of schedules, and what they may do to one."""

import asyncio
import sys
from pathlib import Path

import pytest
from cli_calls import Call, json_lines
from click.testing import Result

PRESS = '''
"""Reports, one of which is declared to be written each night."""

from arriero import Agent, App, Attempt, workflow

press = Agent("press")


@press.step(effect_free=True)
def write(attempt: Attempt, day: str) -> str:
    return f"report of {day}"


@workflow
async def report(day: str = "today") -> str:
    return await write(day)


app = App("press", agents=[press], workflows=[report], store="sqlite:///arriero.db")
app.schedule("nightly", report(), cron="30 2 * * *", timezone="Europe/Madrid")
app.schedule("hourly", report("all"), every=3600, overlap="queue", catch_up=7200)
'''
WHY = ("--by", "ana", "--reason", "she says so")
pytestmark = pytest.mark.usefixtures("healthy_machine")


@pytest.fixture
def press(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line on a store in which a process of the App has run."""
    (shop / "press.py").write_text(PRESS)
    monkeypatch.delitem(sys.modules, "press", raising=False)
    monkeypatch.setenv("ARRIERO_STORE", f"sqlite:///{shop / 'arriero.db'}")
    monkeypatch.syspath_prepend(str(shop))

    async def run() -> None:
        from press import app

        async with app.running():
            pass

    asyncio.run(run())
    return call


def plain(result: Result) -> str:
    return " ".join(result.output.split())


def refused(result: Result, code: int = 2) -> str:
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith("arriero: ")
    return line


def test_the_list_tells_what_is_due_and_when(press: Call) -> None:
    listed = press("schedule", "list")
    assert listed.exit_code == 0
    first, *rows = listed.output.splitlines()
    assert first.split()[:4] == ["schedule", "app", "state", "due"]
    assert [row.split()[:3] for row in rows] == [["hourly", "press", "active"], ["nightly", "press", "active"]]
    assert "cron 30 2 * * * in Europe/Madrid" in rows[1]
    views = json_lines(press("schedule", "list", "--json").stdout)
    assert [(view["name"], view["runs"], len(view["next_runs"])) for view in views] == [
        ("hourly", 0, 5),
        ("nightly", 0, 5),
    ]
    assert press("schedule", "list", "--app-name", "other").output.splitlines()[1:] == []


def test_one_is_shown_with_its_next_instants_its_rules_and_its_commands(press: Call) -> None:
    shown = press("schedule", "show", "hourly")
    assert shown.exit_code == 0
    text = plain(shown)
    assert 'submits: report {"day":"all"}' in text
    assert "due: every 1 h declared: in code state: active last run: none yet" in text
    assert "overlap: queue: runs wait for their turn, one after the other" in text
    assert "missed runs: missed runs are run late for 2 h" in text
    assert shown.output.count("UTC  ") == 5
    assert "code declared it: report, every 1 h, overlap queue" in text
    assert "arriero schedule pause hourly --app-name press --reason TEXT" in shown.output
    (view,) = json_lines(press("schedule", "show", "nightly", "--json").stdout)
    assert (view["schedule"]["timezone"], view["schedule"]["catch_up"]) == ("Europe/Madrid", None)


def test_a_schedule_that_is_not_there_is_refused_in_one_line(press: Call) -> None:
    assert "there is no schedule 'weekly'; see `arriero schedule list`" in refused(
        press("schedule", "show", "weekly"), 4
    )
    assert "there is no schedule 'nightly' of App 'x'" in refused(
        press("schedule", "show", "nightly", "--app-name", "x"), 4
    )
    for verb in ("pause", "resume", "remove", "run-now"):
        assert "there is no schedule 'weekly'" in refused(press("schedule", verb, "weekly", *WHY), 4)


def test_a_pause_is_shown_with_who_and_why_and_ends_with_a_resume(press: Call) -> None:
    paused = press("schedule", "pause", "nightly", *WHY)
    assert plain(paused) == "schedule nightly of App press runs nothing until it is resumed"
    shown = press("schedule", "show", "nightly")
    assert 'by ana: "she says so"' in shown.output
    assert "next runs:    none" in shown.output
    assert "arriero schedule resume nightly --app-name press --reason TEXT" in shown.output
    assert "is paused already, by ana: she says so" in refused(press("schedule", "pause", "nightly", *WHY), 3)
    assert "runs next at" in press("schedule", "resume", "nightly", *WHY).output
    assert "is not paused" in refused(press("schedule", "resume", "nightly", *WHY), 3)


def test_a_verb_needs_a_reason(press: Call) -> None:
    assert "Missing option '--reason'" in refused(press("schedule", "pause", "nightly"))


def test_what_is_removed_is_gone_and_who_declares_it_is_told(press: Call) -> None:
    removed = plain(press("schedule", "remove", "nightly", *WHY))
    assert "is removed; its runs stay; its code declares it, so it is back" in removed
    assert "there is no schedule" in refused(press("schedule", "show", "nightly"), 4)


def test_a_run_of_now_is_a_task(press: Call) -> None:
    said = press("schedule", "run-now", "hourly", *WHY).output.split()
    assert said[0] == "submitted"
    (run,) = json_lines(press("schedule", "run-now", "nightly", *WHY, "--json").stdout)
    assert run["outcome"] == "submitted"
    listed = json_lines(press("task", "list", "--json").stdout)
    assert {task["id"] for task in listed} == {said[1], run["task_id"]}
    assert f"arriero task explain {said[1]}" in press("schedule", "show", "hourly").output


def test_a_schedule_is_added_and_tells_when_it_runs_first(press: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    cron = ("--cron", "0 9 * * 1", "--timezone", "Europe/Madrid")
    added = press("schedule", "add", "press:app", "weekly", "report", "--arguments", '{"day":"x"}', *cron, *WHY)
    assert added.exit_code == 0, added.output
    assert added.stdout.startswith("schedule weekly of App press runs next at ")
    shown = plain(press("schedule", "show", "weekly"))
    assert "declared: by ana" in shown
    assert 'ana added it: report, cron 0 9 * * 1 in Europe/Madrid, overlap skip ("she says so")' in shown
    monkeypatch.setenv("ARRIERO_APP", "press:app")
    again = press("schedule", "add", "weekly", "report", "--every", "2h", *WHY)
    assert "exists with another declaration; remove it first" in refused(again, 3)
    taken = press("schedule", "add", "press:app", "nightly", "report", "--every", "2h", *WHY)
    assert "is declared by the code of App 'press': change it there" in refused(taken, 3)
    once = ("--at", "2999-01-01T00:00Z", "--tag", "tenant=acme", "--tag", "region=eu", "--json")
    (outcome,) = json_lines(press("schedule", "add", "press:app", "once", "report", *once, *WHY).stdout)
    assert (outcome["verb"], outcome["schedule"]["at"]) == ("add", "2999-01-01T00:00:00Z")
    assert outcome["schedule"]["tags"] == {"region": "eu", "tenant": "acme"}
    shown = plain(press("schedule", "show", "once"))
    assert "tags: region=eu tenant=acme" in shown
    assert "overlap skip, tagged region=eu tenant=acme" in shown
    wrong = press("schedule", "add", "press:app", "other", "report", "--every", "2h", "--tag", "acme", *WHY)
    assert "'acme' is not a tag; write NAME=VALUE" in wrong.output


WRONG = [
    (("--cron", "61 * * * *"), "cannot be read: Bad minute"),
    (("--cron", "0 3 * * *", "--timezone", "Europe/Madird"), "the time zone 'Europe/Madird' is not known"),
    (("--cron", "0 3 * * *", "--timezone", "Factory"), "the time zone 'Factory' means that no zone was set"),
    (("--every", "0"), "every is 0 s; it must be at least 1 second"),
    (("--every", "soon"), "'soon' is not a duration"),
    (("--at", "2027-01-01T00:00"), "names no time zone"),
    (("--at", "2020-01-01T00:00Z"), "which has passed"),
    (("--at", "tomorrow"), "'tomorrow' is not an instant"),
    (("--every", "1h", "--overlap", "never"), "overlap is 'never'; it must be one of skip"),
    ((), "give one of them, not nothing"),
    (("--every", "1h", "--arguments", '{"week":1}'), "week"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_cannot_be_added_is_refused_in_one_line(press: Call, options: tuple[str, ...], told: str) -> None:
    assert told in refused(press("schedule", "add", "press:app", "weekly", "report", *options, *WHY))


def test_a_backfill_tells_what_it_submits_and_what_was_there(press: Call) -> None:
    time = ("2026-11-01T00:00+01:00", "2026-11-03T12:00+01:00")
    dry = press("schedule", "backfill", "nightly", *time, "--dry-run", *WHY)
    assert dry.output.splitlines() == [f"would submit press/nightly@2026-11-0{day}T01:30:00Z" for day in (1, 2, 3)]
    assert press("schedule", "backfill", "nightly", *time, *WHY).output.count("submitted ") == 3
    again = json_lines(press("schedule", "backfill", "nightly", *time, *WHY, "--json").stdout)
    assert [one["outcome"] for one in again] == ["there"] * 3
    nothing = press("schedule", "backfill", "nightly", time[0], time[0], *WHY)
    assert nothing.output == "no instant of the schedule lies there\n"
    assert "names no time zone" in refused(press("schedule", "backfill", "nightly", "2026-11-01", time[1], *WHY))
    future = press("schedule", "backfill", "nightly", time[0], "2999-01-01T00:00Z", *WHY)
    assert "in the future" in refused(future)


def test_words_from_other_tools_lead_to_the_command(press: Call) -> None:
    assert "arriero schedule list" in refused(press("crontab"))
    assert "arriero schedule run-now" in refused(press("schedule", "trigger", "nightly"))


def test_the_explanation_of_a_run_names_its_schedule(press: Call) -> None:
    (run,) = json_lines(press("schedule", "run-now", "nightly", *WHY, "--json").stdout)
    explained = plain(press("task", "explain", run["task_id"]))
    assert "schedule nightly of App press submitted it, as its run of" in explained
    assert "arriero schedule show nightly --app-name press" in explained


def test_the_doctor_names_what_is_wrong_with_a_schedule(press: Call, shop: Path) -> None:
    assert "2 schedules, none of them late" in press("doctor", "--verbose").output
    (shop / "press.py").write_text(PRESS.replace('app.schedule("nightly"', 'app.schedule("renamed-report"'))
    sys.modules.pop("press")

    async def run() -> None:
        from press import app

        async with app.running():
            pass

    asyncio.run(run())
    assert "1 schedule is no longer declared by code; it continues: nightly" in plain(press("doctor"))
    assert "its code no longer declares it" in press("schedule", "list").output
    assert "arriero schedule remove nightly --app-name press" in press("schedule", "show", "nightly").output


def test_a_pass_of_supervision_tells_of_what_is_due_and_runs_nowhere(
    press: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.core.schedules.GRACE_SECONDS", 0)
    press("schedule", "add", "press:app", "often", "report", "--every", "1", *WHY)
    before = json_lines(press("schedule", "show", "often", "--json").stdout)[0]["schedule"]
    assert before["runs"] == 0
    while True:  # the store's clock is the machine's
        (passed,) = json_lines(press("supervise", "--once", "--json").stdout)
        shown = json_lines(press("schedule", "show", "often", "--json").stdout)[0]["schedule"]
        if shown["problem"]:
            break
    assert passed["runs_submitted"] == 0
    assert "no process alive of App 'press' has the workflow 'report'" in shown["problem"]
    assert "CARE" in press("doctor").output
    shown_text = press("schedule", "show", "often").output
    assert "(due, and not submitted yet)" in shown_text
    assert "mend it: run its App (arriero run MODULE:APP), or remove the schedule" in " ".join(shown_text.split())
