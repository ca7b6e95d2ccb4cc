"""Texts about convoys that views, explanations and findings share: what a convoy waits for, the place of a task."""

from collections.abc import Mapping, Sequence

import msgspec

from ..core.convoys import resolve_convoy_policy
from ..model import ConvoyRow, ConvoyState, ConvoyVerb, Instant, Ordering, TaskRow, TaskState, Turn, later
from ..model.policies import DEFAULT_CONVOY_POLICY, ConvoyPolicy
from ..text.escaping import shell_argument
from ..text.format import format_count, format_instant, format_seconds

RANGES_SHOWN_MAX = 5
_GAP_EFFECTS = {"wait": "an alert is opened", "skip": "it is skipped", "park": "the key is parked"}

Ranges = Sequence[tuple[int, int]]


class TasksAhead(msgspec.Struct, frozen=True):
    """The tasks that come before a task that waits.

    Args:
        first: id of the task whose turn it is or comes next; empty: there is none.
        count: how many come before it; with ``more`` that is only how many were counted.
    """

    first: str = ""
    count: int = 0
    more: bool = False


def find_tasks_ahead(task_no: int, members: Sequence[TaskRow]) -> TasksAhead:
    """Find the tasks before one, among the first members of its convoy in their order."""
    first = members[0].task_id if members and members[0].task_no != task_no else ""
    numbers = [task.task_no for task in members]
    return (
        TasksAhead(first, numbers.index(task_no)) if task_no in numbers else TasksAhead(first, len(members), more=True)
    )


def format_convoy_command(verb: ConvoyVerb, key: str) -> str:
    """Format the command of a verb, between backticks."""
    name = str(verb).replace("_", "-")
    return f"`arriero convoy {name} {shell_argument(key)}`"


def format_ranges(missing: Ranges) -> str:
    """Format numbers of a sequence: ``3``, ``3 to 5, 8``."""
    told = [f"{first}" if first == last else f"{first} to {last}" for first, last in missing[:RANGES_SHOWN_MAX]]
    more = (
        f" and {format_count(len(missing) - RANGES_SHOWN_MAX, 'more range')}" if len(missing) > RANGES_SHOWN_MAX else ""
    )
    return ", ".join(told) + more


def effective_policy(convoy: ConvoyRow, first: TaskRow | None) -> ConvoyPolicy:
    """Return the policy for the task whose turn it is or comes next; without a task, the convoy's own over the defaults."""
    if first is not None:
        return resolve_convoy_policy(convoy, first)
    given = {"head": convoy.on_head, "gap": convoy.on_gap, "gap_within": convoy.gap_within}
    own = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(DEFAULT_CONVOY_POLICY, **own)


def format_policy(policy: ConvoyPolicy | None, own: Mapping[str, str | float]) -> str:
    """Format the policy in force. ``own``: the parts of it that are set for the key, by name."""
    force = {} if policy is None else {"head": policy.head, "gap": policy.gap, "gap_within": policy.gap_within}
    parts: list[str] = []
    for name, value in {**force, **own}.items():
        shown = format_seconds(value) if isinstance(value, float) else str(value)
        parts.append(f"{name.replace('_', ' ')} {shown}{' (its own)' if name in own else ''}")
    return "; ".join([*parts, *(["else that of the workflow of each task"] if policy is None else [])])


def gap_deadline(convoy: ConvoyRow, policy: ConvoyPolicy) -> Instant | None:
    """Return when the gap policy is applied; None if the convoy does not wait at a gap."""
    if convoy.state is not ConvoyState.GAP or convoy.gap_since is None:
        return None
    assert isinstance(policy.gap_within, float)
    return later(convoy.gap_since, policy.gap_within)


def standing_since(convoy: ConvoyRow, first: TaskRow | None) -> Instant | None:
    """Return when the convoy stopped or its task started; None if neither is known."""
    if convoy.parked_at is not None:
        return convoy.parked_at
    if convoy.state is ConvoyState.GAP:
        return convoy.gap_since
    if first is None or convoy.open_task != first.task_no:
        return None
    return first.ended_at if convoy.state is ConvoyState.STOPPED else first.started_at


def describe_convoy_wait(convoy: ConvoyRow, first: TaskRow | None, waiting: int, missing: Ranges, now: Instant) -> str:
    """Describe what the convoy waits for, to follow "it waits for ".

    Args:
        first: the task whose turn it is, else the one that comes next.
        waiting: how many wait for their turn.
        missing: numbers of its sequence that have not come.
    """
    what = _describe_wait(convoy, first, waiting, missing, now)
    if convoy.parked_at is None:
        return what
    release = format_convoy_command(ConvoyVerb.RELEASE, convoy.key)
    says = (
        f"its release by an operator, {release}; parked since {format_instant(convoy.parked_at)} ({convoy.parked_why})"
    )
    is_told = first is not None and convoy.parked_why in (
        f"task {first.task_id} is held",
        f"task {first.task_id} is in error",  # as release 0.4 recorded it
    )
    if convoy.state is ConvoyState.STOPPED and not is_told:
        return f"{says}; and for {what}"
    return f"{says}; and for {what}" if convoy.state is ConvoyState.GAP else says


