"""What goes through the codec: arguments and results by their types, ids, and error texts."""

import logging
import math
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, Required, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero import Agent, App, Attempt, DefinitionError, InvalidInput, Permanent, StepError, Transient, workflow
from arriero.declare.signature import Signature
from arriero.errors import RETRY_AFTER_SECONDS_MAX
from arriero.payloads.codec import (
    ID_LENGTH_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX,
    TEXT_LENGTH_MAX,
    check_id,
    encode,
    error_text,
    measure_depth,
    recordable_details,
    recordable_text,
    step_error_fields,
)

remote = Agent("remote")


@remote.step
def charge(attempt: Attempt, amount: int, currency: str = "EUR", *, tip: float = 0.0) -> int:
    return amount


@remote.step
def take(attempt: Attempt, value: Any) -> Any:
    return value


# --- arguments
def test_arguments_are_recorded_by_name_and_only_those_given() -> None:
    assert charge(5).arguments == '{"amount":5}'
    assert charge(5, tip=1).arguments == '{"amount":5,"tip":1}'
    assert charge(currency="USD", amount=5).arguments == '{"amount":5,"currency":"USD"}'
    assert charge(5, "USD").arguments == charge(currency="USD", amount=5).arguments


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: charge("five"), r"step charge: Expected `int`, got `str` - at `\$.amount`"),
        (lambda: charge(5.5), "amount"),
        (lambda: charge(None), "amount"),
        (lambda: charge(True), "amount"),
        (lambda: charge(tip=1.0), "step charge: missing amount"),
        (lambda: charge(1, 2), "currency"),
        (lambda: charge(1, colour="red"), r"step charge has no parameter 'colour'; it takes \(amount: .*, currency: .*, tip"),
        (lambda: charge(1, amount=2), "amount was given twice"),
        (lambda: charge(1, "EUR", 2.0), "takes 2 positional arguments after attempt, which .* Attempt .*, 3 were given"),
        (lambda: charge(1, tip=math.nan), "holds nan, which JSON does not know: use None or a text"),
        (lambda: charge(1, tip=-math.inf), "holds -inf"),
        (lambda: charge(1, "\ud800"), "arguments of step charge holds a lone surrogate"),
        (lambda: charge(1, "a\0b"), "holds a NUL character"),
        (lambda: charge(10**5000), "arguments of step charge cannot be recorded"),
        (lambda: charge(-(10**100_000)), "cannot be recorded"),
        (lambda: take(object()), "an object has no JSON form; use a dataclass, msgspec.Struct or pydantic model"),
        (lambda: take(lambda: 1), "has no JSON form"),
        (lambda: take(charge), "has no JSON form"),
        (lambda: take({"a": [1, (math.nan,)]}), "holds nan"),
        (lambda: take({"a\0": 1}), "NUL"),
        (lambda: take({math.nan: 1}), "holds nan"),
        (lambda: take([{1: "a", "1": "b"}]), "two keys that are the same text"),
        (lambda: take({("a",): 1}), "cannot be recorded"),
        (lambda: take("x" * (PAYLOAD_BYTES_MAX + 1)), r"has 1,000,01\d bytes; the limit is 1,000,000: keep large data"),
    ],
)  # fmt: skip
def test_arguments_that_the_types_or_the_stores_refuse_are_named(call: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        call()


def test_an_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidInput, match="nested more than 100 levels deep, or holds itself"):
        take(value)


def nested(levels: int, innermost: Any = 1) -> Any:
    """Lists and objects by turns."""
    value = innermost
    for level in range(levels):
        value = [value] if level % 2 else {"in it": value}
    return value


def test_a_hundred_levels_are_taken_and_one_more_is_refused_with_limit_and_remedy() -> None:
    call = take(nested(PAYLOAD_DEPTH_MAX - 1))  # they stand in the object of the arguments
    assert take.signature.arguments(call.arguments) == {"value": nested(PAYLOAD_DEPTH_MAX - 1)}
    with pytest.raises(InvalidInput, match="is nested more than 100 levels deep: flatten it, or keep it"):
        take(nested(PAYLOAD_DEPTH_MAX))


@pytest.mark.parametrize("depth", [300, 800, 950, 1000, 5000, 100_000])
def test_a_deeper_nesting_is_refused_by_name_however_deep_it_is(depth: int) -> None:
    for value in (nested(depth), nested(depth, "\0"), nested(depth, None)):
        with pytest.raises(InvalidInput, match="nested more than 100 levels deep"):
            take(value)


