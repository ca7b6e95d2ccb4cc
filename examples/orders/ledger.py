"""Reads a shop's ledger: one line per invoice, as a shop's books are, with all that may be wrong in them.

The format is a CSV file, plain or gzipped, with the columns of ``COLUMNS``. Each line becomes an `Order`, or is set
aside with its number and the reason. Nothing is dropped without a word and nothing is invented:

- A line is parsed by itself. No field of the format holds a line break, so a quote that is never closed spoils its own
  line only, and the reported line numbers are those an editor shows.
- An amount is unit price times quantity, exact in decimals and rounded once, here, to pence, half to even. Nobody
  downstream rounds again, so that the books can be compared to the penny.
- An invoice number may come more than once. The real ledger has invoices that were entered over two minutes, one line
  for each: the further lines are *parts* of the invoice, orders with ids of their own (``540185-2``). The same line
  again is a duplicate; another customer, or another content for the same time, contradicts the first line. Such lines
  are set aside.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from enum import StrEnum
from pathlib import Path

COLUMNS = ("invoice_no", "invoice_date", "customer_id", "country", "quantity", "unit_price")
UNKNOWN_CUSTOMER = "(blank)"
CANCELLATION_MARK = "C"
FIELD_LENGTH_MAX = 200
"""An invoice number becomes a task id (at most 255 characters) and may grow by a part's number."""
DIGITS_MAX = 12
"""Of a quantity, and of a price on each side of its point; more than any shop's, few enough to stay exact."""
PENCE_MAX = 2**63 - 1
"""The services' book keeps amounts in a database's integer."""

WHOLE_NUMBER = re.compile(r"-?[0-9]+")
DECIMAL_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
GZIP_MAGIC = b"\x1f\x8b"
EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Enough digits that the product itself is never rounded; the only rounding is the one to pence."""


class Kind(StrEnum):
    """What a line of the ledger asks for."""

    PURCHASE = "purchase"
    CANCELLATION = "cancellation"
    CORRECTION = "correction"


@dataclass(frozen=True)
class Order:
    """One line that can be handled. ``pieces`` and ``pence`` keep the ledger's sign: negative when pieces come back or
    are written off. ``placed_at`` is the shop's local time, which bears no zone. ``customer_id``: None where the shop did
    not know the customer; nobody knows whether two such orders are the same person's."""

    id: str
    kind: Kind
    customer_id: str | None
    country: str
    placed_at: datetime
    pieces: int
    pence: int


@dataclass(frozen=True)
class SetAside:
    """One line that cannot be handled; ``line`` counts from 1, the header included."""

    line: int
    invoice_no: str
    reason: str


@dataclass(frozen=True)
class Ledger:
    """Both halves of a file, each in the file's order."""

    orders: tuple[Order, ...]
    set_aside: tuple[SetAside, ...]


class LedgerError(Exception):
    """The file as a whole cannot be read."""


class Unusable(Exception):
    """One line cannot be handled; the message is the reason."""


def read_ledger(path: Path) -> Ledger:
    """Read a whole file.

    Raises: LedgerError - no such file, not readable, a damaged or truncated gzip, a column of the format is missing.
    """
    try:
        with path.open("rb") as plain:
            zipped = plain.read(2) == GZIP_MAGIC
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            return parse_ledger(_decoded(file))
    except (OSError, EOFError, zlib.error) as error:
        raise LedgerError(f"the ledger {path} cannot be read: {error}") from error


def parse_ledger(lines: Iterable[str]) -> Ledger:
    """Read the lines of a ledger, the header first.

    Raises: LedgerError - the header is missing or lacks a column.
    """
    numbered = enumerate(lines, start=1)
    columns = _header(next(numbered, (1, ""))[1])
    seen = _Seen()
    orders: list[Order] = []
    set_aside: list[SetAside] = []
    for number, line in numbered:
        if not line.strip("\r\n"):
            continue  # an empty line, usual at the end of a file, says nothing that could be lost
        row: dict[str, str] = {}
        try:
            row = _fields(line, columns)
            for column in COLUMNS:
                _check_text(column, row[column])
            order = _order(row)
            orders.append(seen.placed(number, line.strip(), order))
        except Unusable as unusable:
            set_aside.append(SetAside(number, row.get("invoice_no", ""), str(unusable)))
    return Ledger(tuple(orders), tuple(set_aside))


def _decoded(file: Iterable[bytes]) -> Iterator[str]:
    """A line that is not UTF-8 must not cost the lines after it: what cannot be decoded is kept as lone surrogates."""
    for number, line in enumerate(file):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", errors="surrogateescape")


def _header(line: str) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise LedgerError(f"the ledger's first line is not CSV: {error}") from error
    missing = [column for column in COLUMNS if names.count(column) != 1]
    if missing:
        raise LedgerError(f"the ledger's first line must name these columns once: {', '.join(missing)}")
    return names


