"""Who may trust a lease, and who may free what another held."""

import msgspec
import pytest
from core_rows import NOW, loaded, step_row
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.lease import (
    HELD_FROM,
    PROBATION_FROM,
    compute_nobody_frees_until,
    compute_trusted_until,
    grant_lease,
    is_led_by_another,
    is_on_probation,
    is_retirable,
    mark_as_leaving,
    may_retire,
    on_process_lost,
    on_stuck,
    prolong_lease,
    read_process_about,
    release_lease,
)
from arriero.model import Instant, Loaded, StepState, TaskState, later
from arriero.model.leases import LeaseRow
from arriero.model.processes import ProcessRow

LOST, OTHER = 7, 8


@st.composite
def held_tasks(draw: st.DrawFn) -> list[Loaded]:
    """Tasks held by a lost process, or with a step running there."""
    tasks: list[Loaded] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        steps = tuple(
            step_row(
                ordinal, state=draw(st.sampled_from(StepState)), locked_by=draw(st.sampled_from([LOST, OTHER, None]))
            )
            for ordinal in range(1, draw(st.integers(0, 3)) + 1)
        )
        row = loaded(
            *steps,
            task_no=number,
            fence=number * 10,
            locked_by=draw(st.sampled_from([LOST, OTHER, None])),
            lost_count=draw(st.integers(0, 3)),
            unseen_since=draw(st.sampled_from([None, NOW])),
            state=draw(st.sampled_from(TaskState)),
        )
        tasks.append(row)
    return tasks


@given(st.floats(0, 1e9), st.floats(0.1, 1e4))
def test_a_lease_is_trusted_for_less_than_its_length_from_before_the_request_left(
    left_at: float, duration: float
) -> None:
    assert left_at <= compute_trusted_until(left_at, duration) < left_at + duration


