"""Rows of a database to model values, as far as all databases give the same. Column order is that of the model's fields.

Shared rows belong to no task alone, so that many may need one. Their tables, keys, and what their texts must decode as are
registered here: the one who loads this module can ask ``store.readable`` about them.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..core.agent_metrics import decode_counts
from ..core.breaker import decode_breaker_policy
from ..core.lease import TERM_UNKNOWN
from ..core.limits import decode_begun
from ..core.parents import ParentStep
from ..core.schedule_instants import decode_usable
from ..core.stand_ins import FENCE_UNKNOWN, HOLDER_UNKNOWN
from ..inspection.facts import CountsRow
from ..model import (
    INSTANT_END,
    AlertRow,
    ConvoyRow,
    ConvoyState,
    EditRow,
    HistoryRow,
    LateAnswerRow,
    LedgerRow,
    LedgerState,
    SignalRow,
    StatusRow,
    StepKind,
    StepState,
    TailRow,
    TaskRow,
    TaskState,
    Turn,
)
from ..model.agents import AgentLimitsRow, BreakerRow, BreakerState, RateRow, read_limits
from ..model.leases import LeaseRow
from ..model.processes import ProcessRow
from ..model.schedules import UNKNOWN_DECLARATION, ScheduleRow, ScheduleState, encode_declaration
from ..model.tokens import TokenRow
from ..model.workflow_pauses import PauseState, WorkflowPauseRow
from .readable import KEYS, TABLES, legible, refuse_unreadable, register_kind

SharedRow = (
    ConvoyRow
    | TailRow
    | LedgerRow
    | ProcessRow
    | BreakerRow
    | AgentLimitsRow
    | RateRow
    | LeaseRow
    | TokenRow
    | CountsRow
    | ScheduleRow
    | WorkflowPauseRow
)

register_kind(
    BreakerRow,
    "breaker",
    ("app", "agent", "target"),
    {"policy": decode_breaker_policy},
    {},
    {"policy": "{}", "fence": FENCE_UNKNOWN},
)
register_kind(AgentLimitsRow, "agent_limits", ("app", "agent"), {"limits": read_limits}, {}, {"limits": "[]"})
register_kind(
    RateRow,
    "rate",
    ("app", "agent", "name", "key"),
    {},
    {"begun": decode_begun},
    {"begun": "[]", "until": INSTANT_END},
)
register_kind(
    LeaseRow, "lease", ("name",), {}, {}, {"term": TERM_UNKNOWN, "until": INSTANT_END, "holder": HOLDER_UNKNOWN}
)
register_kind(TokenRow, "token", ("token_id",), {}, {}, {})
register_kind(
    CountsRow, "agent_metrics", ("app", "process_no", "minute"), {}, {"counts": decode_counts}, {"counts": "{}"}
)
register_kind(
    ScheduleRow,
    "schedule",
    ("app", "name"),
    {"declaration": decode_usable},
    {},
    {"declaration": encode_declaration(UNKNOWN_DECLARATION)},
)
register_kind(WorkflowPauseRow, "workflow_pause", ("app", "workflow"), {}, {}, {})


def parse_row_name(name: str) -> tuple[type[SharedRow], tuple[Any, ...]] | None:
    """The type and the key of a shared row by its name (``readable.name_row``). None: no row here has such a name."""
    table, _, key = name.partition(" ")
    kind = next((kind for kind, known in TABLES.items() if known == table), None)
    try:
        parts = msgspec.json.decode(key)
    except msgspec.DecodeError:
        return None
    is_known = kind is not None and isinstance(parts, list) and len(parts) == len(KEYS[kind])
    return (kind, tuple(parts)) if is_known and kind is not None else None


Row = tuple[Any, ...]
TASK_STATES = {state.stored: state for state in TaskState}
STEP_STATES = {str(state): state for state in StepState}
STEP_KINDS = {str(kind): kind for kind in StepKind}
TURNS: dict[str | None, Turn | None] = {None: None, **{str(turn): turn for turn in Turn}}
TURN = TaskRow.__struct_fields__.index("turn")
_CONVOY_STATES = {str(state): state for state in ConvoyState}
_LEDGER_STATES = {str(state): state for state in LedgerState}
_CONVOY = ConvoyRow.__struct_fields__
_EDIT = EditRow.__struct_fields__
_SIGNAL = SignalRow.__struct_fields__
_LATE_ANSWER = LateAnswerRow.__struct_fields__
_STORED_HELD: Any = "needs_attention"  # the kind of a status
_TOLD = AlertRow.__struct_fields__.index("told")
_read_names = msgspec.json.Decoder(tuple[str, ...]).decode
_TRUTHS = {0: False, 1: True}  # SQLite keeps truth values so
# What the values of columns stand for.
_WORDS: dict[type, dict[str, Mapping[Any, Any]]] = {
    ConvoyRow: {"state": _CONVOY_STATES},
    TailRow: {"asks": _TRUTHS},
    LedgerRow: {"state": _LEDGER_STATES},
    ProcessRow: {"retired": _TRUTHS},
    BreakerRow: {"state": {str(state): state for state in BreakerState}},
    AgentLimitsRow: {"has_keyless": _TRUTHS},
    ScheduleRow: {"state": {str(state): state for state in ScheduleState}},
    WorkflowPauseRow: {"state": {str(state): state for state in PauseState}},
}
S = TypeVar("S", bound=SharedRow)


def alert_of(row: Row) -> AlertRow:
    """An alert; ``told`` is kept as a JSON array. Of a damaged row what can be read: an operator is notified all the same."""
    fields = list(row)
    try:
        fields[_TOLD] = _read_names(row[_TOLD])
    except (msgspec.MsgspecError, TypeError):  # then it is reported to every sink again
        fields[_TOLD] = ()
    return legible(AlertRow(*fields))


def status_of(row: Row) -> StatusRow:
    """A status; its columns are its fields."""
    status = StatusRow(*row)
    return msgspec.structs.replace(status, kind="held") if status.kind == _STORED_HELD else status


def as_stored(status: StatusRow) -> StatusRow:
    """A status with the word that the table has: processes of release 0.4 read it while a store is upgraded."""
    return msgspec.structs.replace(status, kind=_STORED_HELD) if status.kind == "held" else status


def shared_as_is(kind: type[S], row: Row) -> S:
    """A row that belongs to no task, also where this release cannot read it. Its columns are its fields.

    ``store.quarantine.Quarantine.read_shared`` says what stands in for one that cannot be read.
    """
    names: tuple[str, ...] = kind.__struct_fields__
    fields = dict(zip(names, row, strict=True))
    for name, words in _WORDS.get(kind, {}).items():
        fields[name] = known_or_as_is(words, fields[name])
    if kind is TokenRow:
        fields |= {name: _names_or_as_is(fields[name]) for name in ("scopes", "apps", "workflows")}
    return kind(**fields)


def _names_or_as_is(text: Any) -> Any:
    try:
        return _read_names(text)
    except (msgspec.MsgspecError, TypeError):
        return text


def convoy_as_is(row: Row) -> ConvoyRow:
    """A convoy, also where this release cannot read it; see ``store.readable``."""
    return shared_as_is(ConvoyRow, row)


def convoy_of(row: Row) -> ConvoyRow:
    """A convoy. Raises UnreadableRow."""
    return refuse_unreadable(convoy_as_is(row))


class UnknownWord(str):
    """A word of an enumeration that this release does not have; it is written back as it was read."""

    @property
    def _value_(self) -> str:
        return str(self)

    @property
    def stored(self) -> str:
        return str(self)


def known_or_as_is(words: Mapping[Any, Any], value: Any) -> Any:
    """The word of a column's value; the value itself if the word is not known."""
    try:
        known = words.get(value, value)
    except TypeError:  # a converter of the caller's connection has made something else of it
        return value
    return UnknownWord(known) if type(known) is str else known


