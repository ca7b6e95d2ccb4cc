"""A value reaches a step as it was given, with one JSON text in all processes, or is refused by name before it is recorded."""

import math
import random
import re
import threading
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from django.utils.safestring import SafeString
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typed_bodies import LABELS, MAKERS, Box, Colour, Item, Line, Order, Parcel, Size

from arriero import Agent, App, Attempt, DefinitionError, InvalidInput, testing, workflow
from arriero.declare.signature import Signature
from arriero.declare.steps import Step

BERLIN = ZoneInfo("Europe/Berlin")
T = TypeVar("T")


def declare(of: Any, returns: Any = None) -> Step[..., Any]:
    """A step that takes one value, and returns one."""

    def step(attempt: Attempt, value: Any) -> Any: ...

    step.__annotations__.update({"value": of, "return": of if returns is None else returns})
    return Agent("a").step(step)


def pass_through(of: Any, value: Any) -> Any:
    """What the step gets of the value; its result comes back alike."""
    step = declare(of)
    got = step.signature.arguments(step(value).arguments)["value"]
    assert repr(step.signature.result(step.signature.encode_result(value))) == repr(got)
    return got


def refusal(of: Any, value: Any) -> str:
    step = declare(of, Any)
    with pytest.raises(InvalidInput) as refused:
        step(value)
    return str(refused.value)


# --- round trips
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(MAKERS)), st.randoms(use_true_random=False))
def test_a_value_of_any_supported_type_comes_back_equal_and_is_written_alike_again(name: str, r: random.Random) -> None:
    of, make = MAKERS[name]
    value = make(r)
    step = declare(of)
    text = step(value).arguments
    got = step.signature.arguments(text)["value"]
    assert type(got) is type(value)
    assert got == value
    assert (
        repr(got) == repr(value)
        or isinstance(value, set | frozenset | dict)
        or hasattr(value, "__dict__")
        or got == value
    )
    assert step(got).arguments == text
    assert step.signature.encode_result(got) == step.signature.encode_result(value)


