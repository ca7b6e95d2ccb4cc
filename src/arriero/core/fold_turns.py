"""What the events of a convoy say of whose turn it is, and the invariants they show."""

from collections.abc import Callable

from ..model import ConvoyState, ConvoyVerb, Turn
from .convoy_verbs import CONVOY_VERB_RULES
from .fold import Event, TaskFold
from .fold_key import ConvoyFold, Told, plain
from .fold_line import Member


def placed(convoy: ConvoyFold, task: TaskFold, event: Event) -> None:
    """A task comes. Whoever submits holds the tail until the commit, so places stand in order."""
    convoy.key = convoy.key or event["key"]
    place, rank, sequence = event["place"], event["rank"], event.get("sequence")
    if event["key"] != convoy.key:
        convoy.convict("I39", f"task {task.task_id} was placed under the key {event['key']!r}")
    if place <= convoy.last_place:
        convoy.convict("I39", f"place {place} was given after place {convoy.last_place}")
    if event.get("refused"):  # of a ledger, and the convoy takes it no more: it has a place, and is set aside at once
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
    convoy.end_rank = rank if event.get("end") else convoy.end_rank
    convoy.line.place(task, event)


# --- turns
def opened(convoy: ConvoyFold, member: Member, told: Told) -> None:
    _judge_begin(convoy, member, told)
    convoy.begin(member, told.event, ConvoyState.OPEN)
    convoy.expect(told.event.get("expected", 1), told.seen)


def stopped(convoy: ConvoyFold, member: Member, told: Told) -> None:
    event = told.event
    if convoy.open_task != member.task.task_no:
        _judge_begin(convoy, member, told)
    elif convoy.is_parked and not event["parked"]:
        convoy.convict("I41", f"it stands still on task {member.task_id} and is not parked, but nobody released it")
    convoy.begin(member, event, ConvoyState.STOPPED)
    convoy.expect(event["expected"], told.seen)
    convoy.is_parked = event["parked"]


def _judge_begin(convoy: ConvoyFold, member: Member, told: Told) -> None:
    what = f"the turn of task {member.task_id} began"
    if convoy.open_task is not None:
        other = convoy.name(convoy.open_task)
        if convoy.state is ConvoyState.STOPPED:
            convoy.convict("I41", f"{what} while the convoy stood still on task {other}")
        else:
            convoy.convict("I40", f"{what} while task {other} had its turn")
    if convoy.is_parked:
        convoy.convict("I41", f"{what} while the convoy was parked")
    convoy.judge_first(member, told.seen, what)
    if member.sequence is None:
        return
    if member.sequence < convoy.expected and member.task.incarnation == 1:
        convoy.convict(
            "I40", f"{what}, but its sequence {member.sequence} had been passed before it came", unless_purged=True
        )
    missing = convoy.line.missing(convoy.expected, member.sequence, told.seen)
    if missing is not None:
        convoy.convict("I40", f"{what}, but sequence {missing} had not come and was not skipped", unless_purged=True)


def closed(convoy: ConvoyFold, member: Member, told: Told) -> None:
    if convoy.open_task != member.task.task_no:
        convoy.convict("I40", f"the turn of task {member.task_id} ended, it was {convoy.name(convoy.open_task)}'s")
    convoy.grow_fence(told.event)
    member.turn, convoy.state, convoy.open_task = Turn(told.event["turn"]), ConvoyState.IDLE, None


def mended(convoy: ConvoyFold, member: Member, told: Told) -> None:
    if convoy.state is not ConvoyState.STOPPED or convoy.open_task != member.task.task_no:
        convoy.convict("I41", f"it goes on with task {member.task_id}, on which it did not stand still")
    if convoy.is_parked:
        convoy.convict("I41", f"it goes on with task {member.task_id} while it is parked")
    convoy.grow_fence(told.event)
    convoy.state = ConvoyState.OPEN


def returned(convoy: ConvoyFold, member: Member, told: Told) -> None:
    event = told.event
    stood_on_it = convoy.open_task == member.task.task_no
    if stood_on_it:
        if not convoy.is_parked:
            convoy.convict("I41", f"task {member.task_id} gave up its turn in a convoy that is not parked")
        convoy.grow_fence(event)
        convoy.state, convoy.open_task = ConvoyState.IDLE, None
    elif event["fence"] != convoy.fence:
        convoy.convict("I6", f"fence {event['fence']} is told, it is {convoy.fence}", unless_purged=True)
    _judge_lost_place(convoy, member, stood_on_it=stood_on_it, says_lost=event["place_lost"])
    convoy.line.wait(member)