def test_brackets_in_texts_and_beside_one_another_are_no_levels() -> None:
    for value in ("[" * 1000, ['"' + "[{" * 500, "\\"] * 3, [[]] * 1000, {"[" * 200: {}, '\\"[': "]"}):
        assert take.signature.arguments(take(value).arguments) == {"value": value}
    assert measure_depth(b'{"a[[": ["\\"]]", {}], "b": [[]]}') == 3


def test_details_that_are_nested_too_deep_are_shown_as_text() -> None:
    assert recordable_details(nested(PAYLOAD_DEPTH_MAX)) == nested(PAYLOAD_DEPTH_MAX)
    assert "more than 100 levels" in recordable_details(nested(PAYLOAD_DEPTH_MAX + 1))["why"]


def test_the_largest_numbers_that_fit_are_taken() -> None:
    for number in (2**64 - 1, -(2**63), sys.float_info.max, -0.0, 5e-324):
        call = take(number)
        assert take.signature.arguments(call.arguments) == {"value": number}


def test_a_large_payload_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "arriero"):
        take("x" * 300_000)
    assert "slows its task down" in caplog.text


def test_the_same_arguments_have_the_same_text() -> None:
    assert take({"b": 1, "a": {"d": 1, "c": 2}}).arguments == take({"a": {"c": 2, "d": 1}, "b": 1}).arguments
    assert take({2: 1, 1: {4: 1, 3: 2}}).arguments == take({1: {3: 2, 4: 1}, 2: 1}).arguments
    assert take({3, 1, 2}).arguments == take({1, 2, 3}).arguments


def test_words_that_look_like_what_is_refused_are_taken() -> None:
    for value in ("null", "\\u0000", "NaN", {"null": None}):
        assert take.signature.arguments(take(value).arguments) == {"value": value}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    assert take.signature.result(take.signature.encode_result(value)) == value


texts = st.text(st.characters(codec=None), max_size=20)
any_values = st.recursive(
    st.floats() | texts | st.integers() | st.binary() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(any_values)
def test_what_is_accepted_holds_nothing_that_a_store_refuses(value: Any) -> None:
    try:
        text = encode(value, "it")
    except InvalidInput:
        return
    text.encode()
    assert "\0" not in text
    assert "NaN" not in text.replace(r"\"", "") or "NaN" in repr(value)

    def holds_nul(value: Any) -> bool:
        if isinstance(value, dict):
            return any(holds_nul(part) for pair in value.items() for part in pair)
        return any(map(holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value

    assert not holds_nul(msgspec.json.decode(text))


# --- types
class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@dataclass(frozen=True)
class Line:
    article: str
    pieces: int = 1


@dataclass
class Order:
    id: str
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Parcel(msgspec.Struct):
    weight: Annotated[float, msgspec.Meta(gt=0)]
    order: Order


class Address(TypedDict, total=False):
    street: Required[str]
    city: str


class Customer(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)
    since: datetime | None = None


CustomerId = NewType("CustomerId", str)

VALUES: list[tuple[Any, Any]] = [
    (Order, Order("o", [Line("a", 2)], "x")),
    (Line, Line("a")),
    (Parcel, Parcel(1.5, Order("o"))),
    (Address, {"street": "s"}),
    (Customer, Customer(name="n", age=3, since=datetime(2020, 1, 1, tzinfo=UTC))),
    (Customer | None, None),
    (list[Customer], [Customer(name="n", age=3)]),
    (dict[str, Customer], {"a": Customer(name="n", age=3)}),
    (Decimal, Decimal("10.50")),
    (UUID, UUID(int=7)),
    (datetime, datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)),
    (date, date(2024, 2, 29)),
    (timedelta, timedelta(days=2, microseconds=1)),
    (Colour, Colour.RED),
    (Size, Size.LARGE),
    (Literal["a", "b"], "b"),
    (CustomerId, CustomerId("c")),
    (bytes, b"\0\xff"),
    (tuple[int, str], (1, "a")),
    (frozenset[int], frozenset({1, 2})),
    (dict[int, str], {1: "a"}),
    (dict[UUID, list[dict[date, int]]], {UUID(int=2): [{date(2024, 1, 2): 3, date(2024, 1, 1): 4}]}),
    (dict[Colour, str], {Colour.RED: "a"}),
    (dict[int, Customer], {1: Customer(name="n", age=3)}),
    (dict[str, Decimal], {"a": Decimal(1)}),
    (int | str | None, "a"),
    (Any, {"a": [1, None]}),
    (None, None),
]


@pytest.mark.parametrize(("of", "value"), VALUES, ids=lambda value: str(value)[:40])
def test_values_come_back_as_their_types(of: Any, value: Any) -> None:
    def step(attempt: Attempt, value: Any, *, other: Any = None) -> Any: ...

    step.__annotations__.update(value=of, other=of, **{"return": of})
    declared = Agent("a").step(step)
    back = declared.signature.arguments(declared(value, other=value).arguments)
    assert back == {"value": value, "other": value}
    assert type(back["value"]) is type(value)
    result = declared.signature.result(declared.signature.encode_result(value))
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Order, {"id": 5}),
        (Order, Line("a")),
        (Line, {"article": "a", "pieces": "two"}),
        (Parcel, {"weight": -1, "order": {"id": "o"}}),
        (Address, {"city": "c"}),
        (Customer, {"name": "n", "age": -1}),
        (Customer, {"name": "n"}),
        (Decimal, "ten"),
        (UUID, "7"),
        (datetime, "yesterday"),
        (Colour, "blue"),
        (Literal["a", "b"], "c"),
        (tuple[int, str], (1,)),
    ],
)
def test_values_the_types_refuse_are_refused_as_argument_and_as_result(of: Any, value: Any) -> None:
    def step(attempt: Attempt, value: Any) -> Any: ...

    step.__annotations__.update({"value": of, "return": of})
    declared = Agent("a").step(step)
    with pytest.raises(InvalidInput, match="step step: "):
        declared(value)
    with pytest.raises(InvalidInput, match="step step: result"):
        declared.signature.encode_result(value)


