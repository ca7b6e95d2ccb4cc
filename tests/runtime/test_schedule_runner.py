"""The leader's pass over schedules: what it submits, what keeps it from submitting, and who dies or comes second meanwhile."""

import asyncio
import random
from datetime import datetime
from typing import Any

import msgspec
import pytest
from core_schedules import POLICY
from store_world import NOON, TestClock

from arriero.core.schedules import GRACE_SECONDS, build_run
from arriero.errors import StoreError
from arriero.model import MICROSECONDS, Instant, TaskState, later
from arriero.model.answers import Refusal
from arriero.model.instants import as_instant
from arriero.model.policies import Supervision, TaskPolicy
from arriero.model.processes import ProcessAbout
from arriero.model.schedules import (
    DeclareSchedule,
    OpenRun,
    OperateSchedule,
    Overlap,
    RunSchedule,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleVerb,
    Timing,
    encode_declaration,
    read_declaration,
)
from arriero.runtime import schedule_runner
from arriero.runtime.schedule_runner import BLOCKED_SECONDS, LOOK_SECONDS, ScheduleRunner
from arriero.store.contract import SUPERVISOR_LEASE, Busy
from arriero.store.engine import schedules as engine_schedules
from arriero.store.memory import MemoryStore

HOUR = 3_600