def tail_of(row: Row) -> TailRow:
    """The end of a convoy. Raises UnreadableRow."""
    return refuse_unreadable(shared_as_is(TailRow, row))


def ledger_of(row: Row) -> LedgerRow:
    """A ledger. Raises UnreadableRow."""
    return refuse_unreadable(shared_as_is(LedgerRow, row))


def signal_as_is(row: Row) -> SignalRow:
    """A signal, also where this release cannot read it."""
    fields = dict(zip(_SIGNAL, row, strict=True))
    fields["wants_reply"] = known_or_as_is(_TRUTHS, fields["wants_reply"])
    return SignalRow(**fields)


def edit_of(row: Row) -> EditRow:
    """A payload that an operator gave or replaced."""
    return EditRow(**dict(zip(_EDIT, row, strict=True)))


def late_answer_of(row: Row) -> LateAnswerRow:
    """An attempt's answer that came when it no longer counted."""
    return LateAnswerRow(**dict(zip(_LATE_ANSWER, row, strict=True)))


def history_of(row: Row) -> HistoryRow:
    """A row of the history."""
    return HistoryRow(row[0], row[1], row[2], row[3], row[4], row[5], msgspec.Raw(row[6].encode()), row[7])


def parent_step_of(row: Row) -> ParentStep:
    """The parent of a child, from the columns of ``select_parents``."""
    step_no, task_id, app, workflow, state, undoing, past_count, *of_step = row
    known: Any = TASK_STATES.get(state, state)
    return ParentStep(step_no, task_id, app, workflow, known, bool(undoing), past_count, *of_step)


def lease_as_is(row: Row) -> LeaseRow:
    """A lease, also where it cannot be read: its holder is the process, or, where it is none, the owner."""
    name, term, holder, until, owner, *others = row
    return LeaseRow(name, term, owner or holder, until, *others)
