"""What workflow code may call besides its steps. Everything here is recorded, or follows from the record."""

import random as random_module
import uuid as uuid_module
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .calls import WorkflowCall, WorkflowRun, current_run
from .codec import decoder, encode
from .errors import ArrieroError, NotYetBuilt
from .policies import Duration, seconds

if TYPE_CHECKING:
    from .app import Task

T = TypeVar("T")
R = TypeVar("R")


def _run(what: str) -> WorkflowRun:
    run = current_run()
    if run is None:
        raise ArrieroError(f"{what} works only inside a workflow")
    return run


async def sleep(d: Duration) -> None:
    """Wait, for seconds or months; a sleeping task costs no memory and survives every restart.

    Args:
        d: seconds or timedelta, 0 or more.
    """
    await _run("arriero.sleep").open_timer(seconds(d, "arriero.sleep"))


def now() -> datetime:
    """The time in UTC: when the result delivered last was recorded, so every replay sees the same."""
    return _run("arriero.now").current_time()


def uuid() -> uuid_module.UUID:
    """A random UUID, the same in every replay."""
    return _run("arriero.uuid").uuid()


def random() -> random_module.Random:
    """A source of chance, the same in every replay; each call gives another one."""
    return _run("arriero.random").random()


async def start(call: WorkflowCall[R]) -> "Task[R]":
    """Start a child task. Raises NotYetBuilt in this release."""
    raise NotYetBuilt("arriero.start: child tasks come with a later release; submit each workflow with app.submit")


def convoy_state(of: type[T]) -> T | None:
    """What is kept of this task's convoy, such as a customer's running total; None: nothing yet, or it is in no convoy.

    It is read when the task's turn comes and stays the same until its end, also over crashes: nobody else of the key is at
    work. A task that a person brought back reads it anew.

    Args:
        of: the type to read it as; what was kept must fit.
    Raises: InvalidInput - what is kept does not fit; that holds the task.
    """
    text = _run("arriero.convoy_state").convoy_state
    if text is None:
        return None
    value: T = decoder(of, "arriero.convoy_state")(text)
    return value


def keep_convoy_state(value: Any) -> None:
    """Keep something of this task's convoy for the tasks after it. It is written in the commit that makes this one processed.

    A task that is undone or held keeps nothing. In a task without a convoy this does nothing.

    Args:
        value: anything that has a JSON form; the last one kept counts.
    Raises: InvalidInput - it cannot be recorded.
    """
    _run("arriero.keep_convoy_state").keep_convoy_state(encode(value, "the convoy's state"))
