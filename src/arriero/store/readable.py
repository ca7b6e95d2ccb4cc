"""Checks that this release can read a row: known types and words in each column, policies and failures that decode.

A row may be damaged, or a newer release may have written it. A store reads it as it stands, so that what can be read is
shown to operators; who is to act on it asks first (``refuse_unreadable``).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, NamedTuple, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ..core.supervision import decode_step_policy, decode_task_policy
from ..errors import UnreadableRow
from ..model import (
    INSTANT_END,
    AlertRow,
    ConvoyRow,
    Instant,
    LedgerRow,
    Loaded,
    SignalRow,
    StepKind,
    StepRow,
    TailRow,
    TaskRow,
    Turn,
)
from ..model.failures import read_step_failure, read_task_failure
from ..model.moves import read_undo_context
from ..model.policies import Retry, StepPolicy, Supervision, TaskPolicy
from ..model.processes import ProcessAbout, ProcessRow
from ..model.progress import PublishedRow
from ..model.signals import read_reply
from ..model.tags import read_tags

AnyRow = msgspec.Struct  # of a kind in ``TABLES``
R = TypeVar("R", bound=AnyRow)

VALUE_SHOWN_MAX = 60
SHAPES_KEPT = 10_000
TEXTS_KEPT = 1_000
TABLES: dict[type, str] = {
    TaskRow: "task",
    StepRow: "step",
    ConvoyRow: "convoy",
    TailRow: "convoy_tail",
    LedgerRow: "ledger",
    AlertRow: "alert",
    SignalRow: "signal",
    PublishedRow: "published",
    ProcessRow: "process",
}
KEYS: dict[type, tuple[str, ...]] = {
    TaskRow: ("task_no",),
    StepRow: ("step_no",),
    ConvoyRow: ("convoy_no",),
    TailRow: ("convoy_no",),
    LedgerRow: ("ledger_no",),
    AlertRow: ("no",),
    SignalRow: ("task_no", "number"),
    PublishedRow: ("task_no", "ordinal"),
    ProcessRow: ("process_no",),
}
_PRIVATE = frozenset(
    ("failure", "undo", "arguments", "output", "result", "asked", "checkpoint", "value", "reply", "digest")
)


def one_of(*words: str) -> Callable[[str], str]:
    """A decoder of a text that must be one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


_read_ordering, _read_on_failure = one_of("place", "sequence"), one_of("wait", "skip", "park")
_MEANT_FOR: dict[
    type, dict[str, Any]
] = {  # what a text column must decode as; null and what a timer leaves empty apart
    TaskRow: {
        "policy": decode_task_policy,
        "failure": read_task_failure,
        "tags": read_tags,
        "submitted_tags": read_tags,
    },
    StepRow: {
        "policy": decode_step_policy,
        "compensation": decode_step_policy,
        "undo": read_undo_context,
        "failure": read_step_failure,
        "routing": one_of("", "pinned", "interchangeable"),
    },
    ConvoyRow: {"ordering": _read_ordering, "on_head": _read_on_failure, "on_gap": _read_on_failure},
    TailRow: {"ordering": _read_ordering},
    LedgerRow: {},
    AlertRow: {},
    SignalRow: {},
    PublishedRow: {},
    ProcessRow: {"about": msgspec.json.Decoder(ProcessAbout).decode},
}
# As ``_MEANT_FOR``, of texts that hardly two rows share: what was found right is not remembered.
_VARYING: dict[type, dict[str, Any]] = {
    StepRow: {
        "limit_keys": msgspec.json.Decoder(dict[str, str]).decode,
        "charged_at": msgspec.json.Decoder(tuple[Instant, ...]).decode,
    },
    SignalRow: {"value": msgspec.json.Decoder(msgspec.Raw).decode, "reply": read_reply},
}
_SHOWN_AS: dict[type, tuple[str, ...]] = {  # texts that are looked into only when they are shown, or by their code
    TaskRow: ("output",),
    StepRow: ("arguments", "result", "asked", "checkpoint"),
    ConvoyRow: ("value",),
    PublishedRow: ("value",),
}
_PLACEHOLDERS: dict[tuple[type, str], Any] = {
    (TaskRow, "policy"): msgspec.json.encode(TaskPolicy(None, Supervision())).decode(),
    (StepRow, "policy"): msgspec.json.encode(StepPolicy(0.0, None, Retry(), Supervision())).decode(),
    (ProcessRow, "about"): "{}",
    (SignalRow, "value"): "null",
}


