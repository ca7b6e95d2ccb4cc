"""A history as JSON lines: how it is written, and how a reader finds out that nothing was cut, removed or changed.

One line for each row, in the order of the history, with the events exactly as they are hashed; then a trailer:

    {"no":1,"task_no":1,"task":"order-1001","link":1,"at":1700000000000000,"actor":"client","events":[...],"hash":"..."}
    {"trailer":{"rows":1,"tasks":1,"heads":"...","store_id":"..."}}

An export that was asked to carry payloads has a line for each of those tasks before its trailer, with all rows that a replay of
the code needs: ``{"record":{"task":{...},"arguments":"...","steps":[...],"convoy":null,"signals":[]}}``. The trailer then says
which tasks these are, how many, and a hash over the lines: ``"payloads":{"state":"open","tasks":1,"hash":"..."}``.

``task`` is empty for the store's own rows, whose ``task_no`` is 0. Rows of a convoy's own stream have its number below zero
for ``task_no``, and its key for ``task``; release 0.4.0 left that empty on SQLite and PostgreSQL, and the number distinguishes such
streams apart. A line changed or missing inside a task breaks that
task's hash chain; a task's last lines, or all of them, are missed by the trailer, and a cut trailer misses itself.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from ..errors import InvalidInput, MutilatedExport
from ..events.base import START, fits_link
from ..model import HistoryRow, Instant, Loaded
from ..text.format import format_count
from .erasures import Erasures

_encode = msgspec.json.Encoder().encode
_NEWLINE = b"\n"


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    no: int
    task_no: int
    task: str
    link: int
    at: int
    actor: str
    events: msgspec.Raw
    hash: str


class _RecordLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    record: Loaded


class CarriedPayloads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lines with payloads: the state of their tasks as it was asked for, their number, and one hash over them."""

    state: str
    tasks: int
    hash: str


class Trailer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The last line's content.

    ``tasks`` counts business tasks, ``heads`` is one hash over the last link of each of them, of each convoy and of the store.
    ``payloads``: None: the export was not asked to carry any.
    """

    rows: int
    tasks: int
    heads: str
    store_id: str
    payloads: CarriedPayloads | None = None


class _TrailerLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trailer: Trailer


_read_line = msgspec.json.Decoder(_Line).decode
_read_record = msgspec.json.Decoder(_RecordLine).decode
_read_trailer = msgspec.json.Decoder(_TrailerLine).decode
_read_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def encode_row(row: HistoryRow) -> bytes:
    """Encode one row as a line, newline included."""
    line = _Line(row.no, row.task_no, row.task_id, row.link, row.at, row.actor, row.events, row.hash)
    return _encode(line) + _NEWLINE


def encode_record(record: Loaded) -> bytes:
    """Encode all rows of one task as a line, newline included."""
    return _encode(_RecordLine(record)) + _NEWLINE


class TrailerSum:
    """The sums of a trailer, collected row by row: by the writer, and again by the reader."""

    def __init__(self) -> None:
        self.rows = 0
        self._last: dict[int, tuple[int, str]] = {}
        self._records = 0
        self._records_hash = hashlib.blake2b(digest_size=16)

    def add_record(self, line: bytes) -> None:
        """Count a line with payloads."""
        self._records += 1
        self._records_hash.update(line.strip() + _NEWLINE)

    def add(self, row: HistoryRow) -> None:
        """Count a row."""
        self.rows += 1
        self._last[row.task_no] = (row.link, row.hash)

    def last(self, task_no: int) -> tuple[int, str]:
        """Link and hash of a task's last row so far."""
        return self._last.get(task_no, (0, START))

    def trailer(self, store_id: str, state: str | None = None) -> Trailer:
        """The trailer of what was added. ``state``: of the tasks whose payloads it carries; None: it carries none."""
        heads = "\n".join(sorted(f"{task_no}:{link}:{digest}" for task_no, (link, digest) in self._last.items()))
        digest = hashlib.blake2b(heads.encode(), digest_size=16).hexdigest()
        tasks = sum(task_no > 0 for task_no in self._last)
        carried = None if state is None else CarriedPayloads(state, self._records, self._records_hash.hexdigest())
        return Trailer(self.rows, tasks, digest, store_id, carried)

    @property
    def has_records(self) -> bool:
        """True if a line with payloads was added."""
        return self._records > 0


def encode_trailer(trailer: Trailer) -> bytes:
    """Encode the trailer as a line, newline included."""
    return _encode(_TrailerLine(trailer)) + _NEWLINE


def encode_export(rows: Iterable[HistoryRow], store_id: str) -> Iterable[bytes]:
    """Encode a whole export of rows that are at hand."""
    summed = TrailerSum()
    for row in rows:
        summed.add(row)
        yield encode_row(row)
    yield encode_trailer(summed.trailer(store_id))


def read_export(lines: Iterable[bytes | str]) -> list[HistoryRow]:
    """The rows of an export, proved to be as they were written.

    Args:
        lines: with or without their newlines; empty ones count but say nothing.
    Raises: MutilatedExport - names the first line where a link, a hash, a number or the trailer does not fit.
    """
    rows: list[HistoryRow] = []
    for read in _read_lines(_Reader(), lines):
        if isinstance(read, HistoryRow):
            rows.append(read)
    return rows


