"""Named places at which a process can be made to die, to prove that a death there costs nothing.

Off unless the environment variable ``ARRIERO_CRASH_AT`` says ``name:nth`` when the process first opens an App: the
process then kills itself with SIGKILL when it reaches that point for the n-th time. Nothing else turns it on, no file,
no network, no function of the API. Off, a point costs one comparison.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from ..errors import InvalidInput

C = TypeVar("C")
A = TypeVar("A")

VARIABLE = "ARRIERO_CRASH_AT"

CRASH_POINTS: dict[str, str] = {
    "before_submit_commit": "Tasks are about to be kept; their submitter has no answer yet.",
    "after_submit_commit": "Tasks are durable; their submitter has no answer yet.",
    "before_commit": "Transitions of tasks are decided, and none of them is written.",
    "after_commit": "Transitions of tasks are written; nobody in the process knows it yet.",
    "before_send": "A try of a step is recorded as begun, and its function has not been called.",
    "after_send": "A try of a step has ended, and nothing is recorded of what came of it.",
    "before_undo_send": "A try of a compensation is recorded as begun, and its function has not been called.",
    "after_undo_send": "A try of a compensation has ended, and nothing is recorded of what came of it.",
    "before_register": "A process start has its name, and the store does not know it.",
    "after_register": "A process start is in the store, and has done nothing yet.",
    "before_renew": "A process is about to renew its lease.",
    "after_renew": "A process's lease is renewed, and it does not know it yet.",
    "before_lease": "A Supervisor is about to ask for the lease of the leader.",
    "after_lease": "A Supervisor leads, and does not know it yet.",
    "before_retire": "A process, its own or a dead one, is about to be declared lost.",
    "after_retire": "A process is declared lost, and nothing of what it held is freed.",
    "before_fire": "Runs of schedules are decided, and none of them is submitted.",
    "after_fire": "Runs of schedules are durable with their schedules; nobody in the process knows it yet.",
    "before_free": "What a lost process held is read, and none of it is freed.",
    "after_free": "What a lost process held is freed, at least a batch of it; nobody has taken it up.",
}

is_armed = False  # whether the environment names a point
_name: str | None = None  # the point at which to die; None: nowhere
_nth = 0
_reached = count(1)
_is_read = False


def read_environment() -> None:
    """Arm the point that the environment names, if any; only the first call in a process looks.

    Raises: InvalidInput - the variable names no point, or is not ``name:nth``.
    """
    global is_armed, _name, _nth, _is_read
    if _is_read:
        return
    if told := os.environ.get(VARIABLE):
        _name, _nth = parse_point(told)
        is_armed = True
    _is_read = True


def parse_point(told: str) -> tuple[str, int]:
    """Name and number of ``name:nth``. Raises InvalidInput naming what is known."""
    name, _, nth = told.partition(":")
    if name not in CRASH_POINTS:
        raise InvalidInput(f"{VARIABLE} names the point {name!r}; it must be one of {', '.join(CRASH_POINTS)}")
    if not (nth.isascii() and nth.isdigit()) or int(nth) < 1:
        raise InvalidInput(f"{VARIABLE} is {told!r}; it must be name:nth, with nth from 1 on, like {name}:1")
    return name, int(nth)


def reach(name: str) -> None:
    """Die here, if this is the armed point and its n-th time."""
    if _name is not None and _name == name and next(_reached) == _nth:
        os.kill(os.getpid(), signal.SIGKILL)


def wrap_write(write: Callable[[C], Awaitable[A]], before: str, after: str) -> Callable[[C], Awaitable[A]]:
    """A store's write with a point before it and, once it was answered without an error, one after it."""
    if not is_armed:
        return write

    async def with_points(batch: C) -> A:
        reach(before)
        answer = await write(batch)
        reach(after)
        return answer

    return with_points
