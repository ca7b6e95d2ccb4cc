"""A history as JSON lines: how it is written, and how a reader finds out that nothing was cut, removed or changed.

One line for each row, in the order of the history, with the events exactly as they are hashed; then a trailer:

    {"no":1,"task_no":1,"task":"order-1001","link":1,"at":1700000000000000,"actor":"client","events":[...],"hash":"..."}
    {"trailer":{"rows":1,"tasks":1,"heads":"...","store_id":"..."}}

``task`` is empty for the store's own rows, whose ``task_no`` is 0. Rows of a convoy's own stream have its number below zero
for ``task_no``, and its key for ``task``; release 0.4.0 left that empty on SQLite and PostgreSQL, and the number distinguishes such
streams apart. A line changed or missing inside a task breaks that
task's hash chain; a task's last lines, or all of them, are missed by the trailer, and a cut trailer misses itself.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from ..errors import MutilatedExport
from ..events.base import START, fits_link
from ..model import HistoryRow, Instant
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


class Trailer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line's content.

    ``tasks`` counts business tasks, ``heads`` is one hash over the last link of each of them, of each convoy and of the store.
    """

    rows: int
    tasks: int
    heads: str
    store_id: str


class _TrailerLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trailer: Trailer


_read_line = msgspec.json.Decoder(_Line).decode
_read_trailer = msgspec.json.Decoder(_TrailerLine).decode
_read_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def encode_row(row: HistoryRow) -> bytes:
    """Encode one row as a line, newline included."""
    line = _Line(row.no, row.task_no, row.task_id, row.link, row.at, row.actor, row.events, row.hash)
    return _encode(line) + _NEWLINE


class TrailerSum:
    """The sums of a trailer, collected row by row: by the writer, and again by the reader."""

    def __init__(self) -> None:
        self.rows = 0
        self._last: dict[int, tuple[int, str]] = {}

    def add(self, row: HistoryRow) -> None:
        """Count a row."""
        self.rows += 1
        self._last[row.task_no] = (row.link, row.hash)

    def last(self, task_no: int) -> tuple[int, str]:
        """Link and hash of a task's last row so far."""
        return self._last.get(task_no, (0, START))

    def trailer(self, store_id: str) -> Trailer:
        """The trailer of what was added."""
        heads = "\n".join(sorted(f"{task_no}:{link}:{digest}" for task_no, (link, digest) in self._last.items()))
        digest = hashlib.blake2b(heads.encode(), digest_size=16).hexdigest()
        return Trailer(self.rows, sum(task_no > 0 for task_no in self._last), digest, store_id)


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
    reader = _Reader()
    number = 0
    for number, line in enumerate(lines, start=1):
        data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        if data := data.strip():
            reader.read(number, data)
    if reader.trailer is None:
        raise MutilatedExport(
            number + 1, f"the trailer is missing after {format_count(reader.summed.rows, 'row')}: the end was cut off"
        )
    return reader.rows


class _Reader:
    def __init__(self) -> None:
        self.rows: list[HistoryRow] = []
        self.summed = TrailerSum()
        self.trailer: Trailer | None = None
        self._erasures = Erasures()
        self._task_ids: dict[int, str] = {0: ""}
        self._task_nos: dict[tuple[bool, str], int] = {(False, ""): 0}  # by whether it is a convoy's, and name

    def read(self, number: int, data: bytes) -> None:
        if self.trailer is not None:
            raise MutilatedExport(number, "it stands after the trailer")
        try:
            if "trailer" in _read_keys(data):
                self._end(number, _read_trailer(data).trailer)
            else:
                self._row(number, _read_line(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MutilatedExport(number, f"it is not a line of an export: {error}") from error

    def _row(self, number: int, line: _Line) -> None:
        if self.rows and line.no <= self.rows[-1].no:
            raise MutilatedExport(number, f"row {line.no} stands after row {self.rows[-1].no}")
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
        self.rows.append(row)
        self.summed.add(row)

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
        found = self.summed.trailer(trailer.store_id)
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
        if links := self._erasures.list_untold():
            raise MutilatedExport(number, f"link {links[0]} of the store was erased, and no later one records it")
        self.trailer = trailer