def test_nan_hidden_in_a_model_is_refused() -> None:
    class Model(pydantic.BaseModel):
        price: float | None

    class Row(msgspec.Struct):
        price: float | None

    with pytest.raises(InvalidInput, match="nan"):
        take(Model(price=math.nan))
    with pytest.raises(InvalidInput, match="nan"):
        take([Row(math.nan)])


def test_a_class_without_a_json_form_is_refused_with_the_remedy() -> None:
    class Connection: ...

    def step(attempt: Attempt, to: Connection) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"step step: parameter to .*Connection, which cannot be read back .* a dataclass"
    ):
        Agent("a").step(step)
    with pytest.raises(InvalidInput, match=r"a .*Connection has no JSON form; use a dataclass, msgspec\.Struct"):
        take(Connection())


@dataclass
class Holder:
    name: str
    inside: list[object] | None = None
    again: "Holder | None" = None


@pytest.mark.parametrize("of", [object, list[object], dict[str, object], Holder, complex, Exception], ids=str)
def test_a_type_that_cannot_be_read_back_is_refused_where_it_is_declared(of: Any) -> None:
    def flow(value: Any) -> Any: ...

    for name in ("value", "return"):
        flow.__annotations__ = {"value": Any, "return": Any, name: of}
        with pytest.raises(DefinitionError, match=r"of flow|flow: .* cannot be read back from JSON: use Any"):
            Signature(flow, "workflow flow")


def test_types_that_say_themselves_how_they_are_read_are_taken() -> None:
    @workflow
    async def flow(one: Customer, many: dict[str, list[Customer]], any_: Any, bare: list) -> None: ...  # type: ignore[type-arg]


def test_types_of_a_function_resolve_inside_of_it() -> None:
    @dataclass
    class Local:
        number: int

    @Agent("a").step
    def step(attempt: Attempt, value: "Local") -> "list[Local]": ...

    assert step.signature.arguments(step(Local(1)).arguments) == {"value": Local(1)}
    assert step.signature.result('[{"number":2}]') == [Local(2)]

    @workflow
    async def flow(value: "Local") -> "Local": ...

    assert flow.signature.arguments(flow(Local(1)).arguments) == {"value": Local(1)}


# --- results
def test_a_result_is_proved_against_its_type_before_it_is_recorded() -> None:
    assert charge.signature.encode_result(5) == "5"
    for bad in ("five", None, 1.5, math.nan, 10**5000):
        with pytest.raises(InvalidInput, match="result"):
            charge.signature.encode_result(bad)


def test_a_step_without_a_declared_result_gives_any_json() -> None:
    def step(attempt: Attempt):  # type: ignore[no-untyped-def]
        ...

    declared = Agent("a").step(step)
    assert declared.signature.encode_result({"a": 1}) == '{"a":1}'


def test_live_and_replay_see_the_same_result() -> None:
    """A tuple in an untyped result is a list, also on the first run."""
    assert take.signature.result(take.signature.encode_result((1, 2))) == [1, 2]


