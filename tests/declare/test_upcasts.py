"""Versions of types: their declaration, and records of every version read as the same value."""

import random
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

import arriero
from arriero import DefinitionError, InvalidInput
from arriero.declare.signature import Signature, ValueType
from arriero.payloads import codec
from arriero.payloads.plain_values import VERSION_KEY, VERSIONS

T = TypeVar("T")
Plain = dict[str, Any]


def new_type() -> Any:
    @dataclass
    class Order:
        cents: int

    return Order


def keep(order: Plain) -> Plain:
    return order


async def keep_later(order: Plain) -> Plain:
    return order


def keep_each(order: Plain) -> Any:
    yield order


def keep_two(order: Plain, other: Plain) -> Plain:
    return order


class Color(Enum):
    RED = 1


class Pair(NamedTuple):
    left: int


class Row(msgspec.Struct, array_like=True):
    cell: int


class Root(pydantic.RootModel[list[int]]):
    pass


class Loose(TypedDict):
    cents: int


class Card(msgspec.Struct, tag=True):
    cents: int


class Cash(msgspec.Struct, tag=True):
    euros: int
    change: "Card | Cash | None" = None


@dataclass
class Box(Generic[T]):
    content: T


def declare(of: Any, version: Any, function: Any = keep) -> None:
    arriero.upcast(of, from_version=version)(function)


def declare_twice() -> None:
    of = new_type()
    declare(of, 1)
    declare(of, 1)


def declare_gap() -> None:
    of = new_type()
    declare(of, 1)
    declare(of, 3)


BAD: dict[str, tuple[Callable[[], None], str]] = {
    "two for one version": (declare_twice, "upcast of Order from version 1: keep is declared for that version already"),
    "a gap": (
        declare_gap,
        "upcast of Order from version 3: none is declared from version 2: declare upcasts in ascending",
    ),
    "a chain that begins late": (lambda: declare(new_type(), 2), "none is declared from version 1"),
    "version 0": (lambda: declare(new_type(), 0), "from_version must be a whole number from 1 on"),
    "a version that is a text": (lambda: declare(new_type(), "1"), "from_version must be a whole number from 1 on"),
    "a version that is True": (lambda: declare(new_type(), True), "from_version must be a whole number from 1 on"),
    "no class": (lambda: declare("Order", 1), "it takes a class, not 'Order'"),
    "a type with parameters": (lambda: declare(Box[int], 1), "it takes a class, not .*Box"),
    "an int": (lambda: declare(int, 1), "it must be a dataclass, an attrs class, a msgspec.Struct or a pydantic model"),
    "an enum": (lambda: declare(Color, 1), "it must be a dataclass"),
    "a TypedDict": (lambda: declare(Loose, 1), "values of another type do not know their version"),
    "a NamedTuple": (lambda: declare(Pair, 1), "it is recorded as a list, which has no place for a version"),
    "a namedtuple": (lambda: declare(namedtuple("Point", "x"), 1), "it is recorded as a list"),
    "a Struct as an array": (lambda: declare(Row, 1), "it is recorded as a list"),
    "a RootModel": (lambda: declare(Root, 1), "a RootModel is recorded without fields"),
    "an async function": (lambda: declare(new_type(), 1, keep_later), "keep_later is async: write a plain function"),
    "a generator": (lambda: declare(new_type(), 1, keep_each), "keep_each is a generator: return the dict"),
    "no function": (lambda: declare(new_type(), 1, 7), "it is 7; write it above a function"),
    "a function of two": (
        lambda: declare(new_type(), 1, keep_two),
        "keep_two must take one argument, the recorded dict",
    ),
    "a function of another module": (
        lambda: declare(new_type(), 1, codec.error_text),
        "declare it there, else a process",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_declaration_is_refused_with_its_remedy_and_changes_nothing(fault: str) -> None:
    run, said = BAD[fault]
    with pytest.raises(DefinitionError, match=said):
        run()


def test_the_function_stays_as_it_was_so_that_a_test_can_call_it() -> None:
    assert arriero.upcast(new_type(), from_version=1)(keep) is keep


# --- records of every version
CHAIN_MAX = 5
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda of: of, lambda value: value),
    "a list": (lambda of: list[of], lambda value: [value, value]),
    "a dict": (lambda of: dict[str, of], lambda value: {"a": value}),
    "an optional": (lambda of: of | None, lambda value: value),
    "a tuple": (lambda of: tuple[int, of], lambda value: (1, value)),
    "a generic": (lambda of: Box[of], lambda value: Box(value)),
    "a model": (
        lambda of: pydantic.create_model("Holder", inner=(list[of], ...)),
        lambda value: {"inner": [value]},
    ),
    "a Struct": (
        lambda of: msgspec.defstruct("Holder", [("inner", dict[str, of])]),
        lambda value: {"inner": {"k": value}},
    ),
}