def register_kind(
    kind: type,
    table: str,
    key: tuple[str, ...],
    meant_for: Mapping[str, Any],
    varying: Mapping[str, Any],
    placeholders: Mapping[str, Any],
) -> None:
    """Add a kind of rows to those that can be judged here; see ``store.rows``.

    Args:
        meant_for, varying: decoders of columns, as in ``_MEANT_FOR`` and ``_VARYING``.
        placeholders: what ``legible`` puts in place of a column.
    """
    TABLES[kind], KEYS[kind] = table, key
    _MEANT_FOR[kind], _VARYING[kind] = dict(meant_for), dict(varying)
    _texts_of[kind] = _getter_of(meant_for)
    _PLACEHOLDERS.update({(kind, column): value for column, value in placeholders.items()})


class Fault(msgspec.Struct, frozen=True):
    """A column that this release cannot read.

    Args:
        table: its name in ``TABLES``, or ``body``; key: of the row in it.
        value: what stands there, shortened; empty where that may be private.
    """

    table: str
    key: tuple[Any, ...]
    column: str
    value: str

    @property
    def says(self) -> str:
        """The text after "cannot be read: "."""
        holds = f", which holds {self.value}" if self.value else ""
        return f"column {self.column} of table {self.table} (row {', '.join(map(str, self.key))}){holds}"


class Column(NamedTuple):
    """A column of a row: its name, the types that its values may have, and whether they are instants."""

    name: str
    types: frozenset[type]
    is_instant: bool


@cache
def columns_of(row: type) -> tuple[Column, ...]:
    """The columns of a kind of rows, in the order of its fields."""
    hints = get_type_hints(row)
    names: tuple[str, ...] = row.__struct_fields__  # type: ignore[attr-defined]
    return tuple(Column(name, frozenset(_plain(hints[name])), _holds_instant(hints[name])) for name in names)


def _plain(hint: Any) -> list[type]:
    if get_origin(hint) in (Union, UnionType):
        return [plain for each in get_args(hint) for plain in _plain(each)]
    if get_origin(hint) is Literal:
        return [str]
    if isinstance(hint, NewType):
        return _plain(hint.__supertype__)
    return [float, int] if hint is float else [get_origin(hint) or hint]


def _holds_instant(hint: Any) -> bool:
    return hint is Instant or Instant in get_args(hint)


_OF_A_TURN = frozenset(("convoy_no", "place", "rank"))
_decode = msgspec.json.Decoder().decode
_seen: set[tuple[type, ...]] = set()  # types of the fields of rows that were found right


def _getter_of(columns: Iterable[str]) -> Callable[[Any], Any]:
    names = tuple(columns)
    return attrgetter(*names) if names else lambda _: ()


_texts_of: dict[type, Callable[[Any], Any]] = {row: _getter_of(columns) for row, columns in _MEANT_FOR.items()}
_decoded: set[tuple[type, Any]] = set()  # texts of rows that decode: nearly all rows of a workflow have the same


def refuse_unreadable(row: R) -> R:
    """The row, if this release can read it; said of every row before anybody acts on it.

    Raises: UnreadableRow - naming table, row and column.
    """
    shape = (type(row), *map(type, msgspec.structs.astuple(row)))
    if shape not in _seen:
        if fault := _find_mistyped(row):
            raise unreadable(row, fault)
        if len(_seen) >= SHAPES_KEPT:
            _seen.clear()
        _seen.add(shape)
    if fault := _undecodable(row):
        raise unreadable(row, fault)
    return row