class Ports:
    """A clock on which nothing lasts."""

    def __init__(self) -> None:
        self.clock: Any = self
        self.random = random.Random(1)

    def monotonic(self) -> float:
        return 100.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Office:
    """A store with a leader, and a process of the App that has the code."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.store = MemoryStore(self.clock)
        self.term = 0

    async def open(self, *, has_code: bool = True) -> None:
        number = await self.store.register("leader", 10.0**9)
        self.term = (await self.store.acquire_lease(SUPERVISOR_LEASE, number, "leader", 10.0**9)).term
        if has_code:
            await self.start_process()

    async def start_process(self, name: str = "worker", **changes: Any) -> int:
        fields: dict[str, Any] = {"app": "shop", "roles": ("scheduler",), "workflows": ("report",)}
        about = msgspec.json.encode(ProcessAbout(**(fields | changes))).decode()
        return await self.store.register(name, 10.0**9, about)

    def runner(self, term: int | None = None, cancel_persons: int = 1) -> ScheduleRunner:
        known = self.term if term is None else term
        ports: Any = Ports()
        return ScheduleRunner(
            store=self.store, ports=ports, actor="leader", term=lambda: known, cancel_persons=cancel_persons
        )

    async def declare(self, name: str = "nightly", **changes: Any) -> None:
        fields: dict[str, Any] = {"workflow": "report", "arguments": "{}", "policy": POLICY}
        declaration = ScheduleDeclaration(**({"timing": Timing(every=HOUR * MICROSECONDS)} | fields | changes))
        await self.change(DeclareSchedule(actor="p", app="shop", name=name, declaration=declaration))

    async def change(self, command: ScheduleCommand) -> None:
        (answer,) = await self.store.change_schedules([command])
        assert not isinstance(answer, Refusal)

    async def find(self, name: str = "nightly") -> ScheduleRow:
        row = await self.store.find_schedule("shop", name)
        assert row is not None
        return row

    def hours(self) -> list[float]:
        """Of each run, how long after noon its instant is."""
        anchor = NOON // MICROSECONDS * MICROSECONDS
        return [(self._instant_of(task.task_id) - anchor) / HOUR / MICROSECONDS for task in self.store.tasks.values()]

    @staticmethod
    def _instant_of(task_id: str) -> int:
        return as_instant(datetime.fromisoformat(task_id.rpartition("@")[2].replace("Z", "+00:00")))

    def end_runs(self) -> None:
        for number, task in list(self.store.tasks.items()):
            self.store.tasks[number] = msgspec.structs.replace(task, state=TaskState.PROCESSED)


@pytest.fixture
async def office() -> Office:
    made = Office()
    await made.open()
    return made


async def test_it_submits_what_is_due_and_asks_to_be_woken_at_the_next_instant(office: Office) -> None:
    await office.declare(timing=Timing(every=HOUR * MICROSECONDS))
    assert await office.runner().tick() == LOOK_SECONDS
    office.clock.move(HOUR - 0.25)
    assert await office.runner().tick() == 0.25
    office.clock.move(0.25)
    assert await office.runner().tick() == 0.0
    assert office.hours() == [1]


async def test_it_does_nothing_without_the_lease(office: Office) -> None:
    await office.declare()
    office.clock.move(HOUR)
    runner = ScheduleRunner(store=office.store, ports=Ports(), actor="leader", term=lambda: None)  # type: ignore[arg-type]
    assert await runner.tick() > 0
    assert office.hours() == []


async def test_two_leaders_that_look_at_once_submit_each_run_once(office: Office) -> None:
    for number in range(20):
        await office.declare(f"s{number}", overlap=Overlap.ALL)
    for _ in range(5):
        office.clock.move(HOUR)
        await asyncio.gather(*(office.runner().tick() for _ in range(3)))
    ids = [task.task_id for task in office.store.tasks.values()]
    assert (len(ids), len(set(ids))) == (100, 100)


async def test_a_leader_whose_lease_went_to_another_one_submits_nothing(office: Office) -> None:
    await office.declare()
    office.clock.move(HOUR)
    assert await office.runner(term=office.term - 1).tick() == LOOK_SECONDS
    assert office.hours() == []


class Dying(MemoryStore):
    """A store whose process dies before or after a write of schedules."""

    dies = ""

    async def change_schedules(self, batch: Any) -> Any:
        if self.dies == "before":
            raise StoreError("it died")
        answers = await super().change_schedules(batch)
        if self.dies == "after":
            raise StoreError("it died")
        return answers


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_a_leader_that_dies_in_the_middle_of_a_pass_loses_and_doubles_nothing(dies: str) -> None:
    office = Office()
    office.store = Dying(office.clock)
    await office.open()
    for number in range(5):
        await office.declare(f"s{number}")
    office.clock.move(HOUR)
    office.store.dies = dies
    with pytest.raises(StoreError):
        await office.runner().tick()
    assert office.hours() == ([] if dies == "before" else [1] * 5)
    office.store.dies = ""
    await office.runner().tick()
    assert office.hours() == [1] * 5


async def test_while_no_process_has_the_code_a_due_run_waits_under_one_alert() -> None:
    office = Office()
    await office.open(has_code=False)
    await office.declare()
    office.clock.move(HOUR)
    for _ in range(60):
        await office.runner().tick()
        office.clock.move(BLOCKED_SECONDS)
    (alert,) = await office.store.alerts()
    assert alert.reason == "no process alive of App 'shop' has the workflow 'report'"
    assert office.hours() == []
    await office.start_process()
    await office.runner().tick()
    assert office.hours() == [1]
    assert await office.store.alerts() == []
    assert (await office.find()).problem == ""


async def test_a_process_that_restarts_when_a_run_is_due_brings_no_alert() -> None:
    office = Office()
    await office.open(has_code=False)
    await office.declare()
    office.clock.move(HOUR)
    for _ in range(GRACE_SECONDS // 10):
        await office.runner().tick()
        office.clock.move(9.9)
    assert await office.store.alerts() == []
    await office.start_process()
    office.clock.move(BLOCKED_SECONDS)
    await office.runner().tick()
    assert office.hours() == [1]
    assert await office.store.alerts() == []


async def test_a_process_of_another_app_or_without_scheduler_does_not_count_as_having_the_code() -> None:
    office = Office()
    await office.open(has_code=False)
    await office.start_process("other", app="travel")
    await office.start_process("agents", roles=("agents",))
    await office.declare()
    office.clock.move(HOUR)
    await office.runner().tick()
    assert office.hours() == []


async def test_runs_carry_the_policy_of_the_newest_process(office: Office) -> None:
    newer = msgspec.json.encode(TaskPolicy(77.0, Supervision())).decode()
    await office.start_process("newer", policies={"report": newer})
    await office.declare()
    office.clock.move(HOUR)
    await office.runner().tick()
    (task,) = office.store.tasks.values()
    assert (task.policy, task.complete_by) == (newer, later(office.clock(), 77))


async def test_skip_passes_over_while_a_run_is_open_and_goes_on_when_it_has_ended(office: Office) -> None:
    await office.declare(overlap=Overlap.SKIP)
    for _ in range(3):
        office.clock.move(HOUR)
        await office.runner().tick()
    assert office.hours() == [1]
    assert (await office.find()).passed_over == 2
    office.end_runs()
    office.clock.move(HOUR)
    await office.runner().tick()
    assert office.hours() == [1, 4]


async def test_cancel_running_cancels_the_open_run_and_submits_the_new_one(office: Office) -> None:
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    office.clock.move(HOUR)
    await office.runner().tick()
    office.clock.move(HOUR)
    await office.runner().tick()
    first, second = office.store.tasks.values()
    assert (first.state, second.state) == (TaskState.COMPENSATING, TaskState.PENDING)
    assert office.hours() == [1, 2]


class Locked(MemoryStore):
    """A store in which another transaction has every run open while ``is_locked``."""

    is_locked = False

    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        if self.is_locked:
            raise Busy("another transaction has a run open")
        return super().lock_cancellable_runs(app, name, limit)


async def test_a_run_that_cannot_be_cancelled_now_keeps_only_its_own_schedule_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    office = Office()
    office.store = locked = Locked(office.clock)
    await office.open()
    await office.declare("cancels", overlap=Overlap.CANCEL_RUNNING)
    await office.declare("other", overlap=Overlap.ALL)
    for _ in range(2):
        office.clock.move(HOUR)
        await office.runner().tick()
        locked.is_locked = True
    assert sorted(office.hours()) == [1, 1, 2]
    assert not any("cannot be read" in message for message in caplog.messages)
    locked.is_locked = False
    await office.runner().tick()
    assert sorted(office.hours()) == [1, 1, 2, 2]


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_a_leader_that_dies_leaves_the_open_run_and_the_new_one_as_one_commit_does(dies: str) -> None:
    office = Office()
    office.store = Dying(office.clock)
    await office.open()
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    office.clock.move(HOUR)
    await office.runner().tick()
    office.clock.move(HOUR)
    office.store.dies = dies
    with pytest.raises(StoreError):
        await office.runner().tick()
    states = [task.state for task in office.store.tasks.values()]
    assert states == ([TaskState.PENDING] if dies == "before" else [TaskState.COMPENSATING, TaskState.PENDING])
    office.store.dies = ""
    await office.runner().tick()
    assert office.hours() == [1, 2]


async def ask_for_a_run(office: Office, *instants: Instant, is_backfill: bool = False) -> None:
    """As an operator does, by run-now or a backfill."""
    row = await office.find()
    submits = tuple(build_run(row, instant, POLICY, 3) for instant in instants)
    asked: dict[str, Any] = {"app": "shop", "name": row.name, "by": "ana", "reason": "x", "runs": instants}
    await office.change(RunSchedule(actor="cli", submits=submits, is_backfill=is_backfill, **asked))


def end_run(office: Office, which: int) -> None:
    number = list(office.store.tasks)[which]
    office.store.tasks[number] = msgspec.structs.replace(office.store.tasks[number], state=TaskState.PROCESSED)


@pytest.mark.parametrize("is_backfill", [False, True])
async def test_a_run_that_a_person_asked_for_and_that_ended_does_not_hide_the_run_that_is_open(
    office: Office, is_backfill: bool
) -> None:
    await office.declare(overlap=Overlap.SKIP)
    office.clock.move(HOUR)
    await office.runner().tick()
    await ask_for_a_run(office, later(office.clock(), -1), is_backfill=is_backfill)
    end_run(office, 1)
    office.clock.move(HOUR)
    await office.runner().tick()
    assert len(office.store.tasks) == 2
    end_run(office, 0)
    await ask_for_a_run(office, later(office.clock(), -1), is_backfill=is_backfill)
    office.clock.move(HOUR)
    await office.runner().tick()
    assert len(office.store.tasks) == 3  # the one that the person asked for is open, too


async def test_cancel_running_cancels_every_open_run_whoever_submitted_it(office: Office) -> None:
    await office.declare(overlap=Overlap.ALL)
    office.clock.move(HOUR)
    await office.runner().tick()
    await ask_for_a_run(office, later(office.clock(), -2), later(office.clock(), -1), is_backfill=True)
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    office.clock.move(HOUR)
    await office.runner().tick()
    states = [task.state for task in office.store.tasks.values()]
    assert states == [TaskState.COMPENSATING] * 3 + [TaskState.PENDING]


async def test_cancel_running_cancels_a_run_that_a_person_has_resubmitted(office: Office) -> None:
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    office.clock.move(HOUR)
    await office.runner().tick()
    (number,) = office.store.tasks
    office.store.tasks[number] = msgspec.structs.replace(office.store.tasks[number], incarnation=2)
    office.clock.move(HOUR)
    await office.runner().tick()
    assert [task.state for task in office.store.tasks.values()] == [TaskState.COMPENSATING, TaskState.PENDING]


async def test_more_open_runs_than_one_transaction_cancels_are_cancelled_pass_by_pass_before_the_new_one_begins(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_schedules, "CANCELLED_MAX", 2)
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    await ask_for_a_run(office, *(later(office.clock(), -back) for back in range(1, 6)), is_backfill=True)
    office.clock.move(HOUR)
    for cancelled in (2, 4):
        await office.runner().tick()
        states = [task.state for task in office.store.tasks.values()]
        assert states.count(TaskState.COMPENSATING) == cancelled
        assert len(states) == 5
    await office.runner().tick()
    assert [task.state for task in office.store.tasks.values()].count(TaskState.PENDING) == 1


async def test_where_several_persons_must_cancel_the_next_run_waits_under_one_alert_until_the_open_one_has_ended(
    office: Office,
) -> None:
    await office.declare(overlap=Overlap.CANCEL_RUNNING)
    office.clock.move(HOUR)
    await office.runner().tick()
    careful = office.runner(cancel_persons=2)
    for _ in range(3):
        office.clock.move(HOUR)
        await careful.tick()
    assert [task.state for task in office.store.tasks.values()] == [TaskState.PENDING]
    (alert,) = await office.store.alerts()
    assert alert.reason == (
        "run shop/nightly@2023-11-14T23:13:20Z is open, and the schedule may not cancel it: the settings ask for 2 persons"
    )
    office.end_runs()
    office.clock.move(BLOCKED_SECONDS)
    await careful.tick()
    assert office.hours() == [1, 4]
    assert await office.store.alerts() == []
    assert (await office.find()).problem == ""


async def test_a_year_without_a_leader_brings_one_run_and_with_catch_up_as_many_as_were_asked_for(
    office: Office,
) -> None:
    await office.declare("last", timing=Timing(every=MICROSECONDS))
    await office.declare("some", overlap=Overlap.ALL, catch_up=48 * HOUR * MICROSECONDS)
    office.clock.move(365 * 24 * HOUR + 60)
    await office.runner().finish()
    names = [task.task_id.partition("@")[0] for task in office.store.tasks.values()]
    assert (names.count("shop/last"), names.count("shop/some")) == (1, 48)


async def test_a_schedule_with_very_many_missed_runs_makes_all_of_them_up_pass_by_pass(office: Office) -> None:
    await office.declare(timing=Timing(every=MICROSECONDS), overlap=Overlap.ALL, catch_up=HOUR * MICROSECONDS)
    office.clock.move(2_500)
    await office.runner().finish()
    assert len(office.store.tasks) == 2_500


async def test_more_schedules_than_fit_one_transaction_are_all_submitted_in_one_pass(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_runner, "BATCH", 7)
    for number in range(30):
        await office.declare(f"s{number:02}")
    office.clock.move(HOUR)
    await office.runner().finish()
    assert len(office.store.tasks) == 30


DAMAGED: dict[str, dict[str, Any]] = {
    "declaration": {"declaration": '{"workflow":"report","timing":{"moon":"full"}}'},
    "zone": {"declaration": Timing(cron="0 3 * * *", timezone="Europe/Nueva")},
    "line": {"declaration": Timing(cron="0 3 * * moon")},
    "state": {"state": "asleep"},
    "instant": {"decided_until": "yesterday"},
}


@pytest.mark.parametrize("column", DAMAGED)
async def test_a_row_that_cannot_be_read_keeps_no_other_schedule_waiting_and_opens_one_alert(
    office: Office, column: str
) -> None:
    await office.declare("broken")
    await office.declare("sound", overlap=Overlap.ALL)
    row, changes = await office.find("broken"), dict(DAMAGED[column])
    if isinstance(timing := changes.get("declaration"), Timing):
        changes["declaration"] = encode_declaration(msgspec.structs.replace(read_declaration(row), timing=timing))
    office.store.schedule_rows["shop", "broken"] = msgspec.structs.replace(row, **changes)
    office.clock.move(HOUR)
    runner = office.runner()
    for _ in range(3):
        await runner.finish()
        office.clock.move(HOUR)
    assert [task.task_id.partition("@")[0] for task in office.store.tasks.values()] == ["shop/sound"] * 3
    (alert,) = await office.store.alerts()
    assert alert.cause == "unreadable"
    (error,) = await office.store.list_unreadable(10)
    assert error.row == 'schedule ["shop","broken"]'
    office.store.schedule_rows["shop", "broken"] = msgspec.structs.replace(
        row, revision=100
    )  # an operator has corrected it
    await runner.finish()
    assert [task.task_id for task in office.store.tasks.values()].count("shop/broken@2023-11-15T02:13:20Z") == 1
    assert await office.store.look_at_unreadable() == 1


async def test_an_id_that_another_task_has_is_told_once_and_does_not_stop_the_schedule(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    await office.declare(overlap=Overlap.ALL)
    office.clock.move(HOUR)
    (due,) = (await office.store.load_due_schedules(1)).found
    taken = msgspec.structs.replace(build_run(due.row, due.row.next_at or Instant(0), POLICY, 1), workflow="other")
    await office.store.submit([taken])
    await office.runner().tick()
    assert (await office.find()).next_at == later(Instant(NOON // MICROSECONDS * MICROSECONDS), 2 * HOUR)
    assert [message for message in caplog.messages if "was not submitted" in message] != []


async def test_a_pause_while_the_leader_decides_wins(office: Office) -> None:
    await office.declare()
    office.clock.move(HOUR)
    paused = OperateSchedule(actor="cli", verb=ScheduleVerb.PAUSE, app="shop", name="nightly", by="ana", reason="why")

    class Pausing(ScheduleRunner):
        async def _write(self, commands: Any) -> int:
            await office.change(paused)
            return await super()._write(commands)

    runner = Pausing(store=office.store, ports=Ports(), actor="leader", term=lambda: office.term)  # type: ignore[arg-type]
    await runner.tick()
    assert office.hours() == []
