"""What an operator is told to look for when code asks with other arguments than were recorded."""

import json
import random
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.replay_hints import suggest_source

NOW, LATER = datetime(2026, 11, 20, 14, 15, 31, 5, UTC), datetime(2026, 11, 20, 14, 15, 32, 7, UTC)
UNIX = 1_795_457_966.9357736
ONE, OTHER = uuid.UUID(int=2**127 + 5), uuid.UUID(int=2**126 + 7)


def hinted(one: Any, other: Any) -> str:
    return suggest_source(json.dumps(one), json.dumps(other))


def named(text: str) -> list[str]:
    return [name for name in ("arriero.now()", "arriero.uuid()", "arriero.random()") if name in text]


@pytest.mark.parametrize(
    ("one", "other", "take"),
    [
        (NOW.isoformat(), LATER.isoformat(), "arriero.now()"),
        (str(NOW), str(LATER), "arriero.now()"),
        ("2026-11-20T14:15:31Z", "2026-11-20T14:15:32.25Z", "arriero.now()"),
        ("2026-11-20", "2026-11-21", "arriero.now()"),
        ("14:15:31", "14:15:32", "arriero.now()"),
        (f"receipt of {NOW:%Y-%m-%d %H:%M:%S}", f"receipt of {LATER:%Y-%m-%d %H:%M:%S}", "arriero.now()"),
        (UNIX, UNIX + 1, "arriero.now()"),
        (int(UNIX), int(UNIX) + 1, "arriero.now()"),
        (int(UNIX) * 10**9, int(UNIX) * 10**9 + 1, "arriero.now()"),
        (str(ONE), str(OTHER), "arriero.uuid()"),
        (ONE.hex, OTHER.hex, "arriero.uuid()"),
        (f"order-{ONE}", f"order-{OTHER}", "arriero.uuid()"),
        (0.8444218515250481, 0.7579544029403025, "arriero.random()"),
    ],
)
def test_times_uuids_and_random_numbers_are_known_by_their_looks(one: Any, other: Any, take: str) -> None:
    text = hinted({"order": "1001", "at": one}, {"order": "1001", "at": other})
    assert named(text) == [take]
    assert text.startswith("if at is a")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("good", "expired"),
        (42, 43),
        (9.99, 10.49),
        (True, False),
        (None, "2026-11-20"),
        ("2026-11-20", 5),
        ("order 1 of 2026-11-20", "order 2 of 2026-11-21"),  # something else differs, too
        ([1, 2], [1]),
        (1_500_000_000, 3),
        (0.8444218515250481, 1),
    ],
)
def test_values_that_a_person_may_have_changed_give_no_hint(one: Any, other: Any) -> None:
    assert hinted({"at": one}, {"at": other}) == ""


def test_where_it_is_inside_of_a_value_is_said() -> None:
    one, other = ({"order": {"lines": [{"at": "x"}, {"at": str(at)}]}} for at in (NOW, LATER))
    assert hinted(one, other).startswith("if order.lines[1].at is a time")
    assert hinted(0.8444218515250481, 0.7579544029403025).startswith("if it is a random number")


def test_each_kind_is_told_once_with_its_first_place() -> None:
    one = {"a": str(NOW), "b": str(NOW), "c": str(ONE)}
    other = {"a": str(LATER), "b": str(LATER), "c": str(OTHER)}
    text = hinted(one, other)
    assert named(text) == ["arriero.now()", "arriero.uuid()"]
    assert "if b is" not in text


def test_no_value_is_in_the_hint() -> None:
    draw = random.Random(7)
    one, other = (
        {"secret": f"{uuid.UUID(int=draw.getrandbits(128))}", "at": str(at), "key": draw.random()}
        for at in (NOW, LATER)
    )
    text = hinted(one, other)
    assert len(named(text)) == 3
    assert not [value for value in (*one.values(), *other.values()) if str(value) in text]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(values, values)
def test_any_two_values_are_compared_without_an_error(one: Any, other: Any) -> None:
    assert isinstance(hinted(one, other), str)
    assert hinted(one, one) == ""


def test_what_is_no_json_gives_no_hint() -> None:
    assert suggest_source("{", "{}") == ""