def _fields(line: str, columns: list[str]) -> dict[str, str]:
    try:
        cells = next(csv.reader([line.rstrip("\r\n")], strict=True))
    except csv.Error as error:
        raise Unusable(f"not a line of CSV: {error}") from error
    if len(cells) != len(columns):
        fewer_or_more = "too few" if len(cells) < len(columns) else "too many"
        raise Unusable(f"{fewer_or_more} fields: {len(cells)} where the header names {len(columns)}")
    return {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}


def _check_text(column: str, text: str) -> None:
    if not text:
        raise Unusable(f"{column} is empty")
    if len(text) > FIELD_LENGTH_MAX:
        raise Unusable(f"{column} is longer than {FIELD_LENGTH_MAX} characters")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise Unusable(f"{column} is not UTF-8")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise Unusable(f"{column} holds a control character")


def _order(row: dict[str, str]) -> Order:
    invoice_no = row["invoice_no"]
    pieces = _pieces(row["quantity"])
    price = _price(row["unit_price"])
    customer_id = row["customer_id"]
    return Order(
        id=invoice_no,
        kind=_kind(invoice_no, pieces),
        customer_id=None if customer_id == UNKNOWN_CUSTOMER else customer_id,
        country=row["country"],
        placed_at=_local_time(row["invoice_date"]),
        pieces=pieces,
        pence=_pence(price, pieces),
    )


def _kind(invoice_no: str, pieces: int) -> Kind:
    if invoice_no.startswith(CANCELLATION_MARK):
        if pieces > 0:
            raise Unusable(f"a cancellation must bring pieces back, its quantity is {pieces}")
        return Kind.CANCELLATION
    return Kind.PURCHASE if pieces > 0 else Kind.CORRECTION


def _pieces(text: str) -> int:
    # Python's int() takes underscores, signs and the digits of every script; a ledger's quantity is plainer than that.
    if not WHOLE_NUMBER.fullmatch(text):
        raise Unusable(f"quantity is not a whole number: {text!r}")
    if len(text) > DIGITS_MAX:
        raise Unusable(f"quantity has more than {DIGITS_MAX} characters: {text!r}")
    pieces = int(text)
    if pieces == 0:
        raise Unusable("quantity is zero: nothing was bought, brought back or corrected")
    return pieces


def _price(text: str) -> Decimal:
    if not DECIMAL_NUMBER.fullmatch(text):
        raise Unusable(f"unit_price is not a number: {text!r}")
    if len(text) > 2 * DIGITS_MAX:
        raise Unusable(f"unit_price has more than {2 * DIGITS_MAX} characters: {text!r}")
    price = Decimal(text)
    if price < 0:
        raise Unusable(f"unit_price is negative: {text}")
    return price


def _pence(price: Decimal, pieces: int) -> int:
    with localcontext(EXACT):
        pence = int((price * pieces * 100).to_integral_value())
    if abs(pence) > PENCE_MAX:
        raise Unusable("the amount is larger than can be booked")
    return pence


def _local_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Unusable(f"invoice_date is not a date and time: {text!r}") from None
    if moment.tzinfo is not None:
        raise Unusable(f"invoice_date bears a zone, the ledger's times are local: {text!r}")
    return moment


class _Seen:
    """What the lines so far have used up: their text, their invoice numbers and the ids given."""

    def __init__(self) -> None:
        self._line_of_text: dict[str, int] = {}
        self._line_of_id: dict[str, int] = {}
        self._parts: dict[str, list[tuple[int, Order]]] = {}

    def placed(self, line: int, text: str, order: Order) -> Order:
        """The order under an id of its own.

        Raises: Unusable - it repeats or contradicts an earlier line.
        """
        if text in self._line_of_text:
            raise Unusable(f"the same as line {self._line_of_text[text]}")
        self._line_of_text[text] = line
        parts = self._parts.get(order.id, [])
        for earlier_line, earlier in parts:
            if (earlier.customer_id, earlier.country, earlier.kind) != (order.customer_id, order.country, order.kind):
                raise Unusable(f"invoice {order.id} is another customer's, country's or kind's on line {earlier_line}")
            if earlier.placed_at == order.placed_at:
                raise Unusable(f"invoice {order.id} has another content for the same time on line {earlier_line}")
        part = _as_part(order, len(parts) + 1)
        if part.id in self._line_of_id:
            raise Unusable(f"the id {part.id} is taken by line {self._line_of_id[part.id]}")
        self._line_of_id[part.id] = line
        self._parts[order.id] = [*parts, (line, order)]
        return part


def _as_part(order: Order, number: int) -> Order:
    if number == 1:
        return order
    return Order(
        id=f"{order.id}-{number}",
        kind=order.kind,
        customer_id=order.customer_id,
        country=order.country,
        placed_at=order.placed_at,
        pieces=order.pieces,
        pence=order.pence,
    )
