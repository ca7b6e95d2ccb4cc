"""One value of many types, for every interface to submit; and random values of all types, for processes to encode."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic

from arriero import App, workflow
from arriero.payloads.codec import encode


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 3


@dataclass(frozen=True)
class Line:
    article: str
    marks: frozenset[str] = frozenset()


@dataclass
class Order:
    id: str
    lines: set[Line] = field(default_factory=set)
    groups: frozenset[frozenset[int]] = frozenset()
    at: datetime | None = None


class Box(msgspec.Struct, frozen=True, rename="camel"):
    label_text: str
    colours: frozenset[Colour] = frozenset()


class Pair(NamedTuple):
    left: int
    right: frozenset[str] = frozenset()


class Address(TypedDict, total=False):
    street: str
    tags: set[str]


@attrs.define(frozen=True)
class Point:
    x: int
    names: frozenset[str] = frozenset()


class Item(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    item_id: str = pydantic.Field(alias="itemId")
    labels: frozenset[str] = frozenset()


class Parcel(pydantic.BaseModel):
    items: list[Item] = []
    labels: set[str] = set()
    nested: dict[str, set[int]] = {}
    line: Line | None = None


@workflow
async def send(parcel: Parcel, order: Order, box: Box) -> int:
    return len(parcel.labels)


app = App("typed", workflows=[send])

LABELS = ("fragile", "heavy", "air", "this side up", "wet", "")

# --- random values
Make = Callable[[random.Random], Any]


def texts(r: random.Random) -> frozenset[str]:
    """The same texts in another order of insertion at every call."""
    return frozenset(r.sample(LABELS, r.randint(0, len(LABELS))))


def line(r: random.Random) -> Line:
    return Line(r.choice(LABELS), texts(r))


def zone(r: random.Random) -> timezone:
    return timezone(timedelta(minutes=r.randint(-720, 720))) if r.random() < 0.5 else UTC


def instant(r: random.Random) -> datetime:
    return datetime(r.randint(1, 9999), r.randint(1, 12), r.randint(1, 28), 12, 0, 0, r.randint(0, 999_999), zone(r))


def decimal(r: random.Random) -> Decimal:
    return Decimal(r.choice(("-0", "0E+9", "1E-30", "1.10", str(r.randint(-(10**9), 10**9)), "1E+3")))


def item(r: random.Random) -> Item:
    return Item(itemId=r.choice(LABELS), labels=texts(r))


MAKERS: dict[str, tuple[Any, Make]] = {
    "int": (int, lambda r: r.randint(-(2**63), 2**63)),
    "float": (float, lambda r: r.choice((-0.0, 1.5, 1e300, r.random()))),
    "str": (str, lambda r: r.choice(LABELS)),
    "bytes": (bytes, lambda r: r.randbytes(5)),
    "bool": (bool | None, lambda r: r.choice((True, False, None))),
    "decimal": (Decimal, decimal),
    "uuid": (UUID, lambda r: UUID(int=r.getrandbits(128))),
    "date": (date, lambda r: date(r.randint(1, 9999), 2, 3)),
    "time": (time, lambda r: time(r.randint(0, 23), 3, 4, r.randint(0, 999_999), r.choice((None, UTC)))),
    "datetime": (datetime, instant),
    "timedelta": (timedelta, lambda r: timedelta(r.randint(-(10**6), 10**6), 0, r.randint(0, 10**6))),
    "enum": (Colour | None, lambda r: r.choice(list(Colour))),
    "enums": (set[Colour], lambda r: set(r.sample(list(Colour), 2))),
    "sizes": (frozenset[Size], lambda r: frozenset(r.sample(list(Size), 2))),
    "numbers": (set[int | float], lambda r: {r.randint(0, 99), r.random(), 7}),
    "mixed": (set[int | str | None], lambda r: {r.randint(0, 99), None, *texts(r)}),
    "uuids": (set[UUID], lambda r: {UUID(int=r.getrandbits(128)) for _ in range(4)}),
    "instants": (set[datetime], lambda r: {instant(r), instant(r)}),
    "sets of sets": (frozenset[frozenset[str]], lambda r: frozenset(texts(r) for _ in range(4))),
    "sets of tuples": (set[tuple[frozenset[str], int]], lambda r: {(texts(r), r.randint(0, 9)) for _ in range(4)}),
    "lines": (set[Line], lambda r: {line(r) for _ in range(4)}),
    "boxes": (set[Box], lambda r: {Box(r.choice(LABELS), frozenset(r.sample(list(Colour), 2))) for _ in range(4)}),
    "pairs": (list[Pair], lambda r: [Pair(r.randint(0, 9), texts(r))]),
    "points": (set[Point], lambda r: {Point(r.randint(0, 9), texts(r)) for _ in range(3)}),
    "address": (Address, lambda r: {"street": "s", "tags": set(texts(r))}),
    "by int": (dict[int, set[str]], lambda r: {r.randint(0, 99): set(texts(r)) for _ in range(3)}),
    "by colour": (dict[Colour, frozenset[Line]], lambda r: {one: frozenset({line(r), line(r)}) for one in Colour}),
    "by uuid": (dict[UUID, Decimal], lambda r: {UUID(int=r.getrandbits(128)): decimal(r) for _ in range(3)}),
    "order": (
        Order,
        lambda r: Order(
            "o", {line(r), line(r)}, frozenset({frozenset({1, 2}), frozenset({r.randint(3, 9)})}), instant(r)
        ),
    ),
    "item": (Item, item),
    "items": (set[Item], lambda r: {item(r) for _ in range(3)}),
    "parcel": (
        Parcel,
        lambda r: Parcel(items=[item(r)], labels=set(texts(r)), nested={"a": {r.randint(0, 99), 3}}, line=line(r)),
    ),
    "json": (Any, lambda r: {r.choice(LABELS): [1, None, 2.5, {"a": "b"}]}),
}


def main(seed: int) -> None:
    """Print random values of all types as recorded texts, a line each."""
    for name, (_of, make) in MAKERS.items():
        for number in range(10):
            sys.stdout.write(encode(make(random.Random(f"{seed} {name} {number}")), name) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