class ExportedRecords:
    """The tasks whose payloads an export carries, one after the other. Neither they nor the history are kept.

    That nothing was cut or changed is known after the last one. Until then nothing that follows from them may be shown.

    Args:
        lines: as for ``read_export``.
    """

    def __init__(self, lines: Iterable[bytes | str]) -> None:
        self._lines = lines
        self._reader = _Reader()

    @property
    def last_at(self) -> Instant:
        """The instant of the last commit that was read."""
        return self._reader.last_at

    def __iter__(self) -> Iterator[Loaded]:
        """Read. Raises MutilatedExport, at the latest after the last task."""
        return (read for read in _read_lines(self._reader, self._lines) if isinstance(read, Loaded))

    def refuse_without(self, state: str, *, is_carried: bool) -> None:
        """Refuse, after the last task, an export that does not carry the payloads that are asked for.

        Args:
            state: of the tasks that are asked for. ``is_carried``: it is among the states of ``carried``.
        Raises: InvalidInput.
        """
        if self.carried == "":
            raise InvalidInput(
                "the export carries no payloads, so no code can be replayed: write it with `arriero export --payloads"
                f" {state}`, or replay the store itself with --store"
            )
        if not is_carried:
            raise InvalidInput(
                f"the export carries the payloads of tasks that are {self.carried}, not of those that are {state}: write it with"
                f" `arriero export --payloads {state}`"
            )

    @property
    def carried(self) -> str:
        """The state of the tasks whose payloads it carries, known after the last one; empty: it carries none."""
        trailer = self._reader.trailer
        return "" if trailer is None or trailer.payloads is None else trailer.payloads.state


def _read_lines(reader: "_Reader", lines: Iterable[bytes | str]) -> Iterator[HistoryRow | Loaded | None]:
    number = 0
    for number, line in enumerate(lines, start=1):
        data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        if data := data.strip():
            yield reader.read(number, data)
    if reader.trailer is None:
        raise MutilatedExport(
            number + 1, f"the trailer is missing after {format_count(reader.summed.rows, 'row')}: the end was cut off"
        )


class _Reader:
    def __init__(self) -> None:
        self.summed = TrailerSum()
        self.trailer: Trailer | None = None
        self.last_at = Instant(0)
        self._last_no: int | None = None
        self._erasures = Erasures()
        self._task_ids: dict[int, str] = {0: ""}
        self._task_nos: dict[tuple[bool, str], int] = {(False, ""): 0}  # by whether it is a convoy's, and name

    def read(self, number: int, data: bytes) -> HistoryRow | Loaded | None:
        if self.trailer is not None:
            raise MutilatedExport(number, "it stands after the trailer")
        try:
            keys = _read_keys(data)
            if "trailer" in keys:
                self._end(number, _read_trailer(data).trailer)
                return None
            if "record" in keys:
                self.summed.add_record(data)
                return _read_record(data).record
            return self._row(number, _read_line(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MutilatedExport(number, f"it is not a line of an export: {error}") from error

    def _row(self, number: int, line: _Line) -> HistoryRow:
        if self._last_no is not None and line.no <= self._last_no:
            raise MutilatedExport(number, f"row {line.no} stands after row {self._last_no}")
        kind = "convoy" if line.task_no < 0 else "task"
        if self._task_ids.setdefault(line.task_no, line.task) != line.task:
            known = self._task_ids[line.task_no]
            raise MutilatedExport(number, f"{kind} number {abs(line.task_no)} is named {line.task!r}, not {known!r}")
        is_unnamed = line.task_no < 0 and not line.task  # no key is empty: it was left out
        known_no = (
            line.task_no if is_unnamed else self._task_nos.setdefault((line.task_no < 0, line.task), line.task_no)
        )
        if known_no != line.task_no:
            raise MutilatedExport(
                number, f"{kind} {line.task!r} has the number {abs(line.task_no)}, not {abs(known_no)}"
            )
        self._link(number, line)
        row = HistoryRow(
            line.no,
            line.task_no,
            line.task,
            line.link,
            Instant(line.at),
            line.actor,
            msgspec.Raw(bytes(line.events)),
            line.hash,
        )
        self._last_no, self.last_at = line.no, row.at
        self.summed.add(row)
        return row

    def _link(self, number: int, line: _Line) -> None:
        whose = "the store" if line.task_no == 0 else f"{'convoy' if line.task_no < 0 else 'task'} {line.task!r}"
        link, head = self.summed.last(line.task_no)
        if line.link != link + 1:
            raise MutilatedExport(
                number, f"the history of {whose} goes from link {link} to {line.link}: a line is missing or moved"
            )
        events = bytes(line.events).decode()
        if self._erasures.add_row(line.task_no, line.link, line.hash, events.encode()):
            return
        if not fits_link(line.hash, head, line.task_no, line.link, line.at, line.actor, events):
            raise MutilatedExport(
                number, f"link {line.link} of {whose} does not have the hash it names: it was changed"
            )

    def _end(self, number: int, trailer: Trailer) -> None:
        state = None if trailer.payloads is None else trailer.payloads.state
        found = self.summed.trailer(trailer.store_id, state)
        for what, here, named in (
            ("rows", found.rows, trailer.rows),
            ("tasks", found.tasks, trailer.tasks),
        ):
            if here != named:
                raise MutilatedExport(
                    number, f"the trailer names {named:,} {what}, {here:,} are here: lines were removed or added"
                )
        if found.heads != trailer.heads:
            raise MutilatedExport(
                number, "the trailer's hash over the last links does not fit: lines were exchanged or changed"
            )
        if found.payloads != trailer.payloads or (trailer.payloads is None and self.summed.has_records):
            raise MutilatedExport(
                number, "the trailer does not fit the lines with payloads: lines were removed, added or changed"
            )
        if links := self._erasures.list_untold():
            raise MutilatedExport(number, f"link {links[0]} of the store was erased, and no later one records it")
        self.trailer = trailer
