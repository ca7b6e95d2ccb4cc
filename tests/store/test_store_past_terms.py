"""Every command that a leader sends carries its term and what it was decided from. A former leader's changes nothing."""

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from core_schedules import POLICY, fire_command
from store_world import World

import arriero
from arriero.core.lease import on_stuck
from arriero.model import MICROSECONDS, Loaded, TaskState, commands, later, schedules
from arriero.model.answers import Refusal
from arriero.model.commands import Command, EndByLimit, FreeTask, Recover
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo
from arriero.model.schedules import (
    DeclareSchedule,
    FireSchedule,
    OperateSchedule,
    Overlap,
    ProblemCause,
    ReportScheduleProblem,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleVerb,
    Timing,
)

# What runs on the leader, and the functions of the core that build commands for it.
LEADER = ("runtime/supervisor.py", "runtime/schedule_runner.py", "runtime/upkeep.py", "runtime/leader.py")
CORE = {"on_stuck": "core/lease.py", "build_fire": "core/schedules.py"}
READS = {
    "find_unnoticed_children",
    "known_processes",
    "list_ledgers",
    "list_workflow_pauses",
    "load_due_schedules",
    "load_overdue",
    "now",
}
# Their guard is the holder's own term, which they name.
OF_THE_LEASE = {"acquire_lease", "release_lease", "renew_lease"}
# Decided under lock from what stands there, not from what a leader read before: tests/store/test_store_upkeep_twice.py, and
# docs/internals/supervisor.md has the reason for each.
UPKEEP = {
    "close_recovered_breakers",
    "discard_ledger",
    "drop_statuses",
    "fold_agent_counts",
    "let_go",
    "let_waiting_begin",
    "look_at_forgotten",
    "look_at_unreadable",
    "remove_obsolete_rows",
    "remove_old_rates",
    "repair_waiting_keys",
}
# Commands of the upkeep that are decided under lock from what stands there: a parent is woken only while it waits for that child.
WITHOUT_TERM = {"NoteChildEnd"}
HOUR = 3_600

Scenario = Callable[[World], Awaitable["Sent"]]


class Sent:
    """A command of a leader of term 1, and how what it was decided from changes."""

    def __init__(self, command: Any, move_on: Callable[[], Awaitable[object]]) -> None:
        self.command = command
        self.move_on = move_on


def _parse(path: str) -> ast.Module:
    return ast.parse((Path(arriero.__file__).parent / path).read_text())


def _list_called(tree: ast.AST) -> set[str]:
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {func.id for func in called if isinstance(func, ast.Name)}


def list_commands_of_leaders() -> set[str]:
    """The names of all commands that the modules of the leader build."""
    named = set[str]()
    for path in LEADER:
        tree = _parse(path)
        named |= _list_called(tree)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for function in used & CORE.keys():
            (found,) = (
                node
                for node in _parse(CORE[function]).body
                if isinstance(node, ast.FunctionDef) and node.name == function
            )
            named |= _list_called(found)
    known = {
        name
        for module in (commands, schedules)
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, Command)
    }
    return named & known


async def recover(world: World) -> Sent:
    task, (charge,) = await world.running(await world.held(), "charge")
    world.clock.to(charge.complete_by)
    command = world.recover_command(charge, 1)
    return Sent(command, lambda: world.written(world.free_command(task, [charge], lost_by=1)))


async def end_by_limit(world: World) -> Sent:
    task = await world.held(complete_within=60.0)
    world.clock.to(task.complete_by)
    failure = TaskFailure("limit", "its limit has passed")
    fields: dict[str, Any] = {"fence": task.fence, "revision": task.revision, "state": task.state}
    command = EndByLimit(actor="leader", task_no=task.task_no, ending=BeginUndo(failure), term=1, **fields)
    return Sent(command, lambda: world.opened(task))


async def free_stuck(world: World) -> Sent:
    task = await world.held()
    (_, (charge,)) = await world.running(task, "charge")
    await world.report(charge, process_no=1)
    loaded = await world.load(task.task_no)
    assert loaded.task.unseen_since is not None
    command = on_stuck(Loaded(loaded.task, loaded.arguments, loaded.steps), "leader", 1)
    return Sent(command, lambda: world.written(world.free_command(loaded.task, lost_by=1)))


async def _declare(world: World, **changes: Any) -> ScheduleRow:
    fields: dict[str, Any] = {"workflow": "fulfil", "arguments": "{}", "policy": POLICY}
    declaration = ScheduleDeclaration(**(fields | {"timing": Timing(every=HOUR * MICROSECONDS)} | changes))
    command = DeclareSchedule(actor="p", app="shop", name="nightly", declaration=declaration)
    (answer,) = await world.store.change_schedules([command])
    assert not isinstance(answer, Refusal | Exception)
    assert answer.row is not None
    return answer.row


