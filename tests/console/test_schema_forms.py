"""Forms made from JSON Schema: what is sent back unchanged is the same value, and what is changed is read by its type."""

import enum
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from console_pages import PageReader
from hypothesis import given
from hypothesis import strategies as st

from arriero import InvalidInput
from arriero.server.console.rendering import get_environment
from arriero.server.console.schema_forms import (
    INPUTS_MAX,
    VALUE_BYTES_MAX,
    ValueField,
    build_value_fields,
    fill_in,
    list_inputs,
    read_value,
)


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Address(msgspec.Struct):
    """Where it goes."""

    street: str
    zip_code: Annotated[int, msgspec.Meta(ge=1, description="Of the town.")] = 5


class Order(msgspec.Struct, kw_only=True):
    id: str
    to: Address
    other: Address | None
    size: Size
    speed: Literal["slow", "fast"]
    is_gift: bool
    price: Decimal
    at: datetime
    quantities: list[int]
    marks: dict[str, int]
    either: int | str
    weight: float | None = None
    within: timedelta | None = None
    words: set[str] = set()
    anything: Any = None


ORDER = Order(
    id="o-1",
    to=Address("Main Street"),
    other=None,
    size=Size.LARGE,
    speed="fast",
    is_gift=True,
    price=Decimal("12.50"),
    at=datetime(2026, 11, 20, tzinfo=UTC),
    quantities=[1, 2],
    marks={"a": 1},
    either="x",
    words={"red"},
)


class Parcel(pydantic.BaseModel):
    weight: int
    code: pydantic.SecretStr = pydantic.SecretStr("")
    inner: "Parcel | None" = None
    size: Size = Size.SMALL


def schema_of(of: Any) -> bytes:
    return msgspec.json.encode(of.model_json_schema() if hasattr(of, "model_fields") else msgspec.json.schema(of))


def index(field: ValueField) -> dict[str, ValueField]:
    return {field.name: field, **{name: one for inner in field.fields for name, one in index(inner).items()}}


def send(field: ValueField, **changed: str) -> Any:
    """Send a form with some inputs changed; ``to__street`` is ``value/to/street``."""
    named = {f"value/{name.replace('__', '/')}": (text,) for name, text in changed.items()}
    assert named.keys() <= index(field).keys()
    sent = read_value(field, {**list_inputs(field), **named})
    return None if sent is None else json.loads(sent)


def test_a_form_has_an_input_for_each_type_and_json_for_the_others() -> None:
    form = index(build_value_fields(schema_of(Order), msgspec.json.encode(ORDER)))
    kinds = {name.removeprefix("value/"): field.kind for name, field in form.items()}
    assert kinds == {
        "value": "group",
        "id": "text",
        "to": "group",
        "to/street": "text",
        "to/zip_code": "number",
        "other": "group",
        "other/street": "text",
        "other/zip_code": "number",
        "size": "choice",
        "speed": "choice",
        "is_gift": "flag",
        "price": "text",
        "at": "text",
        "quantities": "lines",
        "marks": "json",
        "either": "json",
        "weight": "number",
        "within": "text",
        "words": "lines",
        "anything": "json",
    }
    assert form["value/to/zip_code"].label == "Zip code"
    assert form["value/to/zip_code"].help == "Of the town. Allowed: at least 1. Default: 5."
    assert form["value/size"].choices == (('"large"', "large"), ('"small"', "small"))


def test_a_form_that_is_sent_back_unchanged_gives_the_same_value() -> None:
    recorded = msgspec.json.encode(ORDER)
    assert send(build_value_fields(schema_of(Order), recorded)) == json.loads(recorded)


def test_what_is_changed_in_a_form_is_read_by_its_type() -> None:
    form = build_value_fields(schema_of(Order), msgspec.json.encode(ORDER))
    changed = send(
        form,
        id="o-2",
        to__zip_code="7",
        other="given",
        other__street="Side Street",
        size='"small"',
        is_gift="",
        quantities="3\r\n\r\n4\r\n",
        marks='{"b": 2}',
        weight="1.5",
        words="",
    )
    order = msgspec.convert(changed, Order)
    assert (order.id, order.to.zip_code, order.other) == ("o-2", 7, Address("Side Street"))
    assert (order.size, order.is_gift, order.quantities, order.marks) == (Size.SMALL, False, [3, 4], {"b": 2})
    assert (order.weight, order.words) == (1.5, set())


