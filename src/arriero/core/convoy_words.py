"""What a convoy waits for, and where a task stands in it: words that views, explanations and findings share."""

from collections.abc import Sequence

import msgspec

from ..escaping import shell_argument
from ..model import ConvoyRow, ConvoyState, ConvoyVerb, Instant, Ordering, TaskRow, TaskState, Turn, later
from ..policies import DEFAULT_CONVOY_POLICY, ConvoyPolicy
from . import wording
from .convoys import policy_of

RANGES_TOLD_MAX = 5
_AFTER_GAP = {"wait": "a person is told", "skip": "it is skipped", "park": "the key is parked"}

Ranges = Sequence[tuple[int, int]]


class Ahead(msgspec.Struct, frozen=True):
    """Who comes before a task that waits.

    Args:
        first: id of the task whose turn it is or comes next; empty: there is none.
        count: how many come before it; with ``more`` that is only how many were counted.
    """

    first: str = ""
    count: int = 0
    more: bool = False


def ahead_of(task_no: int, members: Sequence[TaskRow]) -> Ahead:
    """Who comes before a task, by the first members of its convoy in their order."""
    first = members[0].task_id if members and members[0].task_no != task_no else ""
    numbers = [task.task_no for task in members]
    return Ahead(first, numbers.index(task_no)) if task_no in numbers else Ahead(first, len(members), more=True)


def typed(verb: ConvoyVerb, key: str) -> str:
    """The verb as it is typed, between backticks."""
    name = str(verb).replace("_", "-")
    return f"`arriero convoy {name} {shell_argument(key)}`"


def ranges(missing: Ranges) -> str:
    """Numbers of a sequence: ``3``, ``3 to 5, 8``."""
    told = [f"{first}" if first == last else f"{first} to {last}" for first, last in missing[:RANGES_TOLD_MAX]]
    more = f" and {len(missing) - RANGES_TOLD_MAX} more ranges" if len(missing) > RANGES_TOLD_MAX else ""
    return ", ".join(told) + more


def policy_shown(convoy: ConvoyRow, first: TaskRow | None) -> ConvoyPolicy:
    """The policy in force for the task whose turn it is or comes next; without any, the convoy's own over the defaults."""
    if first is not None:
        return policy_of(convoy, first)
    given = {"head": convoy.on_head, "gap": convoy.on_gap, "gap_within": convoy.gap_within}
    own = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(DEFAULT_CONVOY_POLICY, **own)


def gap_until(convoy: ConvoyRow, policy: ConvoyPolicy) -> Instant | None:
    """Until when a gap is waited for before its policy is followed; None: the convoy waits at none."""
    if convoy.state is not ConvoyState.GAP or convoy.gap_since is None:
        return None
    assert isinstance(policy.gap_within, float)
    return later(convoy.gap_since, policy.gap_within)


def still_since(convoy: ConvoyRow, first: TaskRow | None) -> Instant | None:
    """Since when it stands still, or the task whose turn it is is under way; None: nothing is, or nobody knows."""
    if convoy.parked_at is not None:
        return convoy.parked_at
    if convoy.state is ConvoyState.GAP:
        return convoy.gap_since
    if first is None or convoy.open_task != first.task_no:
        return None
    return first.ended_at if convoy.state is ConvoyState.STOPPED else first.started_at


def waits_for(convoy: ConvoyRow, first: TaskRow | None, waiting: int, missing: Ranges, now: Instant) -> str:
    """What the convoy waits for, as it goes on after "it waits for ".

    Args:
        first: the task whose turn it is, else the one that comes next.
        waiting: how many wait for their turn.
        missing: numbers of its sequence that have not come.
    """
    what = _waits_for(convoy, first, waiting, missing, now)
    if convoy.parked_at is None:
        return what
    release = typed(ConvoyVerb.RELEASE, convoy.key)
    says = f"its release by a person, {release}; parked since {wording.when(convoy.parked_at)} ({convoy.parked_why})"
    is_told = first is not None and convoy.parked_why == f"task {first.task_id} is in error"
    if convoy.state is ConvoyState.STOPPED and not is_told:
        return f"{says}; and for {what}"
    return f"{says}; and for {what}" if convoy.state is ConvoyState.GAP else says