@pytest.mark.parametrize(("lost_count", "alone"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_task_is_on_probation_from_the_second_loss_on(lost_count: int, alone: bool) -> None:
    assert is_on_probation(loaded(lost_count=lost_count).task) is alone


def may_have_been_the_cause(task: Loaded) -> bool:
    runs_there = any(step.state is StepState.RUNNING and step.locked_by == LOST for step in task.steps)
    return runs_there or (task.task.locked_by == LOST and task.task.unseen_since is not None)


@given(held_tasks())
def test_a_task_on_probation_is_charged_alone_if_it_was_active(tasks: list[Loaded]) -> None:
    freed = on_process_lost(tasks, LOST, "me")
    active = [task.task for task in tasks if may_have_been_the_cause(task)]
    suspects = {task.task_no for task in active if task.lost_count >= PROBATION_FROM}
    charged = {command.task_no for command in freed if command.charged}
    assert charged == (suspects or {task.task_no for task in active})


def test_a_task_that_only_waited_is_not_charged() -> None:
    waits = loaded(task_no=1, locked_by=LOST, unseen_since=None, lost_count=2)
    elsewhere = loaded(step_row(1, locked_by=OTHER), task_no=2, locked_by=LOST)
    acts = loaded(task_no=3, locked_by=LOST, unseen_since=NOW)
    attempts = loaded(step_row(1, locked_by=LOST), task_no=4, locked_by=OTHER)
    charged = [command.charged for command in on_process_lost([waits, elsewhere, acts, attempts], LOST, "me")]
    assert charged == [False, False, True, True]


@given(held_tasks())
def test_the_third_loss_holds_a_task_that_is_open(tasks: list[Loaded]) -> None:
    rows = {task.task.task_no: task.task for task in tasks}
    for command in on_process_lost(tasks, LOST, "me"):
        task = rows[command.task_no]
        is_open = task.state in (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING)
        assert (command.hold is not None) is (command.charged and is_open and task.lost_count + 1 >= HELD_FROM)
        if command.hold is not None:
            assert (command.hold.kind, command.hold.code) == ("lost", "lost")
            assert f"{task.lost_count + 1} processes" in command.hold.reason


@given(held_tasks())
def test_only_what_the_lost_process_held_is_freed(tasks: list[Loaded]) -> None:
    commands = on_process_lost(tasks, LOST, "me")
    assert [command.task_no for command in commands] == [task.task.task_no for task in tasks]
    for command, task in zip(commands, tasks, strict=True):
        assert command.fence == (task.task.fence if task.task.locked_by == LOST else None)
        assert command.steps == tuple(
            (s.step_no, s.fence) for s in task.steps if s.state is StepState.RUNNING and s.locked_by == LOST
        )
        assert (command.lost_by, command.stuck_since, command.term, command.actor) == (LOST, None, None, "me")


@pytest.mark.parametrize(("lost_count", "held"), [(0, False), (1, False), (2, True)])
def test_a_stuck_task_is_freed_as_lost_and_its_attempts_go_on(lost_count: int, held: bool) -> None:
    running = step_row(1, locked_by=LOST)
    command = on_stuck(loaded(running, lost_count=lost_count, fence=4, unseen_since=NOW), "me", 3)
    assert (command.fence, command.steps, command.lost_by, command.stuck_since, command.term) == (4, (), None, NOW, 3)
    assert command.charged
    assert (command.hold is not None) is held


@given(held_tasks())
def test_a_process_that_was_asked_to_end_charges_nobody_however_it_ended(tasks: list[Loaded]) -> None:
    tasks = [
        msgspec.structs.replace(
            task, steps=tuple(msgspec.structs.replace(step, lost_count=step.lost_count % 3) for step in task.steps)
        )
        for task in tasks
    ]
    commands = on_process_lost(tasks, LOST, "me", was_leaving=True)
    assert [(command.task_no, command.charged, command.hold) for command in commands] == [
        (task.task.task_no, False, None) for task in tasks
    ]
    as_lost = on_process_lost(tasks, LOST, "me")
    assert [(one.fence, one.steps) for one in commands] == [(one.fence, one.steps) for one in as_lost]


@pytest.mark.parametrize(("lost_count", "charged"), [(2, False), (3, True), (4, True)])
def test_a_step_that_is_lost_again_and_again_is_charged_though_its_process_was_asked_to_end(
    lost_count: int, charged: bool
) -> None:
    step = step_row(1, locked_by=LOST, lost_count=lost_count)
    (lost,) = on_process_lost([loaded(step)], LOST, "me", was_leaving=True)
    assert lost.charged is charged


@given(st.integers(PROBATION_FROM + 1, 9), st.integers(0, 9))
def test_a_task_is_held_at_the_loss_that_the_setting_names(held_from: int, lost_count: int) -> None:
    row = loaded(locked_by=LOST, unseen_since=NOW, lost_count=lost_count)
    (lost,) = on_process_lost([row], LOST, "me", held_from=held_from)
    stuck = on_stuck(row, "me", 3, held_from)
    assert [one.hold is not None for one in (lost, stuck)] == [lost_count + 1 >= held_from] * 2
    assert [one.held_from for one in (lost, stuck)] == [held_from] * 2


def test_what_a_process_says_of_itself_stays_when_it_leaves() -> None:
    about = '{"app":"shop","roles":["agents"],"workflows":["fulfil"],"steps":[["bank","charge"]],"policies":{"fulfil":"{}"}}'
    before = read_process_about(ProcessRow(1, "a", NOW, False, about))
    after = read_process_about(ProcessRow(1, "a", NOW, False, mark_as_leaving(about)))
    assert (before.leaving, after) == (False, msgspec.structs.replace(before, leaving=True))


instants = st.integers(0, 10**6).map(Instant)


@given(instants, instants, instants)
def test_a_lease_is_lapsed_only_when_it_is_over_and_others_could_have_renewed(
    now: Instant, until: Instant, nobody: Instant
) -> None:
    may = may_retire(now, until, known_dead=False, nobody_frees_until=nobody)
    assert may is (until <= now and nobody <= now)


@given(instants, instants, instants)
def test_a_process_known_to_be_dead_is_retired_at_once(now: Instant, until: Instant, nobody: Instant) -> None:
    assert may_retire(now, until, known_dead=True, nobody_frees_until=nobody)


def test_after_a_time_when_nobody_could_write_nobody_is_freed() -> None:
    lapsed, soon = later(NOW, -60), later(NOW, 3)
    assert not may_retire(NOW, lapsed, known_dead=False, nobody_frees_until=soon)
    assert may_retire(soon, lapsed, known_dead=False, nobody_frees_until=soon)


# --- what stores ask when they keep leases
LENGTH = 3.0
holders = st.sampled_from([None, LOST, OTHER])


@st.composite
def leases(draw: st.DrawFn) -> LeaseRow:
    return LeaseRow("supervisor", draw(st.integers(0, 5)), draw(holders), draw(instants))


@given(leases(), instants)
def test_a_lease_is_granted_unless_another_process_holds_it_and_it_has_not_lapsed(
    lease: LeaseRow, now: Instant
) -> None:
    granted = grant_lease(lease, OTHER, now, LENGTH)
    assert (granted is None) is is_led_by_another(lease, OTHER, now) is (lease.holder == LOST and lease.until > now)
    assert granted is None or (granted.holder, granted.until) == (OTHER, later(now, LENGTH))


@given(leases(), instants)
def test_only_who_still_holds_a_lease_keeps_its_term_and_every_other_grant_begins_the_next(
    lease: LeaseRow, now: Instant
) -> None:
    granted = grant_lease(lease, OTHER, now, LENGTH)
    if granted is not None:
        is_still_its_own = lease.holder == OTHER and lease.until > now
        assert granted.term == lease.term + (0 if is_still_its_own else 1)


@given(leases(), st.integers(0, 5), instants)
def test_a_lease_is_prolonged_for_its_holder_in_its_term_while_it_has_not_lapsed(
    lease: LeaseRow, term: int, now: Instant
) -> None:
    prolonged = prolong_lease(lease, OTHER, term, now, LENGTH)
    if lease.holder == OTHER and lease.term == term and lease.until > now:
        assert prolonged == LeaseRow(lease.name, term, OTHER, later(now, LENGTH))
    else:
        assert prolonged is None


@given(leases(), st.integers(0, 5))
def test_a_lease_is_given_back_by_its_holder_in_its_term_alone(lease: LeaseRow, term: int) -> None:
    released = release_lease(lease, OTHER, term)
    if (lease.holder, lease.term) == (OTHER, term):
        assert released == LeaseRow(lease.name, term, None, lease.until)
    else:
        assert released is None


@given(instants, instants, st.booleans(), st.booleans())
def test_a_process_is_retired_once_and_only_when_its_lease_has_lapsed_or_it_is_dead(
    until: Instant, now: Instant, retired: bool, dead: bool
) -> None:
    process = ProcessRow(LOST, "p", until, retired, "{}")
    assert is_retirable(process, now, known_dead=dead) is (not retired and (dead or until <= now))


@given(instants, instants, instants)
def test_when_nobody_renewed_for_longer_than_a_lease_all_get_the_time_of_one(
    known: Instant, last: Instant, now: Instant
) -> None:
    until = compute_nobody_frees_until(known, last, now, LENGTH)
    assert until == (later(now, LENGTH) if now > later(last, LENGTH) else known)
    assert compute_nobody_frees_until(known, None, now, LENGTH) == known