def _find_mistyped(row: AnyRow) -> Fault | None:
    return next(
        (_fault(row, name) for name, types, _ in columns_of(type(row)) if not _has_type(row, name, types)), None
    )


def _has_type(row: AnyRow, name: str, types: frozenset[type]) -> bool:
    value = getattr(row, name)
    if value is None and name in _OF_A_TURN and isinstance(row, TaskRow):
        return not isinstance(row.turn, Turn)  # the one who has a turn has a place
    return type(value) in types


def _undecodable(row: AnyRow) -> Fault | None:
    kind = type(row)
    for name, decode in _VARYING.get(kind, {}).items():
        text = getattr(row, name)
        if text is not None and not _decodes(text, decode):
            return _fault(row, name)
    texts = _texts_of[kind](row)
    if (kind, texts) in _decoded or (isinstance(row, StepRow) and row.kind is StepKind.TIMER):
        return None
    for name, decode in _MEANT_FOR[kind].items():
        text = getattr(row, name)
        if text is not None and not _decodes(text, decode):
            return _fault(row, name)
    if len(_decoded) >= TEXTS_KEPT:
        _decoded.clear()
    _decoded.add((kind, texts))
    return None


def _decodes(text: str, decode: Any) -> bool:
    try:
        decode(text)
    except Exception:  # whatever the types of policies and failures raise about a text that does not fit
        return False
    return True


def _fault(row: AnyRow, column: str) -> Fault:
    return Fault(TABLES[type(row)], key_of(row), column, _shown(column, getattr(row, column)))


def _shown(column: str, value: object) -> str:
    if column in _PRIVATE:
        return ""
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}..."


def key_of(row: AnyRow) -> tuple[Any, ...]:
    """The key of a row in its table."""
    return tuple(getattr(row, name) for name in KEYS[type(row)])


def name_row(row: AnyRow) -> str:
    """The name of a shared row: its table, and its key as JSON. ``parse_row_name`` reads it."""
    return f"{TABLES[type(row)]} {msgspec.json.encode(key_of(row)).decode()}"


def unreadable(row: AnyRow, fault: Fault) -> UnreadableRow:
    """The error that reports a fault."""
    unreadable_row = partial(UnreadableRow, fault.says, table=fault.table, column=fault.column)
    if isinstance(row, TaskRow | StepRow | AlertRow | SignalRow | PublishedRow):
        return unreadable_row(task_no=row.task_no)
    if isinstance(row, ConvoyRow):
        open_task = row.open_task if isinstance(row.open_task, int) else 0
        return unreadable_row(task_no=open_task, convoy_no=row.convoy_no, row=name_row(row))
    convoy_no = row.convoy_no if isinstance(row, TailRow) else 0
    return unreadable_row(convoy_no=convoy_no, row=name_row(row))


def without_body(task_no: int) -> UnreadableRow:
    """The error that says that a task's arguments no longer exist."""
    fault = Fault("body", (task_no,), "arguments", "")
    return UnreadableRow(f"{fault.says}: there is no text", table="body", column="arguments", task_no=task_no)


def faults_of(row: AnyRow) -> tuple[Fault, ...]:
    """Every column that cannot be read or shown; none: the row is as it should be."""
    decoders: dict[str, Any] = {}
    if not (isinstance(row, StepRow) and row.kind is StepKind.TIMER):
        decoders |= _MEANT_FOR[type(row)] | _VARYING.get(type(row), {})
    decoders |= dict.fromkeys(_SHOWN_AS.get(type(row), ()), _decode)
    faults: list[Fault] = []
    for name, types, is_instant in columns_of(type(row)):
        value = getattr(row, name)
        # A column of the right type, of which nothing else is asked, is looked at without a call: most are.
        is_plain = type(value) in types and name not in _OF_A_TURN
        if is_plain and (value is None or (name not in decoders and (not is_instant or 0 <= value < INSTANT_END))):
            continue
        if not _fits(row, name, types, is_instant, decoders):
            faults.append(_fault(row, name))
    return tuple(faults)