def test_an_empty_form_of_a_new_value_leaves_out_what_may_be_left_out_and_asks_for_the_rest() -> None:
    form = build_value_fields(schema_of(Address))
    assert send(form, street="Main Street") == {"street": "Main Street"}
    blank = build_value_fields(schema_of(Order))
    with pytest.raises(InvalidInput, match="Zip code: 'x' is not a whole number"):
        send(blank, to__street="a", to__zip_code="x")
    with pytest.raises(InvalidInput, match="Size: it is empty; choose one"):
        send(blank, to__street="a", other="null")


@pytest.mark.parametrize(
    ("of", "text", "says"),
    [
        (int, "1.5", "'1.5' is not a whole number"),
        (int, "1_000", "'1_000' is not a whole number"),
        (int, "", "it is empty; give a whole number"),
        (float, "nan", "'nan' is not a number, like 12 or 0.5"),
        (float, "1e999", "'1e999' is not a number, like 12 or 0.5"),
        (Size, '"huge"', "is none of its choices"),
        (str, "a\u202eb", "characters that cannot be seen"),
        (dict[str, int], "{", "this is not JSON"),
        (dict[str, int], '{"a": NaN}', "NaN is not JSON"),
        (dict[str, str], '{"a": "\\ud800"}', "half a character"),
        (dict[str, int], "[" * 100_000, "this is not JSON"),
    ],
)
def test_an_error_names_the_field_and_what_it_must_be(of: Any, text: str, says: str) -> None:
    form = build_value_fields(schema_of(of), label="Answer")
    with pytest.raises(InvalidInput, match=f"Answer: .*{says}"):
        read_value(form, {"value": (text,)})


def test_a_value_alone_has_one_input() -> None:
    assert build_value_fields(schema_of(bool), label="Approved").kind == "flag"
    assert json.loads(read_value(build_value_fields(schema_of(bool)), {}) or b"") is False
    assert json.loads(read_value(build_value_fields(schema_of(bool | None)), {"value": ("null",)}) or b"") is None
    assert read_value(build_value_fields(schema_of(int), is_required=False), {"value": ("",)}) is None


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (str, "a\u202eb"),
        (str, "a\r\nb"),
        (str, "nul\0"),
        (str | None, ""),
        (list[str], ["", "a"]),
        (list[str], ["two\nlines"]),
        (int, 2**80),
        (int, "what is no number"),
        (float, 1e100),
        (Address, {"street": "a", "of_an_older_release": 1}),
        (Address, None),
        (Address | None, {"street": "a"}),
        (list[Address], [{"street": "a", "zip_code": 1}]),
        (Size, "of an older release"),
        (Literal[1, 2], 1),
        (Literal["a", "b"] | None, None),
        (Any, {"deep": [[["x"]]]}),
    ],
)
def test_a_value_that_its_input_could_not_give_back_is_shown_as_json(of: Any, value: Any) -> None:
    recorded = json.dumps(value).encode()
    form = build_value_fields(schema_of(of), recorded)
    sent = read_value(form, list_inputs(form))
    assert sent is not None
    assert json.loads(sent) == value


def test_what_cannot_be_seen_is_escaped_in_json() -> None:
    assert build_value_fields(schema_of(str), '"a\u202eb"'.encode()).value == '"a\\u202eb"'


def test_a_secret_and_a_type_that_leads_to_itself_are_json() -> None:
    form = index(build_value_fields(schema_of(Parcel), b'{"weight": 1, "inner": {"weight": 2}}'))
    assert form["value/code"].kind == "json"
    assert form["value/inner/weight"].value == "2"
    assert form["value/inner/inner"].kind == "json"