def _judge_lost_place(convoy: ConvoyFold, member: Member, *, stood_on_it: bool, says_lost: bool) -> None:
    """One that was moved may share a rank with an earlier one; whether that counts as lost is left open."""
    is_lost = not stood_on_it and convoy.reached[0] > member.rank
    may_be_lost = not stood_on_it and convoy.reached > (member.rank, member.place)
    if says_lost not in (is_lost, may_be_lost):
        said = "has lost its place" if says_lost else "keeps its place"
        convoy.convict("I41", f"it is told that task {member.task_id} {said}; that is not so", unless_purged=says_lost)


def left(_convoy: ConvoyFold, member: Member, _told: Told) -> None:
    member.turn = Turn.ENDED


def set_aside(convoy: ConvoyFold, member: Member, told: Told) -> None:
    if told.event["why"] != "ledger":  # such a one has no turn at all, whatever stands before it
        convoy.judge_first(member, told.seen, f"task {member.task_id} was passed over")
    if told.event["why"] == "late" and (member.sequence is None or member.sequence >= convoy.expected):
        convoy.convict("I40", f"task {member.task_id} was set aside as late, it was not", unless_purged=True)
    member.turn = Turn.SET_ASIDE


def moved(convoy: ConvoyFold, member: Member, told: Told) -> None:
    if member.sequence is not None:
        convoy.convict("I40", f"task {member.task_id} was moved, though the order is its producer's")
    member.rank = told.event["rank"]
    convoy.line.wait(member)
    convoy.judge_first(member, told.seen, f"task {member.task_id} was moved to the head, and stands not")


# --- the key itself
def waiting(convoy: ConvoyFold, told: Told) -> None:
    _judge_gap(convoy, told)
    expected, before = told.event["expected"], told.event["before"]
    if convoy.line.missing(expected, before, told.seen) is None:
        convoy.convict("I40", f"it waits before sequence {before}, but all from {expected} on have come")
    convoy.state = ConvoyState.GAP


def skipped(convoy: ConvoyFold, told: Told) -> None:
    _judge_gap(convoy, told)
    convoy.expected = max(convoy.expected, told.event["before"])
    convoy.state = ConvoyState.IDLE


def _judge_gap(convoy: ConvoyFold, told: Told) -> None:
    before = told.event["before"]
    convoy.expect(told.event["expected"], told.seen)
    first = convoy.line.first(told.seen)
    if first is None or first.sequence != before:
        found = "nothing waits" if first is None else f"task {first.task_id} is the first that waits"
        convoy.convict("I40", f"{told.event['type']} before sequence {before}, but {found}", unless_purged=True)


def parked(convoy: ConvoyFold, _told: Told) -> None:
    convoy.is_parked = True


def acted(convoy: ConvoyFold, told: Told) -> None:
    """A person's verb; what follows from it comes behind it."""
    event = told.event
    verb, before = ConvoyVerb(event["verb"]), event["before"]
    if not event["by"]:
        convoy.convict("I59", f"{verb} by nobody")
    if (verb, before) not in CONVOY_VERB_RULES:
        convoy.convict("I59", f"{verb} was carried out on a convoy that was {before}")
    if plain(before) != convoy.shown:
        convoy.convict("I59", f"{verb} is recorded from {before}, it was {convoy.shown}", unless_purged=True)
    if verb in (ConvoyVerb.PARK, ConvoyVerb.RELEASE):
        convoy.is_parked = verb is ConvoyVerb.PARK
    convoy.promise = (told.at, plain(event["after"]), event["fence"])


OF_TASKS: dict[str, Callable[[ConvoyFold, Member, Told], None]] = {
    "convoy.opened": opened,
    "convoy.closed": closed,
    "convoy.stopped": stopped,
    "convoy.mended": mended,
    "convoy.returned": returned,
    "convoy.left": left,
    "convoy.set_aside": set_aside,
    "convoy.moved": moved,
}
OF_THE_KEY: dict[str, Callable[[ConvoyFold, Told], None]] = {
    "convoy.waiting": waiting,
    "convoy.skipped": skipped,
    "convoy.parked": parked,
    "convoy.action": acted,
}