def _fits(row: AnyRow, name: str, types: frozenset[type], is_instant: bool, decoders: dict[str, Any]) -> bool:
    value = getattr(row, name)
    if (type(value) not in types or name in _OF_A_TURN) and not _has_type(row, name, types):
        return False
    if value is None:
        return True
    if is_instant and not 0 <= value < INSTANT_END:
        return False
    is_left_empty = value == "" and not isinstance(row, SignalRow)  # a signal always has a value
    return name not in decoders or is_left_empty or _decodes(value, decoders[name])


# --- for operators
def legible(row: R) -> R:
    """The row with something in place of each column that cannot be read, so that the others can be shown.

    A word that is not known stays as it is. A policy becomes the usual one: ``faults_of`` says that it is not the row's.
    """
    faults = {fault.column for fault in faults_of(row)}
    if not faults:
        return row
    kind: type = type(row)
    fields = {name: _in_place_of(row, name, types) for name, types, _ in columns_of(kind) if name in faults}
    return msgspec.structs.replace(row, **fields)


def _in_place_of(row: AnyRow, name: str, types: frozenset[type]) -> Any:
    value = getattr(row, name)
    if (type(row), name) in _PLACEHOLDERS:
        return _PLACEHOLDERS[type(row), name]
    if type(None) in types and name != "turn":
        return None
    if any(issubclass(each, str) for each in types):
        return value if isinstance(value, str) else repr(value)
    return () if types == {tuple} else False if types == {bool} else 0


def legible_task(loaded: Loaded) -> tuple[Loaded, tuple[Fault, ...]]:
    """All that is recorded of a task as far as it can be shown, and the columns that cannot be read."""
    rows: list[AnyRow] = [loaded.task, *loaded.steps, *loaded.signals]
    if loaded.convoy is not None:
        rows.append(loaded.convoy)
    faults = [fault for row in rows for fault in faults_of(row)]
    if not isinstance(loaded.arguments, str):
        faults.append(Fault("body", (loaded.task.task_no,), "arguments", ""))
    if not faults:
        return loaded, ()
    arguments = loaded.arguments if isinstance(loaded.arguments, str) else "null"
    convoy = None if loaded.convoy is None else legible(loaded.convoy)
    steps, signals = tuple(map(legible, loaded.steps)), tuple(map(legible, loaded.signals))
    return Loaded(legible(loaded.task), arguments, steps, convoy, signals), tuple(faults)


def refuse_unreadable_task(loaded: Loaded) -> Loaded:
    """The task, if every row of it can be read. Raises: UnreadableRow, naming the task and each column."""
    task = loaded.task
    for row in (task, *loaded.steps, *loaded.signals, *(() if loaded.convoy is None else (loaded.convoy,))):
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            raise of_task(error, task.task_no) from error
    if not isinstance(loaded.arguments, str):
        raise without_body(task.task_no)
    return loaded


def format_faults(faults: Iterable[Fault]) -> str:
    """The columns that cannot be read, as one sentence; empty when there are none."""
    return "; ".join(f"{fault.says} cannot be read" for fault in faults)


def of_task(error: UnreadableRow, task_no: int, task_id: str = "") -> UnreadableRow:
    """The same error, for a task that cannot continue because of it."""
    return UnreadableRow(
        error.what,
        table=error.table,
        column=error.column,
        task_no=task_no,
        convoy_no=error.convoy_no,
        task_id=task_id,
        row=error.row,
    )


def of_convoy(error: UnreadableRow, convoy_no: int) -> UnreadableRow:
    """The same error, reported a convoy that cannot continue because of it."""
    return UnreadableRow(
        error.what,
        table=error.table,
        column=error.column,
        task_no=error.task_no,
        convoy_no=convoy_no,
        row=error.row,
    )