def build_class(kind: str, name: str) -> Any:
    if kind == "model":
        config = pydantic.ConfigDict(extra="forbid")
        return pydantic.create_model("Order", __config__=config, __module__=__name__, **{name: (int, ...)})  # type: ignore[call-overload]
    if kind == "struct":
        return msgspec.defstruct("Order", [(name, int)], module=__name__, forbid_unknown_fields=True, frozen=True)
    made = type("Order", (), {"__annotations__": {name: int}, "__module__": __name__})
    return dataclass(made)


def build_chain(kind: str, length: int, random_source: random.Random) -> tuple[Any, list[Plain]]:
    """Build a type with ``length`` versions, and the record of one value in each of them."""
    amount = random_source.randrange(1_000)
    records: list[Plain] = [{"field1": amount}]
    of = build_class(kind, f"field{length}")
    for version in range(1, length):
        factor = random_source.randrange(2, 9)

        def rename(order: Plain, version: int = version, factor: int = factor) -> Plain:
            return {f"field{version + 1}": order[f"field{version}"] * factor}

        rename.__module__ = __name__
        arriero.upcast(of, from_version=version)(rename)
        amount *= factor
        records.append({f"field{version + 1}": amount, VERSION_KEY: version + 1})
    return of, records


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", ["dataclass", "struct", "model"])
@pytest.mark.parametrize("seed", range(4))
def test_records_of_each_version_are_read_as_one_value_and_written_alike(holder: str, kind: str, seed: int) -> None:
    source = random.Random(f"{holder} {kind} {seed}")
    if (kind, holder) == ("struct", "a model"):
        kind = "dataclass"  # no model holds a Struct
    of, records = build_chain(kind, source.randrange(2, CHAIN_MAX + 1), source)
    wrap_type, wrap = HOLDERS[holder]
    value_type: ValueType[Any] = ValueType(wrap_type(of), "value")
    texts = [msgspec.json.encode(wrap(record)).decode() for record in records]
    values = [value_type.read(text) for text in texts]
    assert all(value == values[-1] for value in values)
    written = value_type.encode(values[0])
    assert written.count(VERSION_KEY) == texts[-1].count(VERSION_KEY) > 0
    assert value_type.read(written) == values[0]
    assert all(value_type.mean_same(text, written) for text in texts)
    assert msgspec.json.decode(written) == msgspec.json.decode(texts[-1])


@pytest.mark.parametrize("seed", range(20))
def test_a_call_with_an_old_record_means_the_same_as_one_of_today(seed: int) -> None:
    source = random.Random(seed)
    of, records = build_chain("dataclass", source.randrange(2, CHAIN_MAX + 1), source)

    def fulfil(order: of, others: list[of], note: str = "x") -> None: ...  # type: ignore[valid-type]

    signature = Signature(fulfil, "workflow fulfil")
    today = signature.bind((of(next(v for k, v in records[-1].items() if k != VERSION_KEY)), []), {"note": "y"})
    for record in records:
        old = msgspec.json.encode({"order": record, "others": [], "note": "y"}).decode()
        assert signature.mean_same(old, today)
        assert signature.bind((record, []), {"note": "y"}) == today


def test_a_type_that_is_declared_before_its_upcast_reads_old_records() -> None:
    of = new_type()
    value_type: ValueType[Any] = ValueType(of, "value")
    assert value_type.read('{"cents":5}') == of(5)

    @arriero.upcast(of, from_version=1)
    def count_cents(order: Plain) -> Plain:
        return {"cents": order["cents"] * 100}

    assert value_type.read('{"cents":5}') == of(500)
    assert value_type.encode(of(5)) == f'{{"{VERSION_KEY}":2,"cents":5}}'


def test_objects_inside_have_versions_of_their_own() -> None:
    @dataclass
    class Line:
        cents: int

    @dataclass
    class Order:
        lines: list[Line]

    arriero.upcast(Line, from_version=1)(lambda line: {"cents": line["euros"] * 100})

    @arriero.upcast(Order, from_version=1)
    def name_lines(order: Plain) -> Plain:
        return {"lines": [*order["items"], Line(7)]}

    value_type = ValueType(Order, "value")
    assert value_type.read('{"items":[{"euros":5}]}') == Order([Line(500), Line(7)])
    half = f'{{"{VERSION_KEY}":2,"lines":[{{"euros":5}},{{"{VERSION_KEY}":2,"cents":5}}]}}'
    assert value_type.read(half) == Order([Line(500), Line(5)])


