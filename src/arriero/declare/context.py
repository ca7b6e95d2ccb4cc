"""Functions that the user's code finds its surroundings by: workflow code, and below them what steps call.

The results of those for workflow code are recorded, or follow from the record.
"""

import random as random_module
import uuid as uuid_module
from datetime import datetime
from typing import Any, TypeVar

from ..errors import ArrieroError, AttemptOver
from ..model.policies import Duration, seconds
from ..model.tags import read_tags
from ..payloads.codec import check_id, decoder, encode_untyped
from .attempt import Attempt, Undo, current_try, encode_published
from .declared import WorkflowRun, current_run, find_run

T = TypeVar("T")


# What code outside of a workflow uses in place of what is recorded there.
_OUTSIDE = {
    "arriero.sleep": "asyncio.sleep(...) in a step",
    "arriero.now": "datetime.now(UTC)",
    "arriero.uuid": "uuid.uuid4()",
    "arriero.random": "the module random",
    "arriero.publish": "attempt.publish(...) in a step",
}


def _run(what: str) -> WorkflowRun:
    return find_run(what, f"use {_OUTSIDE[what]}" if what in _OUTSIDE else "")


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


def convoy_state(of: type[T]) -> T | None:
    """State kept for this task's convoy, such as a customer's running total; None if nothing is kept, or there is no convoy.

    It is read when the task's turn comes and stays the same until its end, also over crashes: nobody else of the key is at
    work. A task that an operator brought back reads it again.

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
    """Keep state of this task's convoy for the tasks after it. It is written in the commit that makes this one processed.

    A task that is undone or held keeps nothing. In a task without a convoy this does nothing.

    Args:
        value: anything that has a JSON form; the last one kept counts.
    Raises: InvalidInput - it cannot be recorded.
    """
    _run("arriero.keep_convoy_state").keep_convoy_state(encode_untyped(value, "the convoy's state"))


def publish(value: Any) -> None:
    """Publish how far the task is, for ``task.view()``, status pages and reply queues. The latest value counts.

    It is written with the task's next commit: with the steps that the code asks for next, or with its end. A replay publishes
    the same again, which changes nothing.

    Args:
        value: anything that has a JSON form, up to 10 kB.
    Raises: InvalidInput - it cannot be recorded, or is too large.
    """
    run = _run("arriero.publish")
    run.publish(encode_published(value, "what the workflow publishes"))


def patched(name: str) -> bool:
    """Returns True if the task runs with a change of its code, which a release names; False for a task that came by here before.

    The first call of the task decides, and its answer is recorded: all later calls with the name answer the same, in every
    process and replay. A new task, and one that comes by here first with the changed code, gets True. Until no open task needs
    the old branch, keep both.

    Args:
        name: of the change, never used for another one in this workflow; a text of 1 to 255 characters.
    Raises: InvalidInput - it is not a valid id; ArrieroError - no workflow runs here.
    """
    return _run("arriero.patched").patched(check_id(name, "arriero.patched"))


def tags() -> dict[str, str]:
    """The tags that the task was submitted with. A later change by an operator does not show here, so every replay sees the same."""
    return read_tags(_run("arriero.tags").tags)


def current_attempt() -> Attempt:
    """The attempt whose code is running: of a step, or of a compensation, whose ``Undo`` it is.

    It works in the function of a step and in all that it calls: async code, its asyncio tasks, ``asyncio.to_thread``, and child
    processes of ``run_in="process"``. A thread that the step itself starts needs a copy of the context.

    Raises: ArrieroError - no attempt runs here; AttemptOver - its call has ended, and this code has outlived it.
    """
    return _find_attempt("arriero.current_attempt")


def current_undo() -> Undo[Any]:
    """The undo whose compensation is running, as ``current_attempt``.

    Raises: ArrieroError - no compensation runs here; AttemptOver - its call has ended, and this code has outlived it.
    """
    found = _find_attempt("arriero.current_undo")
    if not isinstance(found, Undo):
        raise ArrieroError(
            f"arriero.current_undo: step {found.step} runs here and no compensation: call arriero.current_attempt()"
        )
    return found


def _find_attempt(what: str) -> Attempt:
    if current_run() is not None:
        raise ArrieroError(
            f"{what} works only inside a step: workflow code has no attempt; call it in the step's function"
        )
    step_try = current_try.get()
    if step_try is None:
        raise ArrieroError(
            f"{what} works only inside a step or a compensation. In a thread that the step started, run the function by"
            " contextvars.copy_context().run, or use asyncio.to_thread. In a test, use `with testing.current(testing.attempt()):`"
        )
    if step_try.is_over:
        raise AttemptOver(
            f"{what}: the attempt of step {step_try.attempt.step} has ended: nothing that this code does counts"
        )
    return step_try.attempt