# --- ids
@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb", "\t", "\x00", "\x7f", "\x85", "\ud800", None, 5, b"a"])
def test_an_id_that_is_empty_too_long_or_holds_control_characters_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="task_id"):
        check_id(value, "task_id")
    with pytest.raises(InvalidInput, match="task_id"):
        App("shop").task(value)


@pytest.mark.parametrize("value", ["a", "x" * ID_LENGTH_MAX, "order 1001/ä-😀", "#1", " "])
def test_any_other_text_is_an_id(value: str) -> None:
    assert check_id(value, "task_id") == value


@pytest.mark.parametrize("value", ["", "x" * 256, "a\x00", 5])
async def test_submit_refuses_a_bad_task_id(value: Any) -> None:
    shop = App("shop", agents=[remote])
    with pytest.raises(InvalidInput, match="task_id"):
        await shop.submit(charge(1), task_id=value)


@pytest.mark.parametrize("priority", [-1, 10, 5.0, True, "5", None])
async def test_submit_refuses_a_bad_priority(priority: Any) -> None:
    with pytest.raises(InvalidInput, match=r"priority is .*; it must be a whole number from 0 to 9"):
        await App("shop", agents=[remote]).submit(charge(1), priority=priority)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "1", 10**12])
async def test_submit_refuses_a_bad_delay(delay: Any) -> None:
    with pytest.raises(InvalidInput, match="delay"):
        await App("shop", agents=[remote]).submit(charge(1), delay=delay)


async def test_submit_refuses_what_is_not_in_the_app() -> None:
    @workflow
    async def stranger() -> None: ...

    shop = App("shop", agents=[Agent("a")])
    with pytest.raises(InvalidInput, match="workflow 'stranger' is not in App shop; it has none"):
        await shop.submit(stranger())
    with pytest.raises(InvalidInput, match="step 'charge' of Agent 'remote' is not in App shop: add the Agent to it"):
        await shop.submit(charge(1))
    with pytest.raises(InvalidInput, match="submit takes the call of a workflow or step"):
        await shop.submit(charge)  # type: ignore[arg-type]


# --- error texts
@given(texts)
def test_an_error_text_always_becomes_recordable(text: str) -> None:
    shown = recordable_text(text)
    shown.encode()
    assert "\0" not in shown
    if text.isprintable():
        assert shown == text


def test_an_error_text_that_is_too_long_is_cut_and_says_so() -> None:
    shown = recordable_text("x" * 10_000)
    assert len(shown) == TEXT_LENGTH_MAX
    assert shown.endswith("x [cut, 10,000 characters]")
    assert recordable_text(shown) == shown
    assert recordable_text("x" * TEXT_LENGTH_MAX) == "x" * TEXT_LENGTH_MAX


def test_details_that_cannot_be_recorded_are_shown_as_text() -> None:
    assert recordable_details({"a": Decimal(1)}) == {"a": "1"}
    assert recordable_details(None) is None
    shown = recordable_details({"a": math.nan})
    assert shown["unrecordable"] == "{'a': nan}"
    assert "use None or a text" in shown["why"]
    assert "unrecordable" in recordable_details(object())
    assert recordable_details([10**5000])["unrecordable"] == "a list"


def test_an_exception_as_text_has_its_type_and_what_it_says() -> None:
    assert error_text(ValueError("x\0")) == "ValueError: x\\x00"
    assert error_text(ValueError()) == "ValueError"


@pytest.mark.parametrize("kind", [Transient, Permanent])
def test_a_step_error_may_be_given_anything_and_keeps_it_as_text(kind: type[StepError]) -> None:
    error = kind(ValueError("declined"), code=402)  # type: ignore[arg-type]
    assert (error.message, error.code) == ("declined", "402")
    assert kind("no", code=None).code == ""  # type: ignore[arg-type]
    assert kind().message == kind.__doc__.split("\n")[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (0, 0),
        (2.5, 2.5),
        (timedelta(minutes=1), 60),
        (math.nan, None),
        (-1, None),
        (math.inf, RETRY_AFTER_SECONDS_MAX),
        (1e300, RETRY_AFTER_SECONDS_MAX),
    ],
)
def test_retry_after_from_a_service_is_made_usable(given: Any, kept: float | None) -> None:
    assert Transient(retry_after=given).retry_after == kept


def test_a_transient_says_whether_the_service_takes_no_calls() -> None:
    assert step_error_fields(Transient(unavailable=True)).unavailable
    assert not step_error_fields(Transient()).unavailable
    assert not step_error_fields(Permanent()).unavailable


def test_retry_after_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Transient: retry_after is '5'; give seconds or a timedelta"):
        Transient(retry_after="5")  # type: ignore[arg-type]