async def _pause(world: World) -> None:
    named: dict[str, Any] = {"app": "shop", "name": "nightly", "by": "ana", "reason": "let it end"}
    await world.store.change_schedules([OperateSchedule(actor="cli", verb=ScheduleVerb.PAUSE, **named)])


async def fire(world: World) -> Sent:
    row = await _declare(world, overlap=Overlap.CANCEL_RUNNING)
    world.clock.move(HOUR)
    (answer,) = await world.store.change_schedules([fire_command(row, world.clock(), 1)])
    assert not isinstance(answer, Refusal | Exception)
    assert answer.row is not None
    world.clock.move(HOUR)
    command = fire_command(answer.row, world.clock(), 1, is_open=True)
    assert command.cancels
    return Sent(command, lambda: _pause(world))


async def report_problem(world: World) -> Sent:
    row = await _declare(world)
    named: dict[str, Any] = {"app": "shop", "name": "nightly", "revision": row.revision, "term": 1}
    said: dict[str, Any] = {"cause": ProblemCause.CODE, "problem": "nobody has it"}
    look_at = later(world.clock(), 10)
    command = ReportScheduleProblem(actor="leader", look_at=look_at, **named, **said)
    return Sent(command, lambda: _pause(world))


SCENARIOS: dict[type[Command], Scenario] = {
    Recover: recover,
    EndByLimit: end_by_limit,
    FreeTask: free_stuck,
    FireSchedule: fire,
    ReportScheduleProblem: report_problem,
}


async def _send(world: World, command: Any) -> Any:
    is_of_schedule = isinstance(command, FireSchedule | ReportScheduleProblem)
    (answer,) = await (world.store.change_schedules if is_of_schedule else world.store.apply)([command])
    return answer


async def _read_everything(world: World) -> Any:
    tasks = await world.store.list_tasks(limit=1_000)
    loaded = [await world.load(task.task_no) for task in tasks]
    return loaded, await world.store.list_schedules(), await world.store.alerts(open_only=False)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=[kind.__name__ for kind in SCENARIOS])
async def test_a_command_of_a_past_term_changes_nothing_and_is_counted(world: World, scenario: Scenario) -> None:
    assert await world.lead(await world.process("p1")) == 1
    sent = await scenario(world)
    world.clock.move(1_000)  # its lease lapses
    assert await world.lead(await world.process("p2")) == 2
    before = await _read_everything(world)
    answer = await _send(world, sent.command)
    assert isinstance(answer, Refusal)
    assert answer.verdict == "old_term"
    assert await _read_everything(world) == before
    assert (await world.store.count_refused_terms())[0] == 1


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=[kind.__name__ for kind in SCENARIOS])
async def test_a_command_decided_from_rows_that_changed_since_changes_nothing(world: World, scenario: Scenario) -> None:
    assert await world.lead(await world.process("p1")) == 1
    sent = await scenario(world)
    if not isinstance(sent.command, FireSchedule | ReportScheduleProblem):
        await world.store.retire(1, by="p2", known_dead=True)
    await sent.move_on()
    before = await _read_everything(world)
    command = sent.command
    if not isinstance(command, FireSchedule | ReportScheduleProblem):  # whoever leads now: only the rows refuse it
        world.clock.move(1_000)
        term = await world.lead(await world.process("p3"))
        command = type(command)(**{n: getattr(command, n) for n in command.__struct_fields__} | {"term": term})
    answer = await _send(world, command)
    assert isinstance(answer, Refusal)
    assert answer.verdict == "moved_on"
    assert await _read_everything(world) == before


async def test_a_leader_that_was_paused_by_a_person_meanwhile_cancels_no_run(world: World) -> None:
    assert await world.lead(await world.process("p1")) == 1
    sent = await fire(world)
    await _pause(world)
    await _send(world, sent.command)
    (task,) = await world.store.list_tasks()
    assert task.state is TaskState.PENDING


def test_the_commands_that_leaders_send_are_those_that_are_tried_here() -> None:
    assert list_commands_of_leaders() - WITHOUT_TERM == {kind.__name__ for kind in SCENARIOS}


def test_whatever_else_a_leader_writes_is_known_and_has_its_reason() -> None:
    called = set[str]()
    for path in LEADER:
        for node in ast.walk(_parse(path)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self._store":
                called.add(node.attr)
    assert called - READS - OF_THE_LEASE - UPKEEP == {"change_schedules", "apply"}
    assert called >= READS | OF_THE_LEASE | UPKEEP