def _describe_wait(convoy: ConvoyRow, first: TaskRow | None, waiting: int, missing: Ranges, now: Instant) -> str:
    name = "a task" if first is None else f"task {first.task_id}"
    skip = format_convoy_command(ConvoyVerb.SKIP, convoy.key)
    match convoy.state:
        case ConvoyState.OPEN:
            paused = ", and which is paused" if first is not None and first.paused_at is not None else ""
            return f"{name}, whose turn it is{paused}"
        case ConvoyState.STOPPED:
            return f"{name}, which is held: resubmit it, or {skip}"
        case ConvoyState.GAP:
            policy = effective_policy(convoy, first)
            until = gap_deadline(convoy, policy)
            says = f"{_describe_gap(convoy, first, missing)}, which has not come"
            if until is not None and until > now and convoy.parked_at is None:
                return f"{says}; if it does not by {format_instant(until)}, {_GAP_EFFECTS[policy.gap]}"
            return f"{says}: submit it, or {skip}"
        case ConvoyState.IDLE:
            return "a Scheduler, which sees whose turn is next" if waiting else "a new task"
        case _:
            return f"a release that knows the state {convoy.state!r}"


def _describe_gap(convoy: ConvoyRow, first: TaskRow | None, missing: Ranges) -> str:
    """Format the numbers that are missing before the next task: ``sequence 3 to 5``."""
    end = None if first is None else first.sequence
    before = [one for one in missing if end is None or one[0] < end]
    return f"sequence {format_ranges(before) or convoy.expected}"


# --- one task of it
def has_lost_its_place(task: TaskRow, convoy: ConvoyRow) -> bool:
    """Returns True if a task that an operator reopened waits behind tasks that came after it."""
    came_back = task.turn is Turn.WAITING and task.incarnation > 1
    return came_back and task.rank is not None and convoy.reached > task.rank


def would_lose_its_place(task: TaskRow, convoy: ConvoyRow) -> bool:
    """Returns True if a task whose turn is over, or that was set aside, would come back behind later tasks."""
    is_over = task.turn in (Turn.ENDED, Turn.SET_ASIDE)
    return is_over and task.rank is not None and convoy.reached > task.rank


def format_place(task: TaskRow, ordering: Ordering) -> str:
    """Format the place of a task: ``place 5``, or ``sequence 7 (place 5)``."""
    return f"place {task.place}" if ordering == "place" else f"sequence {task.sequence} (place {task.place})"


def describe_turn_wait(task: TaskRow, convoy: ConvoyRow, ahead: TasksAhead | None) -> str:
    """Describe what a task waits for before its turn, to follow "it waits for ".

    ``ahead``: who comes before it; None: nobody asked.
    """
    if task.turn is Turn.BATCHED:
        return f"the end of its batch in convoy {convoy.key!r}, which task number {task.batch_no} handles"
    says = f"its turn in convoy {convoy.key!r}"
    if ahead is not None and ahead.count:
        says += f", behind {'more than ' if ahead.more else ''}{format_count(ahead.count, 'other')}"
    head = f"task {ahead.first}" if ahead is not None and ahead.first else "the task before it"
    if convoy.parked_at is not None:
        says += f"; the convoy is parked ({convoy.parked_why}) until {format_convoy_command(ConvoyVerb.RELEASE, convoy.key)}"
    elif convoy.state is ConvoyState.STOPPED:
        says += f"; the convoy is blocked on {head}, which is held"
    elif convoy.state is ConvoyState.GAP:
        says += f"; sequence {convoy.expected} has not come"
    elif convoy.state is ConvoyState.OPEN:
        says += f"; it is the turn of {head}"
    if has_lost_its_place(task, convoy):
        says += "; its place is lost: others that came after it have gone before"
    return says


def describe_person_wait(task: TaskRow, convoy: ConvoyRow | None) -> str:
    """Describe the wait for an operator of a held task, and its effect on the convoy."""
    assert task.state is TaskState.HELD
    if convoy is None:
        return "an operator"
    match task.turn:
        case Turn.OPEN:
            return f"an operator, and convoy {convoy.key!r} is blocked until then"
        case Turn.WAITING:
            return f"an operator, and for its turn in convoy {convoy.key!r}"
        case Turn.SET_ASIDE:
            return f"an operator; convoy {convoy.key!r} has set it aside and continues without it"
        case _:
            return "an operator"
