"""Signals as JSON: sent by the command line and by HTTP, checked against the types of the code, and shown to operators."""

from datetime import datetime
from typing import Literal

import msgspec

from ..core.apps import find_code, is_another_app
from ..declare.signals import AnySignal, MentionedSignals, check_signal_name, check_value
from ..declare.workflows import Workflow
from ..errors import DefinitionError, InvalidInput
from ..model import Loaded, SignalRow, StepState, TaskRow, TaskState
from ..model.commands import SendSignal
from ..model.instants import as_datetime
from ..model.signals import PASSED_ON, SET_ASIDE, is_wait, label_signal, name_wait, read_reply, split_wait_name
from ..payloads import codec
from ..store.readable import faults_of, format_faults, legible
from ..store.state_store import StateStore
from ..text.escaping import shell_argument
from .json_payloads import check_json
from .session import Session
from .signals import SignalReceipt, build_send
from .task_shapes import Payloads

JsonKind = Literal["signal", "request"]  # of what may be sent as JSON
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
    kind: JsonKind = "signal",
    is_checked: bool = False,
) -> SendSignal:
    """Build the command that sends a signal, or a request, whose value is JSON text.

    Args:
        name: of the signal. One that the code of the task does not wait for is refused, where that code is here.
        signal_id: of the signal; of a request its ``request_id``.
        app: of the sender; empty: not said, as of operators.
        is_checked: the JSON was read before, as the gate of a server does.
    Raises: InvalidInput - no such signal; the value is not JSON, is too large or does not fit the type.
    """
    what = f"{kind} {check_name(name, kind)}"
    check_value(text, what)
    if not is_checked:
        check_json(text, f"the value of {what}")
    if kind == "request" and signal_id is not None:
        codec.check_id(signal_id, "request_id")
    number = loaded.task.task_no
    command = build_send(session, number, name_wait(kind, name), "null", signal_id, by, wants_reply=kind == "request")
    signal = None if is_another_app(session.app, loaded.task.app) else find_signal(session, loaded, name, kind)
    return msgspec.structs.replace(command, value=_read_value(loaded, signal, text), app=app)


def _read_value(loaded: Loaded, signal: AnySignal | None, text: str) -> str:
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


def check_name(name: str, kind: JsonKind = "signal") -> str:
    """Check the name of a signal as a sender gives it. Raises InvalidInput."""
    try:
        return check_signal_name(name, kind)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from error


def find_signal(session: Session, loaded: Loaded, name: str, kind: JsonKind = "signal") -> AnySignal | None:
    """Find the signal or request of that name that the code of a task waits for; None: the code is not here, or does not say all.

    Raises: InvalidInput - the code waits for no such signal, and the task has no open wait for it.
    """
    task = loaded.task
    mentioned = find_mentioned(session, task)
    if mentioned is None:
        return None
    signal = mentioned.known.get(name_wait(kind, name))
    if signal is not None or not mentioned.are_all or task.state in ENDED or name in list_awaited(loaded, kind):
        return signal
    known = ", ".join(mentioned.list_names(kind)) or "none"
    other: JsonKind = "signal" if kind == "request" else "request"
    verb = "send" if other == "signal" else "request"
    remedy = (
        f"{name!r} is a {other}: {verb} it with `arriero task {verb} {shell_argument(task.task_id)} {name} JSON`"
        if name in mentioned.list_names(other)
        else f"if its code waits for {name!r}, name it in @workflow(signals=[...])"
    )
    raise InvalidInput(
        f"workflow {task.workflow} of task {task.task_id!r} receives no {kind} {name!r}; it receives: {known}; {remedy}"
    )


def find_mentioned(session: Session, task: TaskRow) -> MentionedSignals | None:
    """The signals of the code that a task runs; None: this App has not got that code. A task of one step receives none."""
    code = find_code(session.codes, task)
    if code is None:
        return None
    return code.definition.signals if isinstance(code.definition, Workflow) else MentionedSignals({}, are_all=True)


