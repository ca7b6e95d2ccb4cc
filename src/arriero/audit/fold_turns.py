"""The fold of the turns in a convoy, and their invariants."""

from typing import assert_never

from ..events.convoy import (
    ConvoyAction,
    ConvoyClosed,
    ConvoyLeft,
    ConvoyMended,
    ConvoyMoved,
    ConvoyOpened,
    ConvoyParked,
    ConvoyPlaced,
    ConvoyReturned,
    ConvoySetAside,
    ConvoySkipped,
    ConvoyStopped,
    ConvoyWaiting,
    EventOfConvoy,
    EventOfTurn,
)
from ..model import ConvoyState, ConvoyVerb, Turn
from ..verb_rules import CONVOY_VERB_RULES
from .fold import TaskFold
from .fold_key import ConvoyFold, plain
from .fold_waiting import Member


def place_task(convoy: ConvoyFold, task: TaskFold, event: ConvoyPlaced) -> None:
    """Fold a task that comes. The submitter holds the tail until the commit, so places stand in order."""
    convoy.key = convoy.key or event.key
    place, rank, sequence = event.place, event.rank, event.sequence
    if event.key != convoy.key:
        convoy.convict("I39", f"task {task.task_id} was placed under the key {event.key!r}")
    if place <= convoy.last_place:
        convoy.convict("I39", f"place {place} was given after place {convoy.last_place}")
    if event.refused:  # of a ledger, and the convoy takes it no more: it has a place, and is set aside at once
        convoy.last_place = max(convoy.last_place, place)
        convoy.line.place(task, event)
        return
    if sequence is not None and convoy.line.has(sequence, len(convoy.line)):
        convoy.convict("I40", f"sequence {sequence} was placed twice")
    if convoy.line.is_by_sequence not in (None, sequence is not None):
        convoy.convict("I39", f"place {place} is ordered in another way than those before")
    if convoy.end_rank is not None and rank > convoy.end_rank:
        convoy.convict("I39", f"task {task.task_id} was placed behind the end mark at {convoy.end_rank}")
    convoy.last_place = max(convoy.last_place, place)
    convoy.end_rank = rank if event.end else convoy.end_rank
    convoy.line.place(task, event)


# --- turns
def fold_turn_of_key(convoy: ConvoyFold, member: Member, event: EventOfTurn, seen: int) -> None:
    """Fold one event that stands in the history of a task. ``seen``: how many tasks had been placed before it."""
    match event:
        case ConvoyPlaced():
            pass  # it has no number: see ``place_task``
        case ConvoyOpened():
            _judge_begin(convoy, member, seen)
            convoy.begin(member, event, ConvoyState.OPEN)
            convoy.expect(event.expected, seen)
        case ConvoyClosed():
            _close(convoy, member, event)
        case ConvoyStopped():
            _stop(convoy, member, event, seen)
        case ConvoyMended():
            _go_on(convoy, member, event)
        case ConvoyReturned():
            _return(convoy, member, event)
        case ConvoyLeft():
            member.turn = Turn.ENDED
        case ConvoySetAside():
            _set_aside(convoy, member, event, seen)
        case ConvoyMoved():
            _move(convoy, member, event, seen)
        case _:
            assert_never(event)


def _stop(convoy: ConvoyFold, member: Member, event: ConvoyStopped, seen: int) -> None:
    if convoy.open_task != member.task.task_no:
        _judge_begin(convoy, member, seen)
    elif convoy.is_parked and not event.parked:
        convoy.convict("I41", f"it stands still on task {member.task_id} and is not parked, but nobody released it")
    convoy.begin(member, event, ConvoyState.STOPPED)
    convoy.expect(event.expected, seen)
    convoy.is_parked = event.parked


def _judge_begin(convoy: ConvoyFold, member: Member, seen: int) -> None:
    what = f"the turn of task {member.task_id} began"
    if convoy.open_task is not None:
        other = convoy.name(convoy.open_task)
        if convoy.state is ConvoyState.STOPPED:
            convoy.convict("I41", f"{what} while the convoy stood still on task {other}")
        else:
            convoy.convict("I40", f"{what} while task {other} had its turn")
    if convoy.is_parked:
        convoy.convict("I41", f"{what} while the convoy was parked")
    convoy.judge_first(member, seen, what)
    if member.sequence is None:
        return
    if member.sequence < convoy.expected and member.task.incarnation == 1:
        convoy.convict(
            "I40", f"{what}, but its sequence {member.sequence} had been passed before it came", unless_purged=True
        )
    missing = convoy.line.find_missing(convoy.expected, member.sequence, seen)
    if missing is not None:
        convoy.convict("I40", f"{what}, but sequence {missing} had not come and was not skipped", unless_purged=True)


def _close(convoy: ConvoyFold, member: Member, event: ConvoyClosed) -> None:
    if convoy.open_task != member.task.task_no:
        convoy.convict("I40", f"the turn of task {member.task_id} ended, it was {convoy.name(convoy.open_task)}'s")
    convoy.grow_fence(event)
    member.turn, convoy.state, convoy.open_task = Turn(event.turn), ConvoyState.IDLE, None


