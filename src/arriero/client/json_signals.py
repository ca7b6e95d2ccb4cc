"""Signals as JSON: sent by the command line and by HTTP, checked against the types of the code, and shown to operators."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from ..core.apps import is_another_app
from ..declare.signals import MentionedSignals, Signal, check_signal_name, check_value
from ..declare.workflows import Workflow
from ..errors import DefinitionError, InvalidInput
from ..model import Loaded, SignalRow, StepState, TaskState
from ..model.commands import SendSignal
from ..model.instants import as_datetime
from ..model.signals import SET_ASIDE, is_wait, name_wait, read_reply, split_wait_name
from ..store.readable import faults_of, format_faults, legible
from ..store.state_store import StateStore
from .json_payloads import check_json
from .session import Session
from .signals import build_send

ENDED = (TaskState.COMPENSATING, TaskState.COMPENSATED, TaskState.PROCESSED)  # it receives nothing: the store says so


def build_json_send(
    session: Session,
    loaded: Loaded,
    name: str,
    text: str,
    signal_id: str | None,
    by: str,
    *,
    app: str,
    is_checked: bool = False,
) -> SendSignal:
    """Build the command that sends a signal whose value is JSON text.

    Args:
        name: of the signal. One that the code of the task does not wait for is refused, where that code is here.
        app: of the sender; empty: not said, as of operators.
        is_checked: the JSON was read before, as the gate of a server does.
    Raises: InvalidInput - no such signal; the value is not JSON, is too large or does not fit the type.
    """
    what = f"signal {check_name(name)}"
    check_value(text, what)
    if not is_checked:
        check_json(text, f"the value of {what}")
    command = build_send(session, loaded.task.task_no, name_wait("signal", name), "null", signal_id, by)
    signal = None if is_another_app(session.app, loaded.task.app) else find_signal(session, loaded, name)
    return msgspec.structs.replace(command, value=_read_value(loaded, signal, text), app=app)


def _read_value(loaded: Loaded, signal: Signal[Any] | None, text: str) -> str:
    """The value as it is recorded: what fits the type as the type writes it, so that it is the same from every sender."""
    plain = msgspec.json.format(text, indent=-1)
    if signal is None:
        return plain
    try:
        return signal.check_json(text)
    except InvalidInput:
        if loaded.task.state in ENDED:
            return plain  # that the task has ended explains more
        raise


def check_name(name: str) -> str:
    """Check the name of a signal as a sender gives it. Raises InvalidInput."""
    try:
        return check_signal_name(name, "signal")
    except DefinitionError as error:
        raise InvalidInput(str(error)) from error


def find_signal(session: Session, loaded: Loaded, name: str) -> Signal[Any] | None:
    """Find the signal of that name that the code of a task waits for; None: the code is not here, or does not say all.

    Raises: InvalidInput - the code waits for no such signal, and the task has no open wait for it.
    """
    task = loaded.task
    mentioned = find_mentioned(session, task.workflow)
    if mentioned is None:
        return None
    signal = mentioned.known.get(name_wait("signal", name))
    if signal is not None or not mentioned.are_all or task.state in ENDED or name in list_awaited(loaded):
        return signal
    known = ", ".join(mentioned.names) or "none"
    raise InvalidInput(
        f"workflow {task.workflow} of task {task.task_id!r} receives no signal {name!r}; it receives: {known}. If its code waits for"
        f" {name!r}, name it in @workflow(signals=[...])"
    )


def find_mentioned(session: Session, workflow: str) -> MentionedSignals | None:
    """The signals of the code that a task runs; None: this App has not got that code. A task of one step receives none."""
    code = session.codes.get(workflow)
    if code is None:
        return None
    return code.definition.signals if isinstance(code.definition, Workflow) else MentionedSignals({}, are_all=True)


def list_awaited(loaded: Loaded) -> list[str]:
    """The names of the signals for which the task has open waits."""
    waits = [split_wait_name(step.name) for step in loaded.life if is_wait(step) and step.state is StepState.PENDING]
    return sorted({name for kind, name in filter(None, waits) if kind == "signal"})


# --- shown
class ShownSignal(msgspec.Struct, frozen=True):
    """A signal that was sent to a task.

    Args:
        number: of the task's signals, from 1, in the order of their commits.
        kind: of the waits that may take it. ``name``: of the signal.
        state: ``waiting`` in the inbox; ``taken`` by a wait; ``set_aside``: its value does not fit what the code waits for;
            ``unreadable``: its row cannot be read, and what can be is shown.
        step: ordinal of the wait that took it.
        why: it was set aside, or cannot be read.
        reply: of a request, once the code has answered it; left out of a refusal, of which ``why`` says the reason.
    """

    number: int
    kind: str
    name: str
    signal_id: str
    by: str
    at: datetime
    state: Literal["waiting", "taken", "set_aside", "unreadable"]
    step: int | None
    why: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reply: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def show_signal(as_it_stands: SignalRow) -> ShownSignal:
    """A signal for programs and for operators."""
    row, faults = legible(as_it_stands), faults_of(as_it_stands)
    kind, name = split_wait_name(row.name) or ("signal", row.name)
    reply = None if row.reply is None else read_reply(row.reply)
    is_aside = row.step == SET_ASIDE
    return ShownSignal(
        number=row.number,
        kind=kind,
        name=name,
        signal_id=row.signal_id,
        by=row.sent_by,
        at=as_datetime(row.sent_at),
        state="unreadable" if faults else "waiting" if row.step is None else "set_aside" if is_aside else "taken",
        step=None if is_aside else row.step,
        why=format_faults(faults) or ("" if reply is None else str(reply.refused or "")),
        value=msgspec.UNSET if any(fault.column == "value" for fault in faults) else msgspec.Raw(row.value.encode()),
        reply=msgspec.UNSET if reply is None else reply.value,
    )


async def load_signals(store: StateStore, task_no: int, limit: int, after: int) -> tuple[list[ShownSignal], bool]:
    """A page of the signals of a task, and whether there are more."""
    rows = await store.list_signals(task_no, after=after, limit=limit + 1)
    return [show_signal(row) for row in rows[:limit]], len(rows) > limit