def list_awaited(loaded: Loaded, awaited: JsonKind = "signal") -> list[str]:
    """The names of the signals, or requests, for which the task has open waits."""
    waits = [split_wait_name(step.name) for step in loaded.life if is_wait(step) and step.state is StepState.PENDING]
    return sorted({name for kind, name in filter(None, waits) if kind == awaited})


# --- shown
class RequestAnswer(msgspec.Struct, frozen=True):
    """A request that is kept, and its reply if that came in time. Sent again under the same ``request_id``, it waits for the same reply.

    Args:
        id: of the task.
        number: of the task's signals, from 1, in the order of their commits.
        created: False: it was there before, under the same ``request_id``.
        state: ``waiting``: the code has not received it; ``received``: it has, and has not replied; ``replied``.
        payloads: over HTTP: ``withheld`` if the token lacks the scope read-payloads; then there is no ``reply``.
    """

    id: str
    name: str
    request_id: str
    number: int
    created: bool
    state: Literal["waiting", "received", "replied"]
    reply: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payloads: Payloads | msgspec.UnsetType = msgspec.UNSET


async def build_request_answer(
    session: Session,
    loaded: Loaded,
    name: str,
    receipt: SignalReceipt,
    reply: str | None,
    payloads: Payloads | msgspec.UnsetType = msgspec.UNSET,
) -> RequestAnswer:
    """Build what a sender of a request reads. ``reply``: JSON text; None: it did not come in time. Raises StoreError."""
    state: Literal["waiting", "received", "replied"] = "replied"
    if reply is None:
        signal, _ = await session.store.load_reply(loaded.task.task_no, receipt.number)
        state = "waiting" if signal is None or signal.step is None else "received"
    text = msgspec.UNSET if reply is None else msgspec.Raw(reply.encode())
    sent = (receipt.signal_id, receipt.number, receipt.created)
    return RequestAnswer(loaded.task.task_id, name, *sent, state, text, payloads)


class ShownSignal(msgspec.Struct, frozen=True):
    """A signal that was sent to a task.

    Args:
        number: of the task's signals, from 1, in the order of their commits.
        kind: of the waits that may take it. ``name``: of the signal.
        state: ``waiting`` in the inbox; ``taken`` by a wait; ``set_aside``: its value does not fit what the code waits for;
            ``passed_on`` to the next run of its task; ``unreadable``: its row cannot be read, and what can be is shown.
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
    state: Literal["waiting", "taken", "set_aside", "passed_on", "unreadable"]
    step: int | None
    why: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reply: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _find_state(row: SignalRow) -> Literal["waiting", "taken", "set_aside", "passed_on"]:
    if row.step is None:
        return "waiting"
    return "set_aside" if row.step == SET_ASIDE else "passed_on" if row.step == PASSED_ON else "taken"


def show_signal(as_it_stands: SignalRow) -> ShownSignal:
    """A signal for programs and for operators."""
    row, faults = legible(as_it_stands), faults_of(as_it_stands)
    kind, name = split_wait_name(label_signal(row.name)) or ("signal", row.name)
    reply = None if row.reply is None else read_reply(row.reply)
    return ShownSignal(
        number=row.number,
        kind=kind,
        name=name,
        signal_id=row.signal_id,
        by=row.sent_by,
        at=as_datetime(row.sent_at),
        state="unreadable" if faults else _find_state(row),
        step=row.step if row.step is not None and row.step > 0 else None,
        why=format_faults(faults) or ("" if reply is None else str(reply.refused or "")),
        value=msgspec.UNSET if any(fault.column == "value" for fault in faults) else msgspec.Raw(row.value.encode()),
        reply=msgspec.UNSET if reply is None else reply.value,
    )


async def load_signals(store: StateStore, task_no: int, limit: int, after: int) -> tuple[list[ShownSignal], bool]:
    """A page of the signals of a task, and whether there are more."""
    rows = await store.list_signals(task_no, after=after, limit=limit + 1)
    return [show_signal(row) for row in rows[:limit]], len(rows) > limit