@pytest.mark.parametrize(
    "members",
    [
        LABELS,
        tuple(Colour),
        tuple(Line(label, frozenset(LABELS)) for label in LABELS),
        tuple(Box(label) for label in LABELS),
        tuple(frozenset(LABELS[:count]) | {str(count)} for count in range(6)),
        tuple((frozenset({label}), 1) for label in LABELS),
        tuple(Item(itemId=label, labels=frozenset(LABELS)) for label in LABELS),
        (1, 2.5, "a", None, (1, "x"), Colour.RED),
        (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda members: type(members[0]).__name__,
)
def test_the_text_of_a_set_does_not_depend_on_the_order_of_its_members(members: tuple[Any, ...]) -> None:
    step = declare(Any)
    one = set(members)
    for wrap in (lambda s: s, lambda s: [{"a": s}], frozenset, lambda s: Order("o", s), lambda s: (1, {2: s})):
        texts = {step(wrap(one)).arguments, step(wrap(set(reversed(members)))).arguments}
        assert len(texts) == 1


def test_the_sets_of_a_model_do_not_depend_on_the_order_of_their_members() -> None:
    class Holder(pydantic.BaseModel):
        inside: Any
        many: list[dict[str, frozenset[Colour] | None]]
        line: Line
        aliased: frozenset[Item] = pydantic.Field(alias="Aliased")

    step, texts = declare(Holder), set()
    for labels in (LABELS, LABELS[::-1]):
        items = [Item(itemId=label, labels=frozenset(labels)) for label in labels]
        many = [{"b": frozenset(list(Colour)[:: 1 if labels is LABELS else -1]), "c": None}]
        holder = Holder(
            inside=[{"x": set(labels)}], many=many, line=Line("x", frozenset(labels)), Aliased=frozenset(items)
        )
        texts.add(step(holder).arguments)
    assert len(texts) == 1


# --- pydantic models
class Aliased(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")
    inner: Item | None = None


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)

    order_id: str = pydantic.Field(alias="orderId")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    day: datetime
    number: UUID
    price: Decimal
    seats: tuple[int, int]
    labels: set[str]
    colour: Colour


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    net: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return 2 * self.net


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    known: int


class Kept(pydantic.RootModel[set[str]]): ...


class Generically(pydantic.BaseModel, Generic[T]):
    value: T


class Private(pydantic.BaseModel):
    value: Any
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)


class Shown(pydantic.BaseModel):
    """Writes its secret by itself."""

    password: pydantic.SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def show(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


class Chosen(pydantic.BaseModel):
    a: str = pydantic.Field(validation_alias=pydantic.AliasChoices("A", "a"))


MODELS: list[pydantic.BaseModel] = [
    Aliased(orderId="7", inner=Item(itemId="1", labels=frozenset(LABELS))),
    ByName(orderId="7"),
    Strict(
        day=datetime(2026, 1, 2, tzinfo=UTC),
        number=UUID(int=7),
        price=Decimal("1.10"),
        seats=(1, 2),
        labels=set(LABELS),
        colour=Colour.RED,
    ),
    Computed(net=2),
    Open(known=1, other=[1, {"a": None}]),  # type: ignore[call-arg]
    Kept(set(LABELS)),
    Generically[int](value=3),
    Shown(password=pydantic.SecretStr("4111")),
    Chosen(A="x"),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_is_written_in_the_form_that_it_reads(model: pydantic.BaseModel) -> None:
    got = pass_through(type(model), model)
    assert got == model
    assert type(got) is type(model)


def test_a_model_is_written_by_its_names_if_it_reads_them_and_else_by_its_aliases() -> None:
    assert declare(Aliased)(Aliased(orderId="7")).arguments == '{"value":{"inner":null,"orderId":"7"}}'
    assert declare(ByName)(ByName(orderId="7")).arguments == '{"value":{"order_id":"7"}}'


def test_private_attributes_and_fields_of_any_type_are_no_difference() -> None:
    assert pass_through(Private, Private(value=(1, 2))).value == [1, 2]


class Masked(pydantic.BaseModel):
    password: pydantic.SecretStr


class Hidden(pydantic.BaseModel):
    shown: int
    hidden: int = pydantic.Field(default=0, exclude=True)


class TwoNames(pydantic.BaseModel):
    a: str = pydantic.Field(validation_alias="in", serialization_alias="out")


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    breed: str = "collie"


class Beast(pydantic.BaseModel):
    name: str


class Hound(Beast):
    breed: str = "collie"


class Kennel(pydantic.BaseModel):
    beasts: list[Beast]


class Base(msgspec.Struct):
    a: int


class Derived(Base):
    b: int = 2


class Named(TypedDict):
    name: str


@attrs.define
class Underscored:
    a: int
    _b: int = 1


@dataclass
class Doubling:
    value: int

    def __post_init__(self) -> None:
        self.value *= 2


@dataclass
class Loose:
    """Equal to all of its kind."""

    inner: Animal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Timed:
    name: str
    at: datetime
    notes: list[str] = field(default_factory=list, compare=False)


REFUSED: list[tuple[Any, Any, str]] = [
    (Masked, Masked(password=pydantic.SecretStr("4111")), r"value\.password is a SecretStr, .* mask: give the name of"),
    (Any, [Masked(password=pydantic.SecretStr("4111"))], r"value\[0\]\.password is a SecretStr"),
    (dict[str, Any], {"a": {"b": Hidden(shown=1, hidden=5)}}, r"value\['a'\]\['b'\]\.hidden has exclude=True"),
    (Hidden, Hidden(shown=1, hidden=5), r"value\.hidden has exclude=True and is not recorded: remove that"),
    (TwoNames, TwoNames(**{"in": "x"}), r"value: field a of TwoNames is written as 'out' and not read .* populate_by_name"),
    (Animal, Dog("rex"), r"value is a Dog, which is read back as an Animal without breed: declare its type as Dog"),
    (list[Animal], [Animal("a"), Dog("rex")], r"value\[1\] is a Dog"),
    (dict[str, Animal | None], {"a": Dog("rex")}, r"value\['a'\] is a Dog"),
    (Beast, Hound(name="rex"), r"value is a Hound, which is read back as a Beast without breed"),
    (Kennel, Kennel(beasts=[Hound(name="rex")]), r"value\.beasts\[0\] is a Hound"),
    (Base, Derived(1), r"value is a Derived, which is read back as a Base without b"),
    (Loose, Loose(Dog("rex")), r"value\.inner is a Dog"),
    (Named, {"name": "a", "age": 3}, r"value has the key 'age', which its type does not have"),
    (Animal, {"name": "a", "breed": "x"}, r"value has the key 'breed', which Animal does not have: leave it out"),
    (Underscored, Underscored(1, b=7), r"value\._b"),
    (Doubling, Doubling(2), r"value\.value does not come back"),
    (str, datetime(2024, 1, 1, tzinfo=UTC), r"value is a datetime, which is read back as a str: declare its type as datetime"),
    (str, UUID(int=1), "value is an UUID, which is read back as a str"),
    (str, Colour.RED, "value is a Colour, which is read back as a str"),
    (list[str], {"a", "b"}, "value is a set, which is read back as a list"),
    (datetime, datetime(2024, 10, 27, 2, 30, fold=1), "same time: give it a time zone"),
    (Timed, Timed("a", datetime(2024, 10, 27, 2, 30, fold=1)), r"value\.at .*same time: give it a time zone"),
    (set[datetime], {datetime(2024, 10, 27, 2, 30, fold=1)}, "a member of value .*same time"),
    (datetime, datetime(1880, 1, 1, tzinfo=BERLIN), "same time: give it a time zone with an offset of whole minutes"),
    (time, time(1, 2, tzinfo=BERLIN), "same time: give it a time zone"),
    (float, math.nan, "holds nan"),
    (set[float], {math.inf}, "holds inf"),
    (float, 2**53 + 1, "value is an int, which is read back as a float"),
    (dict[int, str], {1: "a", "1": "b"}, "two keys that are the same text"),
    (dict[str, int], {datetime(2024, 1, 1): 1}, "a key of value is a datetime, which is read back as a str"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "value", "named"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_a_value_that_would_be_read_back_differently_is_refused_with_its_field_and_the_remedy(
    of: Any, value: Any, named: str
) -> None:
    said = refusal(of, value)
    assert re.search(named, said), said
    assert "4111" not in said
    assert said.startswith("arguments of step step")


class SafeText(str): ...


class Count(int): ...


class Measure(float): ...


class Stamp(datetime): ...


class Number(UUID): ...


class Price(Decimal): ...


class Raw(bytes): ...


class Scalar:
    """As the scalars of NumPy are."""

    ndim = 0
    dtype = "float32"

    def __init__(self, plain: Any, equal: bool = True) -> None:
        self.plain = plain
        self.equal = equal

    def item(self) -> Any:
        return self.plain

    def __eq__(self, other: object) -> bool:
        return self.equal and bool(self.plain == other)

    __hash__ = None  # type: ignore[assignment]


NORMALISED: list[tuple[Any, Any, Any]] = [
    (str, SafeText("title"), "title"),
    (str, SafeString("<b>"), "<b>"),
    (int, Count(3), 3),
    (int, Size.LARGE, 3),
    (float, Measure(1.5), 1.5),
    (float, 3, 3.0),
    (Decimal, Price("1.10"), Decimal("1.10")),
    (UUID, Number(int=3), UUID(int=3)),
    (bytes, Raw(b"x"), b"x"),
    (bytes, bytearray(b"x"), b"x"),
    (datetime, Stamp(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)),
    (float, Scalar(0.5), 0.5),
    (bool, Scalar(True), True),
    (int, Scalar(7), 7),
    (list[float], [Measure(1.5), Scalar(2.5)], [1.5, 2.5]),
    (dict[str, str], {SafeText("k"): SafeText("v")}, {"k": "v"}),
    (dict[str, int], Counter("aab"), {"a": 2, "b": 1}),
    (dict[str, list[int]], defaultdict(list, a=[1]), {"a": [1]}),
    (dict[str, int], OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    (Sequence[int], (1, 2), [1, 2]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[str], {SafeText("a")}, {"a"}),
    (Animal, {"name": "rex"}, Animal("rex")),
    (date, "2026-01-02", date(2026, 1, 2)),
    (Decimal, Decimal("NaN"), Decimal("NaN")),
    (Annotated[int, msgspec.Meta(gt=0)], Count(3), 3),
    (Animal | None, None, None),
    (Any, (1, {2}), [1, [2]]),
    (Any, SafeText("x"), "x"),
]


@pytest.mark.parametrize(("of", "value", "plain"), NORMALISED, ids=map(str, range(len(NORMALISED))))
def test_a_value_that_equals_a_plain_one_is_recorded_as_the_plain_one(of: Any, value: Any, plain: Any) -> None:
    got = pass_through(of, value)
    assert type(got) is type(plain)
    assert got == plain or str(got) == str(plain)


def test_a_scalar_that_does_not_equal_its_plain_value_is_refused() -> None:
    assert "does not equal the float that it would be recorded as" in refusal(float, Scalar(0.5, equal=False))
    assert "has no JSON form" in refusal(Any, deque([1]))


def test_a_time_in_a_zone_is_the_same_instant_with_its_offset_on_both_sides_of_a_change_of_time() -> None:
    for fold in (0, 1):
        given_at = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold)
        got = pass_through(datetime, given_at)
        assert (got.timestamp(), got.utcoffset()) == (given_at.timestamp(), given_at.utcoffset())


# --- results
@pytest.mark.parametrize(
    ("of", "named"),
    [
        (Masked, "result: field password of Masked is a secret, which is recorded as a mask"),
        (list[Masked | None], "field password of Masked is a secret"),
        (dict[str, list[Hidden]], "result: field hidden of Hidden has exclude=True"),
        (TwoNames, "result: field a of TwoNames is written as 'out' and not read by that name"),
    ],
    ids=str,
)
def test_a_result_that_its_type_cannot_bring_back_is_refused_where_the_step_is_declared(of: Any, named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        declare(Any, of)
    declare(of, Any)  # as an argument, its values are refused one by one


def test_a_secret_that_the_model_writes_itself_is_no_reason_to_refuse_its_type() -> None:
    declare(Shown)


def test_a_result_that_is_read_back_differently_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="result of step step: it is a Dog, which is read back as an Animal"):
        declare(Animal).signature.encode_result(Dog("rex"))


def test_a_comparison_that_fails_is_a_refusal_and_no_traceback() -> None:
    @dataclass
    class Bad:
        inner: list[int]

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(InvalidInput, match="cannot be compared with what was read back: RuntimeError: no"):
        declare(Any)(Bad([]))


async def test_checkpoints_and_the_state_of_convoys_refuse_what_is_not_read_back() -> None:
    agent = Agent("a")

    @agent.step
    async def save(attempt: Attempt) -> str:
        try:
            await attempt.checkpoint({"login": Masked(password=pydantic.SecretStr("4111"))})
        except InvalidInput as error:
            return str(error)
        return "kept"

    @workflow
    async def flow() -> str:
        return await save()

    async with testing.running(App("a", agents=[agent], workflows=[flow])) as world:
        said = await (await world.app.submit(flow())).result()
    assert "checkpoint of save: it['login'].password is a SecretStr" in said


# --- replay
def test_another_text_of_the_same_arguments_is_no_disagreement() -> None:
    def flow(parcel: Parcel, order: Order) -> None: ...

    signature = Signature(flow, "workflow flow")
    asked = signature.bind((Parcel(labels={"a", "b"}), Order("o", {Line("x")})), {})
    older = '{"order":{"id":"o","lines":[{"article":"x"}]},"parcel":{"labels":["b","a"]}}'
    assert signature.mean_same(older, asked)
    assert not signature.mean_same(older.replace('"b"', '"c"'), asked)
    assert not signature.mean_same('{"order":{"id":"o"}}', asked)
    assert not signature.mean_same("{", asked)


def test_what_pydantic_warns_of_is_left_to_the_comparison() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refusal(Kennel, Kennel(beasts=[Hound(name="rex")]))


def test_a_type_that_holds_itself_is_compared_to_its_leaves() -> None:
    @dataclass
    class Tree:
        at: datetime | None
        inner: "list[Tree]" = field(default_factory=list)

    Tree.__annotations__["inner"] = list[Tree]
    value = Tree(None, [Tree(datetime(2024, 1, 1, tzinfo=UTC), [Tree(None)])])
    assert pass_through(Tree, value) == value
    assert "value.inner[0].at" in refusal(Tree, Tree(None, [Tree(datetime(2024, 10, 27, 2, 30, fold=1))]))
