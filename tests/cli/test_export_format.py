"""core.export: what was written is read back; whatever is cut, removed, moved or changed is convicted."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.audit.export import encode_export, read_export
from arriero.errors import InvalidInput, MutilatedExport
from arriero.events.base import START, link_hash
from arriero.model import HistoryRow, Instant

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def histories(draw: st.DrawFn) -> list[HistoryRow]:
    """Rows of a few tasks, of a few convoys and of the store, in a mixed order, properly chained."""
    rows: list[HistoryRow] = []
    last: dict[int, tuple[int, str]] = {}
    for no, task_no in enumerate(draw(st.lists(st.integers(-3, 4), min_size=1, max_size=12)), start=1):
        link, head = last.get(task_no, (0, START))
        at, actor = Instant(draw(st.integers(0, 10**15))), draw(TEXTS)
        events = msgspec.json.encode([{"type": "event", "text": draw(TEXTS), "number": draw(st.integers(0, 10**6))}])
        digest = link_hash(head, task_no, link + 1, at, actor, events.decode())
        task_id = f"task-{abs(task_no)}" if task_no else ""  # a task and a convoy may have one name
        rows.append(HistoryRow(no * 2, task_no, task_id, link + 1, at, actor, msgspec.Raw(events), digest))
        last[task_no] = (link + 1, digest)
    return rows


@given(histories())
def test_an_export_reads_back_as_it_was(rows: list[HistoryRow]) -> None:
    assert read_export(encode_export(rows, "store")) == rows
    assert read_export(line.decode() for line in encode_export(rows, "store")) == rows


@given(histories())
def test_each_line_is_json_with_the_events_as_they_were_hashed(rows: list[HistoryRow]) -> None:
    *lines, trailer = encode_export(rows, "store")
    for row, line in zip(rows, lines, strict=True):
        found = json.loads(line)
        assert list(found) == ["no", "task_no", "task", "link", "at", "actor", "events", "hash"]
        assert msgspec.json.encode(found["events"]) == bytes(row.events)
    assert json.loads(trailer)["trailer"]["rows"] == len(rows)
    assert json.loads(trailer)["trailer"]["tasks"] == len({row.task_no for row in rows if row.task_no > 0})


@given(histories(), st.data())
def test_a_removed_doubled_or_moved_line_is_convicted(rows: list[HistoryRow], data: st.DataObject) -> None:
    lines = list(encode_export(rows, "store"))
    at = data.draw(st.integers(0, len(lines) - 1))
    to = data.draw(st.integers(0, len(lines) - 1).filter(lambda other: other != at))
    moved = lines[:at] + lines[at + 1 :]
    moved.insert(to, lines[at])
    for changed in (lines[:at] + lines[at + 1 :], lines[:at] + lines[at : at + 1] + lines[at:], moved):
        with pytest.raises(MutilatedExport):
            read_export(changed)


@given(histories(), st.data())
def test_a_cut_end_is_convicted(rows: list[HistoryRow], data: st.DataObject) -> None:
    whole = b"".join(encode_export(rows, "store"))
    cut = data.draw(st.integers(0, len(whole) - 2))  # only the last newline may be missing
    with pytest.raises(MutilatedExport):
        read_export(whole[:cut].splitlines(keepends=True))


@given(histories(), st.data())
def test_a_changed_value_is_convicted(rows: list[HistoryRow], data: st.DataObject) -> None:
    lines = list(encode_export(rows, "store"))
    at = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[at])
    fields, where = (line, line) if "trailer" not in line else (line["trailer"], line)
    names = [name for name in fields if name not in ("no", "store_id", "task")]  # those three are in no hash
    name = data.draw(st.sampled_from(names))
    fields[name] = {int: lambda v: v + 1, str: lambda v: v + "0", list: lambda v: [*v, {"type": "made up"}]}[
        type(fields[name])
    ](fields[name])
    lines[at] = json.dumps(where, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(MutilatedExport):
        read_export(lines)


@given(histories())
def test_a_task_that_changes_its_name_is_convicted(rows: list[HistoryRow]) -> None:
    for first, second in pairwise(rows):
        renamed = [msgspec.structs.replace(row, task_id="another") if row is second else row for row in rows]
        if first.task_no == second.task_no:
            with pytest.raises(MutilatedExport, match=r"(task|convoy) number \d+ is named 'another'"):
                read_export(encode_export(renamed, "store"))


def _first_links(name: str, *numbers: int) -> list[HistoryRow]:
    events = b'[{"type":"event"}]'
    hashes = [link_hash(START, number, 1, 0, "actor", events.decode()) for number in numbers]
    return [
        HistoryRow(no, number, name, 1, Instant(0), "actor", msgspec.Raw(events), digest)
        for no, (number, digest) in enumerate(zip(numbers, hashes, strict=True), 1)
    ]


@pytest.mark.parametrize(("kind", "numbers"), [("task", (1, 2)), ("convoy", (-1, -2))])
def test_two_tasks_or_convoys_under_one_name_are_convicted(kind: str, numbers: tuple[int, int]) -> None:
    with pytest.raises(MutilatedExport, match=f"{kind} 'same' has the number 2, not 1"):
        read_export(encode_export(_first_links("same", *numbers), "store"))


def test_convoys_without_their_names_as_release_0_4_0_exported_them_are_told_apart_by_their_numbers() -> None:
    rows = _first_links("", -1, -2, -3)
    lines = list(encode_export(rows, "store"))
    assert read_export(lines) == rows
    with pytest.raises(MutilatedExport):
        read_export([lines[0], *lines[2:]])


def test_a_task_without_a_name_is_convicted() -> None:
    for rows in (_first_links("", 0, 1), _first_links("", 1)):
        with pytest.raises(MutilatedExport, match="task '' has the number 1, not 0"):
            read_export(encode_export(rows, "store"))


@pytest.mark.parametrize(
    "junk", [b"", b"\n\n", b"\x00\xff\xfe", b"[]", b'{"trailer":7}', b'{"no":"one"}', b"[" * 100_000]
)
def test_what_is_no_export_is_convicted_at_its_line(junk: bytes) -> None:
    with pytest.raises(MutilatedExport) as caught:
        read_export(junk.splitlines(keepends=True))
    assert isinstance(caught.value, InvalidInput)
    assert caught.value.line >= 1
    assert f"line {caught.value.line}" in str(caught.value)


def test_an_empty_history_has_a_trailer_and_reads_back() -> None:
    assert read_export(encode_export([], "store")) == []
