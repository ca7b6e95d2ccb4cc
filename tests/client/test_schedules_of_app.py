"""Schedules as an App's code declares them and as people handle them, on the virtual clock."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from store_world import TestClock

import arriero
from arriero import Agent, App, Attempt, DefinitionError, InvalidInput, VerbRefused, testing, workflow
from arriero.client.schedule_declarations import declare_schedules
from arriero.model import TaskState
from arriero.model.schedules import OVERLAPS, Overlap, OverlapName
from arriero.store.memory import MemoryStore

reports = Agent("reports")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHY: dict[str, str] = {"by": "ana", "reason": "the report was wrong"}
MADRID = "Europe/Madrid"


@reports.step(effect_free=True)
async def write(attempt: Attempt, day: str = "today") -> str:
    return day


@workflow
async def report(day: str = "today") -> str:
    return await write(day)


@workflow
async def slow_report() -> str:
    return await write("slow")


def shop() -> App:
    return App("shop", agents=[reports], workflows=[report, slow_report])


# --- declaring
async def test_a_declared_schedule_runs_its_workflow_at_each_instant() -> None:
    app = shop()
    app.schedule("nightly", report("all"), cron="0 3 * * *", timezone=MADRID)
    async with testing.running(app) as world:
        await world.clock.advance(timedelta(days=3))
        task = await world.app.task("shop/nightly@2026-01-02T02:00:00Z").view()
        assert (task.state, task.output) == (TaskState.PROCESSED, "all")
        (view,) = await world.app.schedules.list()
        assert (view.runs, view.passed_over, view.last_task) == (3, 0, "shop/nightly@2026-01-03T02:00:00Z")


async def test_a_step_may_be_scheduled_with_its_arguments() -> None:
    app = shop()
    app.schedule("once", write("a day"), at=NOON)
    async with testing.running(app) as world:
        await world.clock.advance(timedelta(days=1))
        assert (await world.app.task("shop/once@2026-01-01T12:00:00Z").view()).output == "a day"
        view = await world.app.schedules.show("once")
        assert (view.state, view.next_runs) == ("ended", ())


async def test_the_runs_of_a_schedule_have_its_tags_also_those_of_now_and_of_a_backfill() -> None:
    app = shop()
    app.schedule("hourly", report(), every=3_600, tags={"tenant": "acme", "region": "eu"})
    async with testing.running(app) as world:
        await world.clock.advance(timedelta(hours=2))
        asked = await world.app.schedules.run_now("hourly", **WHY)
        view = await world.app.schedules.show("hourly")
        assert view.tags == (await world.app.task(asked.task_id).view()).tags == {"region": "eu", "tenant": "acme"}
        assert await world.app.tasks(tags={"tenant": "acme"}).count() == 3
        await world.app.schedules.add("own", report(), every=60, tags={"tenant": "globex"}, **WHY)
        await world.clock.advance(61)
        assert await world.app.tasks(tags={"tenant": "globex"}).count() == 1
        with pytest.raises(InvalidInput, match="exists with another declaration; remove it first"):
            await world.app.schedules.add("own", report(), every=60, tags={"tenant": "acme"}, **WHY)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "give one of them, not nothing"),
    ({"cron": "61 * * * *"}, "Bad minute"),
    ({"cron": "0 3 * * *", "timezone": "Europe/Madird"}, "the time zone 'Europe/Madird' is not known"),
    ({"cron": "0 3 * * *", "timezone": "localtime"}, "the time zone 'localtime' is the zone of each machine"),
    ({"cron": 3}, "cron is 3; it must be a text"),
    ({"cron": "0 3 * * *", "every": 60}, "not cron and every"),
    ({"every": 60, "timezone": MADRID}, "timezone is given without cron"),
    ({"every": 0}, "every is 0 s; it must be at least 1 second"),
    ({"every": 60, "tags": ["acme"]}, "tags is ['acme']; it must map names to texts"),
    ({"every": 60, "tags": {"": "acme"}}, "is not the name of a tag"),
    ({"every": 60, "tags": {"tenant": "x" * 257}}, "a value of 257 characters"),
    ({"every": 60, "tags": {"tenant": "\n"}}, "control characters are refused"),
    ({"every": 60, "tags": {f"t{n}": "x" for n in range(21)}}, "21 tags; a task has at most 20"),
    ({"every": timedelta(milliseconds=500)}, "every is 0.5 s"),
    ({"every": -5}, "every is -5 seconds"),
    ({"every": float("nan")}, "every is nan seconds"),
    ({"every": "hourly"}, "every is 'hourly'; give seconds or a timedelta"),
    ({"every": True}, "every is True"),
    ({"at": datetime(2026, 1, 1, 12)}, "at is 2026-01-01T12:00:00, without a time zone"),
    ({"at": "tomorrow"}, "at is 'tomorrow'; it must be a datetime with a time zone"),
    ({"every": 60, "overlap": "never"}, "overlap is 'never'; it must be one of skip, queue, all, cancel_running"),
    ({"every": 60, "catch_up": -1}, "catch_up is -1 seconds"),
    ({"every": 60, "jitter": 61}, "jitter is 1 min 1 s, longer than the 1 min between two runs"),
    ({"cron": "* * * * *", "jitter": 61}, "jitter is 1 min 1 s, longer than the 1 min between two runs"),
    ({"cron": "0 0,1 * * *", "jitter": 20 * 3_600}, "jitter is 20 h, longer than the 1 h between two runs"),
    ({"every": 60, "priority": 10}, "priority is 10"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_cannot_be_declared_is_refused_with_the_schedule_and_the_reason(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        shop().schedule("nightly", report(), **options)
    assert str(refused.value).startswith("schedule 'nightly': ")
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 300, "bell\a", 7])
def test_a_name_that_cannot_be_part_of_a_task_id_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="name of a schedule"):
        shop().schedule(name, report(), every=60)


def test_each_policy_for_overlaps_has_its_word_for_signatures_its_sentence_and_its_place_in_the_help() -> None:
    assert get_args(OverlapName) == tuple(Overlap) == tuple(OVERLAPS)
    assert [word for word in Overlap if f"``{word}``" not in str(App.schedule.__doc__)] == []


def test_a_name_is_declared_once() -> None:
    app = shop()
    app.schedule("nightly", report(), every=60)
    with pytest.raises(DefinitionError, match="two schedules are named 'nightly'"):
        app.schedule("nightly", report(), every=90)


def test_only_calls_of_the_app_may_be_scheduled() -> None:
    @workflow
    async def foreign() -> None: ...

    with pytest.raises(DefinitionError, match="workflow 'foreign' is not in App shop"):
        shop().schedule("nightly", foreign(), every=60)
    with pytest.raises(DefinitionError, match="submit takes the call"):
        shop().schedule("nightly", report, every=60)  # type: ignore[arg-type]


class Start:
    """Starts of processes of an App, one after the other, on one store."""

    def __init__(self) -> None:
        self.at = 1_767_225_600_000_000
        self.store = MemoryStore(lambda: self.at)  # type: ignore[arg-type, return-value]

    async def __call__(self, declare: Callable[[App], None] = lambda app: None) -> App:
        app = shop()
        declare(app)
        await app.session.open(self.store)
        await declare_schedules(app.session)
        return app


async def test_a_process_that_starts_writes_only_what_it_declares_otherwise() -> None:
    start = Start()

    def declare(app: App) -> None:
        app.schedule("a", report(), every=60)
        app.schedule("b", report(), cron="0 3 * * *")

    await start(declare)
    rows, links = await start.store.list_schedules(), len(start.store.log)
    await start(declare)
    assert (await start.store.list_schedules(), len(start.store.log)) == (rows, links)


def declare_both(app: App) -> None:
    for name in "ab":
        app.schedule(name, report(), every=60)


async def test_the_newest_process_says_how_a_schedule_is_and_what_it_does_not_declare_goes_on_and_says_so() -> None:
    start = Start()
    await start(declare_both)
    app = await start(lambda app: app.schedule("a", report("all"), every=60))
    a, b = await app.schedules.list()
    assert bytes(a.arguments) == b'{"day":"all"}'
    assert (a.undeclared_since, b.undeclared_since is None) == (None, False)
    assert b.next_runs != ()
    await start(lambda app: app.schedule("b", report(), every=60))
    assert (await app.schedules.show("b")).undeclared_since is None


async def test_a_schedule_of_a_person_is_left_alone_by_processes_that_do_not_declare_it() -> None:
    start = Start()
    app = await start()
    await app.schedules.add("mine", report(), every=60, **WHY)
    await start()
    view = await app.schedules.show("mine")
    assert (view.undeclared_since, view.declared_by, view.declared_in_code) == (None, "ana", False)


async def test_arguments_that_do_not_fit_the_code_any_more_stop_a_schedule_until_they_fit_again() -> None:
    start = Start()
    app = await start()
    await app.schedules.add("mine", report("all"), every=60, **WHY)

    @workflow(name="report")
    async def other(week: int) -> None: ...

    changed = App("shop", agents=[reports], workflows=[other])
    await changed.session.open(start.store)
    for _ in range(3):
        await declare_schedules(changed.session)
    (alert,) = await start.store.alerts()
    assert "its arguments no longer fit 'report'" in alert.reason
    with pytest.raises(VerbRefused, match="submits nothing"):
        await changed.schedules.run_now("mine", **WHY)
    await start()
    assert await start.store.alerts() == []
    assert (await app.schedules.show("mine")).problem == ""


@pytest.mark.parametrize("cron", ["0,30 * * * *", "15 4 * * *"])
async def test_a_run_that_was_due_before_a_deploy_changed_the_line_is_made_up_with_the_new_code(cron: str) -> None:
    start, clock = Start(), TestClock()
    start.store = MemoryStore(clock)
    await start(lambda app: app.schedule("s", report("old"), cron="*/30 * * * *"))
    clock.move(3_600)  # nobody leads meanwhile
    await start(lambda app: app.schedule("s", report("new"), cron=cron))
    row = await start.store.find_schedule("shop", "s")
    assert row is not None
    assert (row.runs, row.passed_over, row.decided_until) == (1, 1, clock())
    (task,) = start.store.tasks.values()
    assert task.task_id == "shop/s@2023-11-14T23:00:00Z"
    assert start.store.bodies[task.task_no] == '{"day":"new"}'
    before = len(start.store.log)
    await start(lambda app: app.schedule("s", report("new"), cron=cron))
    assert len(start.store.log) == before


async def test_a_deploy_passes_over_what_was_due_while_a_run_is_open_as_the_schedule_does() -> None:
    start, clock = Start(), TestClock()
    start.store = MemoryStore(clock)
    app = await start(lambda app: app.schedule("s", report(), cron="*/30 * * * *"))
    asked = await app.schedules.run_now("s", **WHY)
    clock.move(3_600)
    await start(lambda app: app.schedule("s", report(), cron="15 4 * * *"))
    row = await start.store.find_schedule("shop", "s")
    assert row is not None
    assert (row.runs, row.passed_over) == (1, 2)
    assert [task.task_id for task in start.store.tasks.values()] == [asked.task_id]


async def test_one_schedule_whose_zone_is_not_known_here_hides_no_other_one_and_a_new_declaration_mends_it() -> None:
    start = Start()

    def declare(app: App) -> None:
        app.schedule("nightly", report(), cron="0 3 * * *", timezone=MADRID)
        app.schedule("hourly", report(), every=3_600)

    app = await start(declare)
    row = start.store.schedule_rows["shop", "nightly"]
    text = row.declaration.replace(MADRID, "Europe/Nueva")
    start.store.schedule_rows["shop", "nightly"] = msgspec.structs.replace(row, declaration=text)
    hourly, nightly = await app.schedules.list()
    assert (hourly.problem, len(hourly.next_runs)) == ("", 1)
    assert (nightly.timezone, nightly.next_runs) == ("Europe/Nueva", ())
    assert nightly.problem.startswith("its row cannot be read: column declaration")
    with pytest.raises(InvalidInput, match="its row cannot be read"):
        await app.schedules.run_now("nightly", **WHY)
    await start(declare)
    assert (await app.schedules.show("nightly")).problem == ""


async def test_a_schedule_that_cannot_be_read_can_be_removed() -> None:
    start = Start()
    app = await start(lambda app: app.schedule("nightly", report(), every=3_600))
    row = start.store.schedule_rows["shop", "nightly"]
    start.store.schedule_rows["shop", "nightly"] = msgspec.structs.replace(row, declaration="{}")
    assert (await app.schedules.show("nightly")).workflow == ""
    await app.schedules.remove("nightly", **WHY)
    assert await app.schedules.list() == ()


async def test_the_convoy_of_a_schedule_is_kept_from_submitters() -> None:
    app = await Start()()
    with pytest.raises(InvalidInput, match="is kept for the runs of a schedule: choose another key"):
        await app.submit(report(), convoy="schedule shop/nightly", end_of_sequence=True)


# --- people
async def test_a_pause_holds_over_a_new_start_and_what_was_due_meanwhile_is_not_run() -> None:
    app = shop()
    app.schedule("hourly", report(), every=timedelta(hours=1))
    async with testing.running(app) as world:
        schedules = world.app.schedules
        await world.clock.advance(timedelta(hours=2, minutes=1))
        assert (await schedules.pause("hourly", **WHY)).pause_reason == WHY["reason"]
        await declare_schedules(world.app.session)
        await world.clock.advance(timedelta(hours=5))
        view = await schedules.resume("hourly", **WHY)
        await world.clock.advance(timedelta(hours=1))
        assert (await schedules.show("hourly")).runs == 3
        assert view.next_runs[0].at == NOON.replace(hour=8)


async def test_a_run_of_now_is_submitted_whatever_overlap_says_and_also_while_it_is_paused() -> None:
    app = shop()
    app.schedule("nightly", report("all"), cron="0 3 * * *")
    async with testing.running(app) as world:
        await world.app.schedules.pause("nightly", **WHY)
        asked = await world.app.schedules.run_now("nightly", **WHY)
        assert asked.outcome == "submitted"
        assert await world.app.task(asked.task_id).result() == "all"


async def test_a_backfill_submits_what_is_not_there_and_tells_what_is() -> None:
    app = shop()
    app.schedule("daily", report(), cron="0 0 * * *")
    async with testing.running(app) as world:
        await world.clock.advance(timedelta(days=2))
        first, last = datetime(2025, 12, 30, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
        planned = await world.app.schedules.backfill("daily", first, last, dry_run=True, **WHY)
        assert [run.outcome for run in planned] == ["planned"] * 3 + ["there"] * 2
        done = await world.app.schedules.backfill("daily", first, last, **WHY)
        assert [run.outcome for run in done] == ["submitted"] * 3 + ["there"] * 2
        again = await world.app.schedules.backfill("daily", first, last, **WHY)
        assert [run.outcome for run in again] == ["there"] * 5
        assert (await world.app.schedules.show("daily")).runs == 5


async def test_a_backfill_of_too_much_or_of_the_future_is_refused_before_anything_is_submitted() -> None:
    app = shop()
    app.schedule("often", report(), cron="* * * * *")
    async with testing.running(app) as world:
        now = world.clock.now()
        backfill = world.app.schedules.backfill
        with pytest.raises(InvalidInput, match="more than 1,000 runs"):
            await backfill("often", now - timedelta(days=2), now, **WHY)
        with pytest.raises(InvalidInput, match="in the future"):
            await backfill("often", now, now + timedelta(hours=1), **WHY)
        with pytest.raises(InvalidInput, match="before start"):
            await backfill("often", now, now - timedelta(hours=1), **WHY)
        with pytest.raises(InvalidInput, match="without a time zone"):
            await backfill("often", datetime(2025, 1, 1), now, **WHY)
        assert await backfill("often", now + timedelta(seconds=-30), now - timedelta(seconds=20), **WHY) == ()
        assert (await world.app.schedules.show("often")).runs == 0


async def test_unknown_names_and_verbs_without_a_reason_are_refused() -> None:
    app = shop()
    async with testing.running(app) as world:
        schedules = world.app.schedules
        for verb in (schedules.pause, schedules.resume, schedules.remove, schedules.run_now):
            with pytest.raises(InvalidInput, match="there is no schedule 'nothing' of App 'shop'"):
                await verb("nothing", **WHY)
        with pytest.raises(InvalidInput, match="there is no schedule"):
            await schedules.show("nothing")
        with pytest.raises(InvalidInput, match="reason is ''"):
            await schedules.pause("nothing", by="ana", reason="")
        with pytest.raises(InvalidInput, match="which has passed"):
            await schedules.add("past", report(), at=datetime(2020, 1, 1, tzinfo=UTC), **WHY)


async def test_a_schedule_that_is_paused_cannot_be_paused() -> None:
    app = shop()
    app.schedule("nightly", report(), every=60)
    async with testing.running(app) as world:
        await world.app.schedules.pause("nightly", **WHY)
        with pytest.raises(VerbRefused, match="is paused already, by ana"):
            await world.app.schedules.pause("nightly", **WHY)


async def test_a_person_adds_and_removes_a_schedule() -> None:
    async with testing.running(shop()) as world:
        schedules = world.app.schedules
        await schedules.add("mine", report(), every=60, **WHY)
        with pytest.raises(InvalidInput, match="exists with another declaration; remove it first"):
            await schedules.add("mine", report(), every=61, **WHY)
        assert (await schedules.remove("mine", **WHY)).name == "mine"
        assert await schedules.list() == ()


# --- without an event loop
def test_the_sync_front_has_the_same_methods(tmp_path: Path) -> None:
    app = App("shop", agents=[reports], workflows=[report], store=f"sqlite:///{tmp_path / 'store.db'}")
    app.schedule("nightly", report(), cron="0 3 * * *")
    with app.sync.running() as front:
        (view,) = front.schedules.list()
        assert (view.name, view.state) == ("nightly", "active")
        assert front.schedules.run_now("nightly", **WHY).outcome == "submitted"
        front.schedules.pause("nightly", **WHY)
        front.schedules.resume("nightly", **WHY)
        front.schedules.add("mine", report(), every=3_600, **WHY)
        front.schedules.remove("mine", **WHY)
        assert front.schedules.show("nightly").runs == 1
        past = datetime(2025, 1, 1, tzinfo=UTC)
        assert len(front.schedules.backfill("nightly", past, past + timedelta(days=1), **WHY)) == 1


# --- runs that are open
@workflow
async def long_report() -> str:
    written = await write("long")
    await arriero.sleep(7 * 3_600)
    return written


async def list_open(world: testing.World) -> list[str]:
    return [task.id async for task in world.app.tasks() if task.state in ("pending", "processing")]


@pytest.mark.parametrize(
    ("overlap", "open_run"),
    [("skip", "shop/nightly@2026-01-01T01:00:00Z"), ("cancel_running", "shop/nightly@2026-01-01T04:00:00Z")],
)
async def test_a_run_of_now_that_has_ended_does_not_hide_the_run_that_is_still_open(
    overlap: Any, open_run: str
) -> None:
    app = App("shop", agents=[reports], workflows=[long_report])
    app.schedule("nightly", long_report(), cron="0 * * * *", overlap=overlap)
    async with testing.running(app) as world:
        await world.clock.advance(timedelta(hours=1, seconds=5))
        asked = await world.app.schedules.run_now("nightly", **WHY)
        await world.app.task(asked.task_id).cancel(by="ana", reason="only a check")
        await world.clock.advance(timedelta(hours=3))
        assert await list_open(world) == [open_run]


async def test_a_schedule_cancels_no_run_where_the_settings_ask_for_two_persons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_CANCEL", "2")
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db", agents=[reports], workflows=[long_report])
    app.schedule("often", long_report(), every=timedelta(seconds=1), overlap="cancel_running")
    async with app.running(), asyncio.timeout(60):
        while not (view := await app.schedules.show("often")).problem:
            await asyncio.sleep(0.05)
        assert view.problem.endswith("is open, and the schedule may not cancel it: the settings ask for 2 persons")
        (task,) = [task async for task in app.tasks()]
        assert task.state in ("pending", "processing")