@pytest.mark.parametrize("schema", [None, b"", b"{", b"[]", b"true", b'{"$ref": "#/$defs/none"}', b'{"$ref": "#"}'])
def test_what_is_no_schema_stands_for_any_value(schema: bytes | None) -> None:
    form = build_value_fields(schema, b'{"a":1}')
    assert form.kind == "json"
    assert send(form) == {"a": 1}


def test_a_large_value_is_not_shown_for_editing_and_stays_as_it_is() -> None:
    form = build_value_fields(schema_of(str), b'"' + b"x" * VALUE_BYTES_MAX + b'"')
    assert "too large to be edited here" in form.help
    assert read_value(form, list_inputs(form)) is None


def test_a_form_has_a_limit_of_inputs() -> None:
    members = {f"m{number}": {"type": "integer"} for number in range(3 * INPUTS_MAX)}
    form = build_value_fields(json.dumps({"type": "object", "properties": members}).encode())
    assert sum(field.kind == "number" for field in form.fields) == INPUTS_MAX
    assert form.fields[-1].kind == "json"


def test_members_of_an_edited_value_cannot_be_left_out() -> None:
    form = build_value_fields(schema_of(Address), b'{"street":"a","zip_code":7}', is_edit=True)
    with pytest.raises(InvalidInput, match="Zip code: it is empty"):
        send(form, zip_code="")


def test_a_form_that_was_refused_shows_what_was_sent() -> None:
    form = build_value_fields(schema_of(Address), b'{"street":"a","zip_code":7}')
    shown = index(fill_in(form, {"value/street": ("b",), "value/zip_code": ("x",)}))
    assert (shown["value/street"].value, shown["value/zip_code"].value) == ("b", "x")


SCALARS: Mapping[str, Any] = {
    '{"type":"string"}': st.text(),
    '{"type":["string","null"]}': st.none() | st.text(),
    '{"type":"integer"}': st.integers(),
    '{"anyOf":[{"type":"number"},{"type":"null"}]}': st.none() | st.floats(allow_nan=False, allow_infinity=False),
    '{"type":"boolean"}': st.booleans(),
    '{"enum":["a",1,null]}': st.sampled_from(["a", 1, None]),
    '{"type":"array","items":{"type":"string"}}': st.lists(st.text(max_size=5), max_size=4),
    "{}": st.recursive(st.none() | st.text(max_size=3) | st.integers(), st.lists, max_leaves=4),
}


@given(st.data())
def test_any_value_comes_back_from_a_form_that_nobody_has_changed(data: st.DataObject) -> None:
    members = data.draw(st.dictionaries(st.text(max_size=8), st.sampled_from(sorted(SCALARS)), max_size=5))
    required = [name for name in members if data.draw(st.booleans())]
    is_there = {name: name in required or data.draw(st.booleans()) for name in members}
    value = {name: data.draw(SCALARS[of]) for name, of in members.items() if is_there[name]}
    properties = {name: json.loads(of) for name, of in members.items()}
    schema = json.dumps({"type": "object", "properties": properties, "required": required}).encode()
    form = build_value_fields(schema, json.dumps(value).encode())
    sent = read_value(form, list_inputs(form))
    assert sent is not None
    assert json.loads(sent) == value


def test_a_page_shows_the_inputs_with_labels_help_and_hostile_names_as_text() -> None:
    hostile = {"<script>\u202e": {"type": "string", "description": "<b>bold</b>"}, 'a"b/c~d': {"type": "boolean"}}
    schema = json.dumps({"type": "object", "properties": hostile, "required": ['a"b/c~d']}).encode()
    field = build_value_fields(schema, json.dumps({"<script>\u202e": "\n</textarea>", 'a"b/c~d': True}).encode())
    template = get_environment().from_string(
        '{% from "value_field.html" import value_field %}<form>{{ value_field(field) }}</form>'
    )
    text = template.render(field=field)
    assert "<script>" not in text
    assert "<b>" not in text
    assert "\\u202e" in text
    form = PageReader(text).forms[0]
    assert {name: (value.replace("\n", "\r\n"),) for name, value in form.fields.items()} == list_inputs(field)