def _go_on(convoy: ConvoyFold, member: Member, event: ConvoyMended) -> None:
    if convoy.state is not ConvoyState.STOPPED or convoy.open_task != member.task.task_no:
        convoy.convict("I41", f"it goes on with task {member.task_id}, on which it did not stand still")
    if convoy.is_parked:
        convoy.convict("I41", f"it goes on with task {member.task_id} while it is parked")
    convoy.grow_fence(event)
    convoy.state = ConvoyState.OPEN


def _return(convoy: ConvoyFold, member: Member, event: ConvoyReturned) -> None:
    stood_on_it = convoy.open_task == member.task.task_no
    if stood_on_it:
        if not convoy.is_parked:
            convoy.convict("I41", f"task {member.task_id} gave up its turn in a convoy that is not parked")
        convoy.grow_fence(event)
        convoy.state, convoy.open_task = ConvoyState.IDLE, None
    elif event.fence != convoy.fence:
        convoy.convict("I6", f"fence {event.fence} is told, it is {convoy.fence}", unless_purged=True)
    _judge_lost_place(convoy, member, stood_on_it=stood_on_it, says_lost=event.place_lost)
    convoy.line.wait(member)


def _judge_lost_place(convoy: ConvoyFold, member: Member, *, stood_on_it: bool, says_lost: bool) -> None:
    """Judge the mark of a lost place. A task that was moved may share a rank with an earlier one; either mark is right then."""
    is_lost = not stood_on_it and convoy.reached[0] > member.rank
    may_be_lost = not stood_on_it and convoy.reached > (member.rank, member.place)
    if says_lost not in (is_lost, may_be_lost):
        said = "has lost its place" if says_lost else "keeps its place"
        convoy.convict("I41", f"it is told that task {member.task_id} {said}; that is not so", unless_purged=says_lost)


def _set_aside(convoy: ConvoyFold, member: Member, event: ConvoySetAside, seen: int) -> None:
    if event.why != "ledger":  # such a one has no turn at all, whatever stands before it
        convoy.judge_first(member, seen, f"task {member.task_id} was passed over")
    if event.why == "late" and (member.sequence is None or member.sequence >= convoy.expected):
        convoy.convict("I40", f"task {member.task_id} was set aside as late, it was not", unless_purged=True)
    member.turn = Turn.SET_ASIDE


def _move(convoy: ConvoyFold, member: Member, event: ConvoyMoved, seen: int) -> None:
    if member.sequence is not None:
        convoy.convict("I40", f"task {member.task_id} was moved, though the order is its producer's")
    member.rank = event.rank
    convoy.line.wait(member)
    convoy.judge_first(member, seen, f"task {member.task_id} was moved to the head, and stands not")


# --- the key itself
def fold_key_event(convoy: ConvoyFold, event: EventOfConvoy, at: int, seen: int) -> None:
    """Fold one event of the convoy's own stream. ``seen``: how many tasks had been placed before it."""
    match event:
        case ConvoyWaiting(expected=expected, before=before):
            _judge_gap(convoy, event, seen)
            if convoy.line.find_missing(expected, before, seen) is None:
                convoy.convict("I40", f"it waits before sequence {before}, but all from {expected} on have come")
            convoy.state = ConvoyState.GAP
        case ConvoySkipped(before=before):
            _judge_gap(convoy, event, seen)
            convoy.expected = max(convoy.expected, before)
            convoy.state = ConvoyState.IDLE
        case ConvoyParked():
            convoy.is_parked = True
        case ConvoyAction():
            _operate(convoy, event, at)
        case _:
            assert_never(event)


def _judge_gap(convoy: ConvoyFold, event: ConvoyWaiting | ConvoySkipped, seen: int) -> None:
    before = event.before
    convoy.expect(event.expected, seen)
    first = convoy.line.first(seen)
    if first is None or first.sequence != before:
        found = "nothing waits" if first is None else f"task {first.task_id} is the first that waits"
        convoy.convict("I40", f"{event.type} before sequence {before}, but {found}", unless_purged=True)


def _operate(convoy: ConvoyFold, event: ConvoyAction, at: int) -> None:
    """Fold a person's verb; the events that follow from it come behind it."""
    verb, before = ConvoyVerb(event.verb), event.before
    if not event.by:
        convoy.convict("I59", f"{verb} by nobody")
    if (verb, before) not in CONVOY_VERB_RULES:
        convoy.convict("I59", f"{verb} was carried out on a convoy that was {before}")
    if plain(before) != convoy.shown:
        convoy.convict("I59", f"{verb} is recorded from {before}, it was {convoy.shown}", unless_purged=True)
    if verb in (ConvoyVerb.PARK, ConvoyVerb.RELEASE):
        convoy.is_parked = verb is ConvoyVerb.PARK
    convoy.promise = (at, plain(event.after), event.fence)