def test_a_union_is_read_by_its_tag() -> None:
    @arriero.upcast(Card, from_version=1)
    def count_cents(card: Plain) -> Plain:
        return {**card, "cents": card["cents"] * 100}

    value_type: ValueType[Any] = ValueType(list[Card | Cash], "value")
    record = '[{"type":"Card","cents":1},{"type":"Cash","euros":1,"change":{"type":"Card","cents":2}}]'
    assert value_type.read(record) == [Card(100), Cash(1, Card(200))]


def test_models_of_a_union_are_told_apart_by_their_literals_or_refused() -> None:
    class Card(pydantic.BaseModel):
        kind: Literal["card"] = "card"
        cents: int

    class Cash(pydantic.BaseModel):
        kind: Literal["cash"] = "cash"
        euros: int

    class Cheque(pydantic.BaseModel):
        cents: int

    class Paid(pydantic.BaseModel):
        by: Card | Cash
        more: dict[str, list[Card | Cash | None]] = {}

    class Doubtful(pydantic.BaseModel):
        by: Cheque | Paid

    for of in (Card, Cheque):

        @arriero.upcast(of, from_version=1)
        def count_cents(card: Plain) -> Plain:
            return {**card, "cents": card["cents"] * 100}

    paid: ValueType[Any] = ValueType(Paid, "value")
    assert paid.read('{"by":{"kind":"card","cents":1}}') == Paid(by=Card(cents=100))
    inside = paid.read('{"by":{"kind":"cash","euros":1},"more":{"a":[null,{"kind":"card","cents":1}]}}')
    assert inside == Paid(by=Cash(euros=1), more={"a": [None, Card(cents=100)]})
    assert paid.read(paid.encode(inside)) == inside
    assert paid.read(paid.encode(Paid(by=Cash(euros=1)))) == Paid(by=Cash(euros=1))
    doubtful: ValueType[Any] = ValueType(Doubtful, "value")
    with pytest.raises(InvalidInput, match="give the union a discriminator - at `\\$.by`"):
        doubtful.read('{"by":{"cents":1}}')


def test_a_value_that_is_recorded_without_a_type_says_its_version() -> None:
    of = new_type()
    arriero.upcast(of, from_version=1)(keep)
    text = codec.encode_untyped({"any": [of(5)]}, "state")
    assert text == f'{{"any":[{{"{VERSION_KEY}":2,"cents":5}}]}}'


@pytest.mark.parametrize("version", ["0", "-1", "true", '"2"', "1.5", "null", "3"])
def test_a_version_that_cannot_be_is_refused_by_type_and_place(version: str) -> None:
    of = new_type()
    arriero.upcast(of, from_version=1)(keep)
    with pytest.raises(InvalidInput, match=r"version .*Order.* - at `\$\[1\]`"):
        ValueType(list[of], "value").read(f'[{{"cents":1}},{{"cents":1,"{VERSION_KEY}":{version}}}]')


def test_types_without_upcasts_are_written_as_before() -> None:
    of = new_type()
    assert ValueType(of, "value").encode(of(5)) == '{"cents":5}'
    assert of not in VERSIONS


def test_a_model_names_the_field_that_does_not_fit_without_its_value() -> None:
    class Line(pydantic.BaseModel):
        price: int

    class Order(pydantic.BaseModel):
        lines: list[Line]

    with pytest.raises(InvalidInput) as refused:
        ValueType(dict[str, list[Order]], "value").read('{"a":[{"lines":[{"price":1},{"price":"secret"}]}]}')
    said = str(refused.value)
    assert "Order.lines[1].price: Input should be a valid integer" in said.replace("TestOrder", "Order")
    assert "secret" not in said


def test_the_example_of_a_refusal_says_the_version_of_today() -> None:
    of = new_type()
    arriero.upcast(of, from_version=1)(keep)

    def fulfil(order: of) -> None: ...  # type: ignore[valid-type]

    refused = Signature(fulfil, "workflow fulfil").refuse("no")
    assert refused.example == f'{{"order":{{"{VERSION_KEY}":2,"cents":1}}}}'
