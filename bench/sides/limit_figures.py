"""How far the limits of an Agent are used, as the history of a store tells it. Events in, figures out."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from arriero.events import Event, UnreadableEvent
from arriero.events.step import (
    RecoverApplied,
    StepDispatched,
    StepExpired,
    StepFailedEvent,
    StepLost,
    StepRecorded,
    StepWithdrawn,
)
from arriero.model import MICROSECONDS

ENDS = StepRecorded | StepFailedEvent | RecoverApplied | StepExpired | StepLost | StepWithdrawn


class Commit(NamedTuple):
    """A row of the history: the task, the store's clock in microseconds, and what was told."""

    task_no: int
    at: int
    events: Sequence[Event | UnreadableEvent]


class Moment(NamedTuple):
    """An attempt begins or ends. ``model.agents``: those it is counted under, with hashes of their keys."""

    at: int  # microseconds
    begins: bool
    limits: Mapping[str, str]


def list_moments(history: Iterable[Commit]) -> list[Moment]:
    """List what begins and ends of the attempts that limits count, in the order of the history."""
    under_way: dict[tuple[int, int], Mapping[str, str]] = {}
    moments = []
    for commit in history:
        for event in commit.events:
            if isinstance(event, StepDispatched) and event.limits is not None:
                under_way[commit.task_no, event.step] = event.limits
                moments.append(Moment(commit.at, True, event.limits))
            elif isinstance(event, ENDS) and (commit.task_no, event.step) in under_way:
                moments.append(Moment(commit.at, False, under_way.pop((commit.task_no, event.step))))
    return moments


def count_most(moments: Iterable[Moment], limit: str) -> int:
    """Count the most attempts that were under way at once, of any key of a limit.

    In the order of the history: there an attempt stands behind the end whose slot it has. Its instant may be the earlier one,
    because a commit reads the clock before it reads what is in use.
    """
    used: Counter[str] = Counter()
    most = 0
    for moment in moments:
        if limit in moment.limits:
            key = moment.limits[limit]
            used[key] += 1 if moment.begins else -1
            most = max(most, used[key])
    return most


def measure_room(moments: Iterable[Moment], most: int, requests: int) -> tuple[float, float]:
    """Measure the share of ``most`` slots that is in use, and the calls a second, while enough requests wait.

    From the first moment at which all slots are in use to the one at which fewer than ``most`` of the ``requests`` are left.
    Raises: SystemExit - the slots were never all in use before that.
    """
    used = begun = ended = 0
    since: int | None = None
    last = in_use = 0
    for moment in sorted(moments, key=lambda one: one.at):
        if since is not None:
            in_use += used * (moment.at - last)
            ended += not moment.begins
        last = moment.at
        used += 1 if moment.begins else -1
        begun += moment.begins
        if begun > requests - most:
            break
        if since is None and used >= most:
            since = moment.at
    if since is None or last == since:
        raise SystemExit(f"of {requests} requests never {most} were under way while {most} others waited")
    return in_use / (most * (last - since)), ended * MICROSECONDS / (last - since)


def measure_rate(moments: Iterable[Moment], most: int, requests: int) -> tuple[float, int]:
    """Measure which share of ``most`` calls a second begins while enough requests wait, and the most within any second.

    Calls begin in bursts, one in each window. So whole windows count: from the call that fills the first one to the call that
    fills the last one, at which at least ``most`` of the ``requests`` are left.
    Raises: SystemExit - there were too few requests for that.
    """
    begun = sorted(moment.at for moment in moments if moment.begins)
    filled = begun[most - 1 : requests - most : most]
    if len(filled) < 2:
        raise SystemExit(f"{requests} requests are too few for {most} a second")
    allowed = most * (filled[-1] - filled[0]) / MICROSECONDS
    closest = max(bisect_left(begun, at + MICROSECONDS) - index for index, at in enumerate(begun))
    return most * (len(filled) - 1) / allowed, closest
