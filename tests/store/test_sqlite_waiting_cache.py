"""Who waits in a convoy, as the file store knows it without asking the file again."""

from typing import Any

import msgspec
import pytest
from store_world import NOON, submission

from arriero.core.transitions import build_new_task
from arriero.model import Instant, Loaded, TaskRow, TaskState, Turn
from arriero.store.sqlite import row_cache
from arriero.store.sqlite.row_cache import READ_AT_ONCE, WaitingCache

EVERYONE = range(1, READ_AT_ONCE + 1)


def waiting(number: int, **changes: Any) -> TaskRow:
    """A task that waits in the place of its number."""
    task = build_new_task(submission(f"t{number}"), number, Instant(NOON)).task
    fields: dict[str, Any] = {"convoy_no": 1, "rank": number, "place": number, "turn": Turn.WAITING}
    return msgspec.structs.replace(task, **(fields | changes))


def line(*numbers: int) -> WaitingCache:
    """What is known when just these were read."""
    return WaitingCache([Loaded(waiting(number), f"{number}", ()) for number in numbers])


def pass_on(line: WaitingCache, *numbers: int) -> None:
    """The turns of these come, one after the other."""
    for number in numbers:
        assert line.update(waiting(number, turn=Turn.OPEN))


def numbers(line: WaitingCache) -> list[int | None]:
    """Who stands first and second."""
    return [None if loaded is None else loaded.task.task_no for loaded in (line.first, line.second)]


@pytest.mark.parametrize(
    ("after", "tells"),
    [((1, 0), True), ((2, 99), True), ((3, 2), True), ((3, 3), False), ((3, 4), False), ((4, 0), False)],
)
def test_it_tells_who_is_next_only_after_a_stand_before_its_first(after: tuple[int, int], tells: bool) -> None:
    assert line(3, 4).tells(after) is tells


def test_the_first_and_the_second_are_known_with_their_arguments() -> None:
    known = line(3, 5, 7)
    assert (known.first, known.second) == (Loaded(waiting(3), "3", ()), Loaded(waiting(5), "5", ()))
    assert numbers(line(3)) == [3, None]
    assert numbers(line()) == [None, None]


def test_it_tells_that_nobody_waits_only_if_all_were_read() -> None:
    short, full = line(*EVERYONE[:-1]), line(*EVERYONE)
    pass_on(short, *EVERYONE[:-1])
    pass_on(full, *EVERYONE)
    assert numbers(short) == numbers(full) == [None, None]
    assert (short.tells((99, 0)), full.tells((99, 0))) == (True, False)


def test_who_is_added_behind_the_last_stands_there_with_its_arguments() -> None:
    known = line()
    for number in (1, 2):
        assert known.add(waiting(number), f"added {number}")
    assert (known.first, known.second) == (Loaded(waiting(1), "added 1", ()), Loaded(waiting(2), "added 2", ()))


@pytest.mark.parametrize("stand", [(2, 9), (4, 5), (6, 5), (6, 6)], ids=str)
def test_who_is_added_out_of_order_makes_it_worthless(stand: tuple[int, int]) -> None:
    assert not line(3, 6).add(waiting(9, rank=stand[0], place=stand[1]), "{}")
    assert line(3, 6).add(waiting(9, rank=6, place=7), "{}")


def test_who_is_added_behind_more_than_were_read_is_not_known() -> None:
    known = line(*EVERYONE)
    pass_on(known, *EVERYONE[:3])
    assert known.add(waiting(40), "{}")
    pass_on(known, *EVERYONE[3:])
    assert known.first is None
    assert not known.tells((EVERYONE[-1], 0))


def test_a_line_that_grew_to_its_bound_no_longer_knows_all() -> None:
    known = line(*EVERYONE[:-1])
    assert known.add(waiting(READ_AT_ONCE), "{}")
    assert known.add(waiting(READ_AT_ONCE + 1), "{}")
    pass_on(known, *EVERYONE)
    assert numbers(known) == [None, None]
    assert not known.tells((READ_AT_ONCE, 0))


def test_who_has_arguments_too_large_to_be_kept_and_all_behind_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "SIZE_MAX", 11)
    texts = {1: "large", 2: "large", 3: "large", 4: ""}
    read = WaitingCache([Loaded(waiting(number), text, ()) for number, text in texts.items()])
    added = WaitingCache([])
    for number, text in texts.items():
        assert added.add(waiting(number), text)
    for known in (read, added):
        assert numbers(known) == [1, 2]
        pass_on(known, 1, 2)
        assert numbers(known) == [None, None]
        assert not known.tells((2, 2))


def test_arguments_whose_turn_has_come_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "SIZE_MAX", 3)
    known = line(1, 2, 3)
    pass_on(known, 1)
    assert known.add(waiting(4), "4")
    pass_on(known, 2, 3)
    assert numbers(known) == [4, None]


@pytest.mark.parametrize(("before", "stays"), [((), True), ((1,), False)], ids=str)
def test_whose_turn_comes_as_it_is_added_leaves_only_an_empty_line_as_it_is(
    before: tuple[int, ...], stays: bool
) -> None:
    known = line(*before)
    assert known.add(waiting(9, turn=Turn.OPEN), "{}") is stays
    assert known.second is None


def test_the_turn_of_the_first_makes_the_second_the_first() -> None:
    known = line(1, 2, 3)
    assert known.update(waiting(1, turn=Turn.OPEN))
    assert numbers(known) == [2, 3]
    assert known.update(waiting(2, turn=Turn.SET_ASIDE, state=TaskState.HELD))
    assert numbers(known) == [3, None]


@pytest.mark.parametrize(
    "row",
    [
        waiting(1, revision=5),
        waiting(2, revision=5),
        waiting(3, rank=0),
        waiting(2, turn=Turn.ENDED),
        waiting(3, turn=Turn.OPEN),
        waiting(9),
    ],
    ids=[
        "first waits on",
        "second waits on",
        "moved to the head",
        "second left",
        "third has its turn",
        "one came back",
    ],
)
def test_any_other_change_among_those_who_wait_makes_it_worthless(row: TaskRow) -> None:
    assert not line(1, 2, 3).update(row)


@pytest.mark.parametrize("turn", [Turn.OPEN, Turn.ENDED, Turn.SET_ASIDE], ids=str)
def test_a_change_of_one_that_does_not_wait_leaves_it_as_it_is(turn: Turn) -> None:
    known = line(2, 3)
    assert known.update(waiting(1, turn=turn))
    assert numbers(known) == [2, 3]
