"""Completes callbacks: who has the token of one sends the value that a task waits for. The same for all interfaces."""

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..core.capabilities import CallbackToken, read_callback
from ..declare.signals import check_value
from ..errors import CallbackRefused, InvalidInput, UnreadableRow
from ..model import Loaded, StepRow, StepState, TaskRow
from ..model.answers import Refusal, SignalKept
from ..model.commands import SendSignal
from ..model.signals import label_callback
from ..store.contract import CALLBACK_SECRET
from ..store.state_store import StateStore
from .questions import check_by_code
from .session import Session
from .signals import build_send
from .task_verbs import load_task_to_act, require_readable

ClosedBecause = Literal["unknown", "purged", "past_life", "not_waiting", "unreadable"]
_CLOSED: dict[ClosedBecause, str] = {
    "unknown": "there is no such callback",
    "purged": "its task is not there any longer",
    "past_life": "its task was undone and began again, with callbacks of its own",
    "not_waiting": "its task does not wait for it",
    "unreadable": "a row of its task cannot be read just now",
}


def _refuse(because: ClosedBecause) -> CallbackRefused:
    return CallbackRefused(f"the callback is refused: {_CLOSED[because]}", because=because)


async def read_token(store: StateStore, text: str) -> CallbackToken:
    """Read a token. Raises: InvalidInput - it is not a str; CallbackRefused - this store did not make it; StoreError."""
    if not isinstance(text, str):
        raise InvalidInput(f"the token of a callback is a str, not {type(text).__name__}")
    if "/" in text:
        raise InvalidInput("give the token of the callback, which is the last part of its URL, and not the URL")
    token = read_callback(text, await store.read_secret(CALLBACK_SECRET), store.store_id)
    if token is None:
        raise _refuse("unknown")
    return token


async def complete(session: Session, token: CallbackToken, value: str, key: str | None) -> bool:
    """Complete a callback by its token; see ``_complete``. ``key``: see there."""
    return await _complete(session, partial(_find_wait, session.store, token), value, key, "")


async def complete_named(session: Session, task_id: str, name: str, value: str, by: str) -> bool:
    """Complete a callback of a task by its name, in place of the service that has its URL; see ``_complete``.

    Args:
        name: ``receipt``; of several that wait, ``receipt#2``.
    Raises: UnknownTask; InvalidInput - the task has no such callback, or several.
    """
    return await _complete(session, partial(_find_named, session, task_id, name), value, None, by)


Found = tuple[Loaded, StepRow]  # the task and the row of the wait


async def _complete(
    session: Session, find: Callable[[], Awaitable[Found]], value: str, key: str | None, by: str
) -> bool:
    """Complete a callback. The value is kept, durably, when this returns.

    Args:
        find: the wait, as it stands.
        value: JSON text that was checked to be one value.
        key: under which the sender sends the same again; None: the same value is the same delivery.
        by: who sends it, for the history; empty: a program.
    Returns: False - it was completed before, by this value or under this key.
    Raises: CallbackRefused; InvalidInput - the value is too large; StoreError - send the same again.
    """
    check_value(value, "the callback")
    loaded, wait = await find()
    given = replace(wait, state=StepState.COMPLETED, result=value)
    if unfit := await check_by_code(session, loaded, wait, lambda run: run.find_unfit(given)):
        raise _refuse_unfit(unfit)
    command = _build_command(session, loaded.task, wait, value, key, by)
    answer = await session.send(command)
    if isinstance(answer, SignalKept) and answer.created:
        return True
    loaded, wait = await find()
    values = [signal.value for signal in loaded.signals if signal.name == command.name]
    values += [] if wait.result is None else [wait.result]  # there is one at most
    is_same = isinstance(answer, SignalKept) or (isinstance(answer, Refusal) and answer.verdict == "another_value")
    if is_same and not values:
        raise _refuse_unfit("the code of the task cannot read the value that was sent before; send another one")
    if is_same or any(_digest(one) == _digest(value) for one in values):
        return False
    assert isinstance(answer, Refusal)
    if wait.result is not None:  # maybe by what was undecided a moment before
        raise CallbackRefused("the callback is refused: it was answered before", because="answered")
    raise CallbackRefused(f"the callback is refused: {answer.detail}", because=answer.verdict)


async def _find_wait(store: StateStore, token: CallbackToken) -> Found:
    loaded = await store.load(token.task_no)
    if loaded is None:
        raise _refuse("purged")
    try:
        require_readable(loaded)
    except UnreadableRow as error:  # its text is for operators
        raise _refuse("unreadable") from error
    if loaded.task.submitted_at != token.submitted_at:
        raise _refuse("purged")
    if loaded.task.past_count != token.life:
        raise _refuse("past_life")
    wait = next((step for step in loaded.life if label_callback(step) == token.label), None)
    if wait is None:
        raise _refuse("not_waiting")
    return loaded, wait


async def _find_named(session: Session, task_id: str, name: str) -> Found:
    """Find a callback of a task by its name. Of those of one name, the one that waits is meant."""
    loaded = await load_task_to_act(session, task_id)
    waits = {label_callback(step): step for step in loaded.life if label_callback(step)}
    named = [label for label in waits if name in (label, label.rpartition("#")[0])]
    pending = [label for label in named if waits[label].state is StepState.PENDING]
    meant = pending if len(named) > 1 and pending else named
    if len(meant) > 1:
        raise InvalidInput(f"task {task_id!r} has several callbacks {name!r}: name one of {', '.join(meant)}")
    if not meant:
        raise InvalidInput(f"task {task_id!r} has no callback {name!r}; it has: {', '.join(waits) or 'none'}")
    return loaded, waits[meant[0]]


def _refuse_unfit(why: str) -> CallbackRefused:
    return CallbackRefused(f"the value does not fit the callback, which stays open: {why}", because="unfit")


def _build_command(session: Session, task: TaskRow, wait: StepRow, value: str, key: str | None, by: str) -> SendSignal:
    """Build the command. Its id says which delivery it is, to which wait of which life."""
    delivery = _digest(value) if key is None else f"key {key}"
    about = f"{task.past_count} {label_callback(wait)}\n{delivery}"
    signal_id = f"callback-{hashlib.sha256(about.encode()).hexdigest()[:40]}"
    command = build_send(session, task.task_no, wait.name, value, signal_id, by, wait=wait)
    return replace(command, app="")  # who has the token has the right, at the server of any App


def _digest(value: str) -> str:
    """A digest of a JSON value, whatever its spaces and the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(msgspec.json.decode(value), order="sorted")).hexdigest()
