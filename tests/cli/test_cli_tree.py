"""`arriero task tree`, and what `task show`, `task list` and `explain` say of children."""

import asyncio
from pathlib import Path

import pytest
from cli_calls import Call, json_lines
from family import build_app, trip, trip_waits

STORE = "sqlite:///trips.db"


@pytest.fixture
def booked(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line on a store with a trip whose hotel is held and whose car sleeps."""

    async def book_trip() -> None:
        app = build_app(STORE)
        async with app.running():
            await app.submit(trip(), task_id="trip-7")
            await trip_waits(app)

    asyncio.run(book_trip())
    monkeypatch.setenv("ARRIERO_STORE", STORE)
    return call


def test_a_tree_shows_each_task_below_the_one_that_started_it(booked: Call) -> None:
    lines = booked("task", "tree", "trip-7").stdout.splitlines()
    assert [line.split()[:3] for line in lines[:5]] == [
        ["trip-7", "processing", "trip"],
        ["├─", "trip-7/tell.1", "processing"],
        ["├─", "trip-7/booking.2", "processed"],
        ["├─", "trip-7/booking.3", "held"],
        ["└─", "trip-7/booking.4", "processing"],
    ]
    assert lines[1].endswith("tell     detached")
    assert "cannot read the reply of the hotel" in lines[3]
    assert lines[-1] == "next: arriero task explain trip-7/booking.3"
    few = booked("task", "tree", "trip-7", "--limit", "1").stdout.splitlines()
    assert few[1].startswith("├─ trip-7/booking.3")
    assert few[2] == "└─ and 3 more: 2 processing, 1 processed"
    alone = booked("task", "tree", "trip-7/booking.3").stdout.splitlines()
    assert alone[0] == "child booking[#2] of task trip-7 (`arriero task tree trip-7`)"
    assert alone[-1] == "it has started no other task"


def test_a_tree_for_programs_is_a_line_for_each_task(booked: Call) -> None:
    found = json_lines(booked("task", "tree", "trip-7", "--json").stdout)
    assert [(one["id"], one["depth"], one["parent"], one["state"]) for one in found] == [
        ("trip-7", 0, None, "processing"),
        ("trip-7/tell.1", 1, "trip-7", "processing"),
        ("trip-7/booking.2", 1, "trip-7", "processed"),
        ("trip-7/booking.3", 1, "trip-7", "held"),
        ("trip-7/booking.4", 1, "trip-7", "processing"),
    ]
    assert booked("task", "tree", "nothing").exit_code == 4


def test_both_name_each_other_where_one_task_is_shown(booked: Call) -> None:
    shown = booked("task", "show", "trip-7").stdout
    assert "children:        4: 1 held, 2 processing, 1 processed; `arriero task tree trip-7`\n" in shown
    assert "waits for:       task trip-7/booking.3 (held) and 1 more child\n" in shown
    assert "task trip-7/booking.3, held" in shown
    assert "parent:          trip-7, as its child booking[#2]\n" in booked("task", "show", "trip-7/booking.3").stdout
    listed = json_lines(booked("task", "list", "--parent", "trip-7", "--json").stdout)
    assert len(listed) == 4
    told = booked("task", "explain", "trip-7").stdout
    assert "- child booking[#2] is task trip-7/booking.3, which is held since" in told
    assert "adjust" not in told
    assert "answer" not in told
    of_child = booked("task", "explain", "trip-7/booking.3").stdout
    assert (
        "- it is child booking[#2] of task trip-7, whose code waits for it; `arriero task explain trip-7`" in of_child
    )
    assert "cancels its children: booking[#2], booking[#3]; then undoes what it did: booking" in told