def _waits_for(convoy: ConvoyRow, first: TaskRow | None, waiting: int, missing: Ranges, now: Instant) -> str:
    name = "a task" if first is None else f"task {first.task_id}"
    skip = typed(ConvoyVerb.SKIP, convoy.key)
    match convoy.state:
        case ConvoyState.OPEN:
            paused = ", and which is paused" if first is not None and first.paused_at is not None else ""
            return f"{name}, whose turn it is{paused}"
        case ConvoyState.STOPPED:
            return f"{name}, which is in error: resubmit it, or {skip}"
        case ConvoyState.GAP:
            policy = policy_shown(convoy, first)
            until = gap_until(convoy, policy)
            says = f"{gap_named(convoy, first, missing)}, which has not come"
            if until is not None and until > now and convoy.parked_at is None:
                return f"{says}; if it does not by {wording.when(until)}, {_AFTER_GAP[policy.gap]}"
            return f"{says}: submit it, or {skip}"
        case ConvoyState.IDLE:
            return "a Scheduler, which sees whose turn is next" if waiting else "a new task"
        case _:
            return f"a release that knows the state {convoy.state!r}"


def gap_named(convoy: ConvoyRow, first: TaskRow | None, missing: Ranges) -> str:
    """What is missing before the task that comes next: ``sequence 3 to 5``."""
    end = None if first is None else first.sequence
    before = [one for one in missing if end is None or one[0] < end]
    return f"sequence {ranges(before) or convoy.expected}"


# --- one task of it
def has_lost_its_place(task: TaskRow, convoy: ConvoyRow) -> bool:
    """Whether a task that a person brought back waits although others that came after it have gone before."""
    came_back = task.turn is Turn.WAITING and task.incarnation > 1
    return came_back and task.rank is not None and convoy.reached > task.rank


def would_lose_its_place(task: TaskRow, convoy: ConvoyRow) -> bool:
    """Whether a task that has had its turn, or was set aside, would come back after others have gone before."""
    is_over = task.turn in (Turn.ENDED, Turn.SET_ASIDE)
    return is_over and task.rank is not None and convoy.reached > task.rank


def place_told(task: TaskRow, ordering: Ordering) -> str:
    """Where a task stands: ``place 5``, or ``sequence 7 (place 5)``."""
    return f"place {task.place}" if ordering == "place" else f"sequence {task.sequence} (place {task.place})"


def turn_waited_for(task: TaskRow, convoy: ConvoyRow, ahead: Ahead | None) -> str:
    """What a task waits for whose turn has not come, as it goes on after "it waits for ".

    ``ahead``: who comes before it; None: nobody asked.
    """
    says = f"its turn in convoy {convoy.key!r}"
    if ahead is not None and ahead.count:
        says += f", behind {'more than ' if ahead.more else ''}{wording.counted(ahead.count, 'other')}"
    head = f"task {ahead.first}" if ahead is not None and ahead.first else "the task before it"
    if convoy.parked_at is not None:
        says += f"; the convoy is parked ({convoy.parked_why}) until {typed(ConvoyVerb.RELEASE, convoy.key)}"
    elif convoy.state is ConvoyState.STOPPED:
        says += f"; the convoy stands still on {head}, which is in error"
    elif convoy.state is ConvoyState.GAP:
        says += f"; sequence {convoy.expected} has not come"
    elif convoy.state is ConvoyState.OPEN:
        says += f"; it is the turn of {head}"
    if has_lost_its_place(task, convoy):
        says += "; its place is lost: others that came after it have gone before"
    return says


def person_waited_for(task: TaskRow, convoy: ConvoyRow | None) -> str:
    """Whom a task in error waits for, and what that means for its convoy."""
    assert task.state is TaskState.ERROR
    if convoy is None:
        return "a person"
    match task.turn:
        case Turn.OPEN:
            return f"a person, and convoy {convoy.key!r} stands still until then"
        case Turn.WAITING:
            return f"a person, and for its turn in convoy {convoy.key!r}"
        case Turn.SET_ASIDE:
            return f"a person; convoy {convoy.key!r} has set it aside and goes on without it"
        case _:
            return "a person"
