"""Tags as values: what is refused, how they are written, and how metrics bound them."""

from typing import Any

import pytest
from core_rows import task_row

from arriero.core.ledger_batches import extend_digest
from arriero.core.tags import OTHER, VALUES_MAX, choose_counted_value
from arriero.errors import InvalidInput
from arriero.model import Instant, TaskRow
from arriero.model.tags import (
    TAGS_MAX,
    check_tag_change,
    check_tags,
    encode_changes,
    encode_tags,
    format_change,
    format_tags,
    gather_tags,
    parse_tag,
    read_tags,
)
from arriero.store.committer import CommitCounts

TOO_MANY = {f"t{number}": "x" for number in range(TAGS_MAX + 1)}
BAD: list[tuple[Any, str]] = [
    ([("tenant", "acme")], "it must map names to texts"),
    ("tenant=acme", "it must map names to texts"),
    ({"": "x"}, "'' is not the name of a tag; use 1 to 64"),
    ({"a" * 65: "x"}, "is not the name of a tag"),
    ({"<script>": "x"}, "'<script>' is not the name of a tag"),
    ({"old-": "x"}, "'old-' is not the name of a tag"),
    ({"a=b": "x"}, "'a=b' is not the name of a tag"),
    ({"a\n": "x"}, "is not the name of a tag"),
    ({"größe": "x"}, "is not the name of a tag"),
    ({7: "x"}, "7 is not the name of a tag"),
    ({"tenant": ["x"] * 1_000}, "tag 'tenant' has the value .*; a tag has one value, a text of 1 to 256 characters"),
    ({"tenant": "x" * 10_240}, "tag 'tenant' has a value of 10,240 characters; a tag has one value"),
    ({"tenant": ""}, "tag 'tenant' has a value of 0 characters"),
    ({"tenant": None}, "tag 'tenant' has the value None"),
    ({"tenant": 7}, "tag 'tenant' has the value 7"),
    ({"tenant": "a\x1b[31m"}, "the value of tag 'tenant' .* control characters are refused"),
    ({"tenant": "\ud800"}, "the value of tag 'tenant' .* control characters are refused"),
    (TOO_MANY, "21 tags; a task has at most 20"),
]


@pytest.mark.parametrize(("tags", "says"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_what_is_no_tag_is_refused_by_its_name_and_the_limit_in_a_short_text(tags: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        check_tags(tags)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", ["acme", "<b>&\"'", "größe ✓", "a=b", "x" * 256, " spaced "])
def test_any_text_without_control_characters_is_a_value(value: str) -> None:
    assert read_tags(encode_tags(check_tags({"tenant": value}))) == {"tenant": value}


def test_they_are_kept_in_the_order_of_their_names_and_none_as_null() -> None:
    assert encode_tags(check_tags({"b": "2", "a": "1"})) == encode_tags({"a": "1", "b": "2"}) == '{"a":"1","b":"2"}'
    assert encode_tags({}) is None
    assert read_tags(None) == {}


@pytest.mark.parametrize("text", ["tenant=acme", "a=b=c", "a/b.c=x"])
def test_a_tag_is_written_with_the_first_equals_sign(text: str) -> None:
    name, value = parse_tag(text)
    assert f"{name}={value}" == text
    assert format_tags({name: value}) == text


@pytest.mark.parametrize("text", ["tenant", "=acme", "tenant=", "a b=c"])
def test_a_word_that_is_no_tag_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_tag(text)


def test_a_name_that_is_given_twice_has_one_value_or_is_refused() -> None:
    assert gather_tags([("a", "1"), ("a", "1"), ("b", "2")]) == {"a": "1", "b": "2"}
    with pytest.raises(InvalidInput, match="tag 'a' is given twice, as '1' and '2'"):
        gather_tags([("a", "1"), ("a", "2")])


@pytest.mark.parametrize(
    ("put", "remove", "says"),
    [
        ({}, (), "no tag is named"),
        ({"a": "1"}, ("a",), "tag 'a' is given a value and removed"),
        ({}, "old", "give a list of the names"),
        ({}, ("old-",), "'old-' is not the name of a tag"),
        ({}, TOO_MANY, "21 tags"),
        ({"a": 1}, (), "tag 'a' has the value 1"),
    ],
    ids=str,
)
def test_a_change_that_is_none_is_refused(put: Any, remove: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        check_tag_change(put, remove)


def test_a_change_is_written_as_one_object_and_read_with_the_old_values() -> None:
    assert encode_changes({"b": "2"}, ("a",)) == '{"a":null,"b":"2"}'
    assert format_change({"a": "1", "c": "3"}, {"b": "2", "c": "4"}) == "a=1 is removed; b=2 is new; c=4 was 3"
    assert format_change({"a": "1"}, {"a": "1"}) == "its tags stay as they were"


def test_the_digest_of_a_ledger_without_tags_is_that_of_earlier_releases() -> None:
    plain = extend_digest("", workflow="w", arguments="{}")
    assert extend_digest("", workflow="w", arguments="{}", tags="") == plain
    assert extend_digest("", workflow="w", arguments="{}", tags="{'a': '1'}") != plain


# --- in metrics
def test_a_metric_counts_a_hundred_values_of_a_tag_and_all_others_together() -> None:
    counted = {f"v{number}" for number in range(VALUES_MAX - 1)}
    assert choose_counted_value("new", counted) == "new"
    counted.add("new")
    assert choose_counted_value("newer", counted) == OTHER
    assert choose_counted_value("new", counted) == "new"


def _ended(tags: str | None) -> TaskRow:
    return task_row(tags=tags, ended_at=Instant(1))


def test_tasks_that_ended_are_counted_by_the_tags_that_the_configuration_names_only() -> None:
    counts = CommitCounts()
    counts.note_end(_ended('{"tenant":"acme"}'))
    assert counts.ended_by_tag == {}
    counts.counted_tags = ("tenant",)
    for tags in ('{"tenant":"acme"}', '{"region":"eu","tenant":"acme"}', '{"region":"eu"}', None):
        counts.note_end(_ended(tags))
    assert {value: sum(states.values()) for value, states in counts.ended_by_tag["tenant"].items()} == {"acme": 2}
    assert set(counts.ended_by_tag) == {"tenant"}


def test_no_caller_grows_the_memory_of_a_monitor_by_values() -> None:
    counts = CommitCounts()
    counts.counted_tags = ("tenant",)
    for number in range(VALUES_MAX * 3):
        counts.note_end(_ended(encode_tags({"tenant": f"v{number}"})))
    assert len(counts.ended_by_tag["tenant"]) == VALUES_MAX + 1
    assert sum(counts.ended_by_tag["tenant"][OTHER].values()) == VALUES_MAX * 2
