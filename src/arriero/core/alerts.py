"""Alerts for operators when a task needs one of them: the alert, its text, its signed form, and the delay before a repetition.

The rows are kept by the store, and sent by ``runtime.alerts``. A sink is sent the *state* of an alert, open or
closed, and each state has a separate id that stays the same over retries: a receiver that sees an id twice has
seen it once. Nothing promises the order in which two states arrive, so closed is final.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from ..errors import InvalidInput
from ..model import AlertRow
from ..model.failures import CapturedTraceback
from ..model.instants import as_datetime
from ..model.tags import format_tags, read_tags
from ..text.escaping import escape_text, one_line, shell_word
from ..text.format import format_answer_command, format_count, format_location
from .alert_rows import BREAKER_CAUSE, QUESTION_CAUSE, SCHEDULE_CAUSE
from .lease import SUPERVISORS
from .supervision import retry_delay

_CORRECT = "correct that column, or delete the row"


class DescribedRow(NamedTuple):
    """A shared row in words: what it is, what waits for it, and what to do."""

    what: str
    waits: str
    remedy: str


def describe_shared_row(name: str) -> DescribedRow:
    """Describe a shared row by its name (``store.readable.name_row``)."""
    table, _, text = name.partition(" ")
    try:
        key = msgspec.json.decode(text, type=list[str | int])
    except msgspec.DecodeError:
        return DescribedRow(f"row {one_line(name)}", "", _CORRECT)
    return _describe(table, key, DescribedRow(f"row {one_line(name)}", "", _CORRECT))


def _describe(table: str, key: Sequence[Any], other: DescribedRow) -> DescribedRow:
    """``other``: of a table that nothing is said of here."""
    match table, [one_line(str(part)) for part in key]:
        case "breaker", [app, agent, target]:
            of = f" --target {shell_word(target)}" if target else ""
            of += f" --app-name {shell_word(app)}" if app else ""
            what = f"the breaker of Agent {agent}{f'[{target}]' if target else ''} of App {app}"
            return DescribedRow(what, "its requests wait", f"arriero agent close {shell_word(agent)}{of} --reason TEXT")
        case "agent_limits", [app, agent]:
            restart = f"correct that column, or restart a process of App {app}: it declares the limits again"
            return DescribedRow(f"the limits of Agent {agent} of App {app}", "requests of the Agent wait", restart)
        case "rate", [app, agent, limit, value]:
            whose = f", key {value}," if value else ""
            what = f"the calls of limit {limit}{whose} of Agent {agent} of App {app}"
            return DescribedRow(what, "its requests wait until the calls no longer count", _CORRECT)
        case "lease", [lease] if lease == SUPERVISORS:
            return DescribedRow("the Supervisors' lease", "the next Supervisor writes it again", "")
        case "lease", [lease]:
            remedy = (
                f"arriero lease break {shell_word(lease)} --at-once --reason TEXT, once its holder is known to be dead"
            )
            return DescribedRow(f"lease {lease}", "it is not granted", remedy)
        case "convoy" | "convoy_tail", [number]:
            return DescribedRow(f"convoy number {number}", "its tasks and submissions wait", "correct that column")
        case "ledger", [number]:
            return DescribedRow(f"ledger number {number}", "its tasks are not let go", "correct that column")
        case "process", [number]:
            return DescribedRow(f"process number {number}", "nothing waits", "restart it if it is alive")
        case "token", [token]:
            return DescribedRow(f"token {token}", "it is refused", "make another one: arriero token create")
        case "agent_metrics", [app, *_]:
            return DescribedRow(f"counts of the calls of App {app}", "nothing waits; they count as no call", _CORRECT)
        case "schedule", [app, schedule]:
            remove = f"arriero schedule remove {shell_word(schedule)} --app-name {shell_word(app)} --reason TEXT"
            remedy = f"install its time zone or the release that wrote it, declare it again, or: {remove}"
            return DescribedRow(f"schedule {schedule} of App {app}", "its runs wait", remedy)
        case _:
            return other


RETRY_SECONDS = 5.0
RETRY_SECONDS_MAX = 3_600.0  # an hour: the one who fixes a receiver need not wait longer to see that it works
RETRY_FACTOR = 2.0

_decode_trace = msgspec.json.Decoder(CapturedTraceback).decode

SECRET_PREFIX = "whsec_"
SECRET_BYTES_MIN = 24  # both of the Standard Webhooks specification, "Signature scheme"
SECRET_BYTES_MAX = 64


class Alert(msgspec.Struct, frozen=True):
    """A task needs an operator (``open``), or needs none any longer (``closed``).

    Attributes:
        id: of this state of the alert; the same whenever it is notified again.
        cause: ``step``, ``refused``, ``limit``, ``bug``, ``replay``, ``unawaited``, ``lost``, ``in_doubt``, ``undo``
            or ``person``: the kind of the task's failure, see ``model.TaskFailure``; ``unreadable``: a row of it
            cannot be read, ``code`` names table and column. If no task is named, ``step`` names the row, which many may
            need; ``breaker``: an Agent gets no calls, because its service is
            down. Then no task is named, ``step`` is the Agent with its target, and ``code`` its App; ``schedule``: a
            schedule submits nothing. Then ``step`` is the schedule, and ``code`` its App; ``question``: a task waits for the
            answer of operators. Then ``step`` is the name to answer it by, ``code`` who is asked, ``reason`` the question.
        reason: for operators.
        step, code: of the step that failed; empty when it was none.
        at: the line of code to fix or by which the failure was raised, as ``shop/orders.py:42, in fulfil: `...` ``;
            empty when there is none.
        trace: all lines that the exception passed; no values of variables.
        count: number of tasks that it is about. Alerts of one cause are reported together: then ``task_id``, ``reason`` and the line of
            code are those of the first task.
        last_opened_at: when the last of several tasks was held; None: there is one.
        task_ids: the first of several tasks.
        select: options of the command line that select them all, as for ``arriero task resubmit``.
        tags: of the task; of several tasks those of the first.
        parent: id of the task whose code has started it, and waits for it; empty: none has.
    """

    id: str
    task_id: str
    workflow: str
    incarnation: int
    cause: str
    reason: str
    step: str
    code: str
    state: Literal["open", "closed"]
    opened_at: datetime
    closed_at: datetime | None = None
    at: str = ""
    trace: CapturedTraceback = ()
    count: int = 1
    last_opened_at: datetime | None = None
    task_ids: tuple[str, ...] = ()
    select: str = ""
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    parent: str = ""


class _Event(msgspec.Struct, frozen=True):
    """The body that Standard Webhooks recommends."""

    type: str
    timestamp: datetime
    data: Alert


def build_alert(row: AlertRow, store_id: str) -> Alert:
    """Build the alert to send, with the state of its row."""
    state: Literal["open", "closed"] = "open" if row.closed_at is None else "closed"
    trace = _read_trace(row)
    return Alert(
        # With the instant: a store brought back from a backup numbers again, and what it says must not look known.
        id=f"{store_id}-{row.no}-{row.opened_at}-{state}",
        task_id=row.task_id,
        workflow=row.workflow,
        incarnation=row.incarnation,
        cause=row.cause,
        reason=row.reason,
        step=row.step,
        code=row.code,
        state=state,
        opened_at=as_datetime(row.opened_at),
        closed_at=None if row.closed_at is None else as_datetime(row.closed_at),
        at=format_location(trace),
        trace=trace,
        tags=_read_tags(row),
        parent=row.parent or "",
    )


def _read_tags(row: AlertRow) -> dict[str, str]:
    """Read the tags; none if they cannot be read, as of ``_read_trace``."""
    try:
        return read_tags(row.tags)
    except (msgspec.MsgspecError, TypeError):
        return {}


def _read_trace(row: AlertRow) -> CapturedTraceback:
    """Read the trace; empty if it cannot be read, because the alert must reach an operator whatever the row holds there."""
    try:
        return () if row.trace is None else _decode_trace(row.trace)
    except (msgspec.MsgspecError, TypeError):
        return ()


def encode_alert(alert: Alert) -> bytes:
    """Encode the alert as JSON: ``type``, ``timestamp`` of the opening or closing, ``data``. Always the same bytes."""
    kinds = {BREAKER_CAUSE: "agent", SCHEDULE_CAUSE: "schedule", QUESTION_CAUSE: "question"}
    of = kinds.get(alert.cause, "task" if alert.task_id else "row")
    kind = f"{of}.alert.{'opened' if alert.state == 'open' else 'closed'}"
    return msgspec.json.encode(_Event(kind, alert.closed_at or alert.opened_at, alert))


def format_alert_line(alert: Alert) -> str:
    """Format the alert for a log in one line, whatever its texts hold."""
    if alert.cause == BREAKER_CAUSE:
        return _format_breaker_line(alert)
    if alert.cause == SCHEDULE_CAUSE:
        return _format_schedule_line(alert)
    if alert.cause == QUESTION_CAUSE:
        return _format_question_line(alert)
    if not alert.task_id:
        return _format_row_line(alert)
    if alert.count > 1:
        return _format_group_line(alert)
    what = "needs an operator" if alert.state == "open" else "needs no operator any longer; it had waited for one"
    facts = [f"cause {alert.cause}"]
    facts += [f"step {alert.step}"] if alert.step else []
    facts += [f"code {alert.code}"] if alert.code else []
    facts += [f"child of {alert.parent}"] if alert.parent else []
    facts += [f"tags {format_tags(alert.tags)}"] if alert.tags else []
    at = f", at {alert.at}" if alert.at else ""
    facts.append(f"alert {alert.id}")
    next_command = f"; see: arriero task explain {shell_word(alert.task_id)}" if alert.state == "open" else ""
    text = f"task {alert.task_id} of {alert.workflow} {what}: {alert.reason}{at} ({', '.join(facts)}){next_command}"
    return escape_text(text)


def _format_group_line(alert: Alert) -> str:
    """Format the alert of several tasks that are held by one cause."""
    is_open = alert.state == "open"
    what = "need an operator" if is_open else "are not held any longer; they had waited for an operator"
    facts = [f"cause {alert.cause}"]
    facts += [f"step {alert.step}"] if alert.step else []
    facts += [f"code {alert.code}"] if alert.code else []
    facts.append(f"first {alert.task_id}")
    facts.append(f"alert {alert.id}")
    at = f", at {alert.at}" if alert.at else ""
    see = f"; see: arriero task list {alert.select}; for all of them: arriero task resubmit {alert.select}" * is_open
    text = (
        f"{format_count(alert.count, 'task')} of {alert.workflow} {what}: {alert.reason}{at} ({', '.join(facts)}){see}"
    )
    return escape_text(text)


def _format_breaker_line(alert: Alert) -> str:
    """Format the alert of an Agent. Its ``step`` is the Agent with its target, its ``code`` the App."""
    agent = shell_word(alert.step.partition("[")[0])
    if alert.state == "open":
        text = f"Agent {alert.step} gets no calls: {alert.reason} (alert {alert.id}); see: arriero agent show {agent}"
    else:
        text = f"Agent {alert.step} gets calls as always again; its breaker was open (alert {alert.id})"
    return escape_text(text)


def _format_schedule_line(alert: Alert) -> str:
    """Format the alert of a schedule. Its ``step`` is the schedule, its ``code`` the App."""
    if alert.state == "open":
        see = f"see: arriero schedule show {shell_word(alert.step)}"
        text = f"schedule {alert.step} of App {alert.code} submits nothing: {alert.reason} (alert {alert.id}); {see}"
    else:
        text = f"schedule {alert.step} of App {alert.code} submits again (alert {alert.id})"
    return escape_text(text)


def format_list_command(of: str) -> str:
    """Format the command that lists the questions to some operators."""
    return f"arriero question list --of {shell_word(of)}"


def _format_question_line(alert: Alert) -> str:
    """Format the alert of a question. Its ``code`` is who is asked, its ``step`` the name to answer it by."""
    task = f"task {alert.task_id} of {alert.workflow}"
    if alert.count > 1:
        tasks = f"{format_count(alert.count, 'task')} of {alert.workflow}"
        asks = "ask" if alert.state == "open" else "no longer ask"
        text = f"{tasks} {asks} {alert.code}; the first, {alert.task_id}: {alert.reason} (alert {alert.id})"
        text += f"; next: {format_list_command(alert.code)}" * (alert.state == "open")
    elif alert.state == "open":
        command = format_answer_command(alert.task_id, alert.step)
        text = f"{task} asks {alert.code}: {alert.reason} (alert {alert.id}); next: {command}"
    else:
        text = f"{task} no longer asks {alert.code}: {alert.reason} (alert {alert.id})"
    return escape_text(text)


def _format_row_line(alert: Alert) -> str:
    """Format the alert of a row that belongs to no task. Its ``step`` is the name of the row."""
    row = describe_shared_row(alert.step)
    if alert.state == "open":
        waits = f"; {row.waits}" if row.waits else ""
        text = f"{row.what}: {alert.reason}{waits} (alert {alert.id}); next: {row.remedy or 'arriero doctor'}"
    else:
        text = f"{row.what} can be read again, or was removed (alert {alert.id})"
    return escape_text(text)


def compute_alert_delay(attempts: int, *, seconds: float, seconds_max: float, jitter: float) -> float:
    """Return the seconds until an alert is sent again to those who could not be reached.

    Args:
        attempts: how often it was taken to be delivered, 1 or more.
        seconds, seconds_max: the first delay, and the longest one.
        jitter: in [0, 1); 0 gives the shortest delay, half of the grown one.
    """
    return retry_delay(attempts, delay=seconds, factor=RETRY_FACTOR, delay_max=seconds_max, jitter=jitter)


def parse_signing_key(secret: str) -> bytes:
    """Return the key in a secret as operators exchange it: ``whsec_`` and base64 of 24 to 64 bytes.

    Raises: InvalidInput - it is none; the message does not repeat it.
    """
    key = b""
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidInput(
            f"the secret of the webhook cannot be used; it must be {SECRET_PREFIX} and then "
            f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random bytes in base64"
        )
    return key


def sign_message(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header ``webhook-signature``.

    Args:
        key: as ``parse_signing_key`` returns it.
        timestamp: of this attempt, in whole seconds since 1970.
        body: exactly the bytes that are sent.
    Source: Standard Webhooks 1.0.0, "Signature scheme".
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
