"""The check of convoys: a clean history of them is clean, and what breaks their order is convicted.

As in ``test_check``, each violation changes one thing of a clean history and chains it anew.
"""

import asyncio
from collections.abc import Callable
from itertools import zip_longest

import msgspec
import pytest
from core_convoys import GAP_WITHIN, Road, Tale, disagreements, everything, folded, happens
from core_history import LEASE, SECOND, Commit, Event

from arriero.audit.check import History, check, find_convoy_differences, find_differences
from arriero.audit.export import encode_export, read_export
from arriero.errors import MutilatedExport
from arriero.events import EventOfConvoy, EventOfTurn, list_event_types
from arriero.model import ConvoyState, ConvoyVerb, Instant, TaskState, Turn
from arriero.store.contract import Purge

Change = Callable[[Tale], None]
_VIOLATIONS: list[tuple[tuple[str, ...], Change]] = []


def violates(*invariants: str) -> Callable[[Change], Change]:
    """The invariants that convict, in the order in which they do; the first is the one that is broken."""

    def keep(change: Change) -> Change:
        _VIOLATIONS.append((invariants, change))
        return change

    return keep


# --- the clean history
def test_a_history_in_which_everything_happens_to_convoys_is_clean_and_agrees_with_its_tables() -> None:
    rows = list(everything().store.iterate_history())
    told = {event["type"] for row in rows for event in msgspec.json.decode(row.events)}
    assert list_event_types(EventOfTurn | EventOfConvoy) <= told
    assert check(rows) == []
    assert disagreements(everything()) == []


def test_the_clean_history_chained_anew_is_clean_too() -> None:
    assert check(Tale().rows()) == []


def test_what_only_stands_between_each_other_is_not_convicted() -> None:
    """Commits of one convoy depend on each other, those of two do not."""
    tale = Tale()
    store = [commit for commit in tale.commits if commit.task == ""]
    of_convoy: dict[str, list[Commit]] = {}
    for commit in tale.commits:
        if commit.task:
            of_convoy.setdefault(commit.task.rpartition("-")[0] or commit.task, []).append(commit)
    mixed = [commit for commits in zip_longest(*of_convoy.values()) for commit in commits if commit is not None]
    assert mixed != tale.commits[len(store) :]
    tale.commits = store + mixed
    assert check(tale.rows()) == []


def test_the_events_of_a_commit_are_judged_by_their_numbers_not_by_the_order_of_its_rows() -> None:
    tale = Tale()
    own = tale.commit("gap", "convoy.action")
    opened = tale.commit("gap-6", "convoy.opened")
    assert tale.commits.index(opened) < tale.commits.index(own)
    tale.put_before(own, opened)
    assert check(tale.rows()) == []


# --- claims
@violates("I10", "I40")
def a_task_is_claimed_before_its_turn(tale: Tale) -> None:
    tale.put_before(tale.commit("order-3", "task.claimed"), tale.commit("order-4", "task.submitted"))


@violates("I10")
def a_report_wakes_a_task_whose_turn_has_not_come(tale: Tale) -> None:
    """Its turn is put off by the time that it was to wait for: the report has not moved that."""
    tale.event("wake-1", "convoy.opened", 1)["not_before"] += SECOND


# --- places
@violates("I39")
def places_are_not_given_in_the_order_of_commits(tale: Tale) -> None:
    tale.put_before(tale.commit("order-3", "task.submitted"), tale.commit("order-2", "task.submitted"))


@violates("I39")
def a_task_is_placed_twice(tale: Tale) -> None:
    tale.insert(tale.of("order-6")[0], tale.event("order-6", "convoy.placed"))


@violates("I39")
def a_rank_is_not_the_place(tale: Tale) -> None:
    tale.event("order-6", "convoy.placed")["rank"] = 9
    tale.event("order-6", "convoy.opened")["rank"] = 9


@violates("I39")
def a_task_is_placed_behind_the_end_mark(tale: Tale) -> None:
    tale.event("gap-4", "convoy.placed")["end"] = True


@violates("I39", "I40")
def a_convoy_changes_how_it_is_ordered(tale: Tale) -> None:
    tale.event("wait-4", "convoy.placed")["sequence"] = 4


@violates("I39")
def a_task_is_placed_under_another_key(tale: Tale) -> None:
    tale.event("order-6", "convoy.placed")["key"] = "another"


@violates("I40")
def a_place_is_left_out(tale: Tale) -> None:
    tale.event("order-6", "convoy.placed").update(place=7, rank=7)
    tale.event("order-6", "convoy.opened")["rank"] = 7


@violates("I40")
def a_sequence_is_placed_twice(tale: Tale) -> None:
    tale.event("late-3", "convoy.placed").update(sequence=2, rank=2)
    tale.event("late-3", "convoy.opened").update(rank=2, expected=3)


# --- turns
def _exchange(one: Event, other: Event, *fields: str) -> None:
    for field in fields:
        one[field], other[field] = other[field], one[field]


@violates("I40")
def two_tasks_of_a_convoy_have_their_turn_at_once(tale: Tale) -> None:
    closed, opened = tale.event("order-2", "convoy.closed"), tale.event("order-5", "convoy.opened")
    _exchange(closed, opened, "number", "fence")


@violates("I40")
def a_task_overtakes_one_that_waits(tale: Tale) -> None:
    tale.leave_out("order-5", "convoy.moved")
    tale.event("order-5", "convoy.opened")["rank"] = 5


@violates("I40")
def a_task_is_moved_to_the_head_and_does_not_stand_there(tale: Tale) -> None:
    tale.event("order-5", "convoy.moved")["rank"] = 4
    tale.event("order-5", "convoy.opened")["rank"] = 4


@violates("I40")
def a_task_is_moved_although_its_producer_numbers_it(tale: Tale) -> None:
    waiting = tale.event("gap", "convoy.waiting", 2)
    tale.insert(tale.of("gap-6")[0], {"type": "convoy.moved", "convoy": waiting["convoy"], "number": 15, "rank": 6})
    for event in tale.numbered("gap"):
        event["number"] += event["number"] >= 15 and event["type"] != "convoy.moved"


@violates("I40")
def a_turn_begins_under_another_rank(tale: Tale) -> None:
    tale.event("order-6", "convoy.opened")["rank"] = 7


@violates("I40")
def a_turn_begins_twice(tale: Tale) -> None:
    opened = tale.event("order-4", "convoy.opened")
    closed = tale.event("order-4", "convoy.closed")
    tale.insert(
        tale.commit("order-4", "convoy.opened"), {**opened, "number": closed["number"], "fence": closed["fence"]}
    )
    closed.update(number=closed["number"] + 1, fence=closed["fence"] + 1)


@violates("I40")
def a_task_has_ended_and_its_turn_has_not(tale: Tale) -> None:
    tale.remove("order-4", "convoy.closed")


@violates("I40")
def a_turn_ends_before_its_task(tale: Tale) -> None:
    closed = tale.event("order-4", "convoy.closed")
    tale.move(closed, tale.commit("order-4", "task.claimed"))


@violates("I40")
def a_task_comes_back_and_does_not_wait_for_its_turn(tale: Tale) -> None:
    tale.leave_out("order-4", "convoy.returned")


@violates("I40")
def a_turn_ends_and_leaves_its_task_waiting(tale: Tale) -> None:
    tale.event("order-4", "convoy.closed")["turn"] = "waiting"


@violates("I40")
def a_step_is_dispatched_while_its_task_waits_for_its_turn(tale: Tale) -> None:
    dispatched = tale.event("wake-1", "step.dispatched", step=2)
    tale.move(dispatched, tale.commit("wake-1", "convoy.returned"))


@violates("I40", "I53")
def an_event_names_another_convoy(tale: Tale) -> None:
    tale.event("order-6", "convoy.closed")["convoy"] = tale.event("wait-1", "convoy.placed")["convoy"]


@violates("I6")
def the_fence_of_a_convoy_does_not_grow(tale: Tale) -> None:
    tale.event("order-3", "convoy.opened")["fence"] -= 1


@violates("I6")
def a_task_that_returns_tells_another_fence(tale: Tale) -> None:
    tale.event("order-1", "convoy.returned")["fence"] += 1


# --- gaps
@violates("I40")
def a_number_of_the_sequence_is_passed_over_silently(tale: Tale) -> None:
    tale.leave_out("gap", "convoy.skipped")


@violates("I40")
def a_convoy_waits_for_numbers_that_have_come(tale: Tale) -> None:
    tale.event("gap", "convoy.waiting")["before"] = 1


@violates("I40")
def a_gap_is_found_before_what_is_not_the_next(tale: Tale) -> None:
    tale.event("late", "convoy.waiting")["before"] = 3


@violates("I40")
def a_skip_goes_on_from_another_number(tale: Tale) -> None:
    tale.event("gap", "convoy.skipped")["expected"] = 2


@violates("I40")
def a_turn_moves_the_sequence_too_far(tale: Tale) -> None:
    tale.event("gap-6", "convoy.opened")["expected"] = 9


@violates("I40")
def a_task_is_set_aside_as_late_that_is_not(tale: Tale) -> None:
    tale.event("idle-3", "convoy.set_aside")["why"] = "late"


@violates("I26")
def the_alert_of_a_gap_stays_open_when_the_turn_has_come(tale: Tale) -> None:
    tale.remove("gap-2", "alert.closed")


@violates("I26")
def the_alert_of_a_gap_is_opened_for_a_task_whose_turn_it_is(tale: Tale) -> None:
    tale.insert(tale.commit("order-4", "convoy.opened"), {"type": "alert.opened", "cause": "gap"})
    tale.insert(tale.commit("order-4", "alert.opened"), {"type": "alert.closed"})


@violates("I26")
def two_alerts_are_open_for_one_gap(tale: Tale) -> None:
    commit, alert = tale.found("gap-2", "alert.opened")
    tale.insert(commit, alert)


# --- what people and policies say
@violates("I41")
def a_turn_begins_while_the_convoy_stands_still_on_a_failed_task(tale: Tale) -> None:
    tale.leave_out("wait-2", "convoy.closed")


@violates("I41", "I59")
def a_convoy_does_not_stand_still_on_its_failed_task(tale: Tale) -> None:
    tale.leave_out("wait-4", "convoy.stopped")


@violates("I41")
def a_turn_begins_while_the_convoy_is_parked(tale: Tale) -> None:
    tale.leave_out("park", "convoy.action", 2)


@violates("I41")
def a_convoy_that_parked_at_a_gap_goes_on_by_itself(tale: Tale) -> None:
    tale.leave_out("late", "convoy.action")


@violates("I41")
def a_parked_convoy_goes_on_with_the_task_that_was_mended(tale: Tale) -> None:
    tale.event("wait-1", "convoy.stopped")["parked"] = True


@violates("I41", "I59")
def a_task_gives_up_its_turn_in_a_convoy_that_is_not_parked(tale: Tale) -> None:
    tale.event("park-1", "convoy.stopped")["parked"] = False


@violates("I41")
def a_convoy_goes_on_with_a_task_that_it_did_not_stand_still_on(tale: Tale) -> None:
    commit = tale.commit("order-4", "task.claimed")
    closed = tale.event("order-4", "convoy.closed")
    mended = {"type": "convoy.mended", "convoy": closed["convoy"], "number": closed["number"], "fence": closed["fence"]}
    tale.insert(commit, mended)
    closed.update(number=closed["number"] + 1, fence=closed["fence"] + 1)


@violates("I41")
def it_is_not_told_that_a_place_is_lost(tale: Tale) -> None:
    tale.event("order-1", "convoy.returned")["place_lost"] = False


@violates("I41")
def it_is_told_that_a_place_is_lost_that_is_not(tale: Tale) -> None:
    tale.event("park-1", "convoy.returned")["place_lost"] = True


@violates("I59")
def a_verb_on_a_convoy_is_by_nobody(tale: Tale) -> None:
    tale.event("order", "convoy.action")["by"] = ""


@violates("I59")
def a_verb_is_carried_out_on_a_convoy_that_does_not_allow_it(tale: Tale) -> None:
    tale.event("order", "convoy.action")["verb"] = "release"


@violates("I59")
def a_verb_on_a_convoy_is_recorded_from_another_state(tale: Tale) -> None:
    tale.event("order", "convoy.action")["before"] = "idle"


@violates("I59")
def a_verb_on_a_convoy_is_recorded_to_lead_to_another_state(tale: Tale) -> None:
    tale.event("park", "convoy.action", 1)["after"] = "stopped"


@violates("I59")
def a_verb_on_a_convoy_is_recorded_to_lead_to_another_fence(tale: Tale) -> None:
    tale.event("wait", "convoy.action", 1)["fence"] += 1


# --- numbers
@violates("I53")
def an_event_of_a_convoy_is_missing(tale: Tale) -> None:
    tale.remove("gap", "convoy.waiting")


@violates("I53")
def an_event_of_a_convoy_is_there_twice(tale: Tale) -> None:
    commit, waiting = tale.found("gap", "convoy.waiting")
    tale.insert(commit, waiting)


@violates("I53")
def an_event_of_a_convoy_has_no_number(tale: Tale) -> None:
    tale.append("gap", {"type": "convoy.parked", "why": "no number"})


@violates("I53")
def an_event_of_a_convoy_is_unknown(tale: Tale) -> None:
    tale.append("order", {"type": "convoy.blessed", "number": 20})


@violates("I53")
def a_verb_on_a_convoy_is_unknown(tale: Tale) -> None:
    tale.event("order", "convoy.action")["verb"] = "bless"


@violates("I53")
def an_event_of_a_convoy_lacks_what_it_must_say(tale: Tale) -> None:
    del tale.event("gap", "convoy.waiting")["before"]


# --- batches
@violates("I87")
def a_batch_has_more_messages_than_it_may_have(tale: Tale) -> None:
    tale.event("batch-1", "convoy.batched", messages=3)["most"] = 2


@violates("I87")
def a_batch_says_that_it_has_fewer_messages(tale: Tale) -> None:
    tale.event("batch-1", "convoy.batched", messages=3)["messages"] = 2


@violates("I87")
def a_message_goes_into_the_batch_of_a_task_whose_turn_it_is_not(tale: Tale) -> None:
    other = everything().number("batch-4")
    tale.event("batch-2", "convoy.batched")["batch"] = other
    for nth in range(3):
        tale.event("batch-2", "convoy.message_ended", nth)["batch"] = other


@violates("I87")
def a_message_ends_with_another_batch(tale: Tale) -> None:
    tale.event("batch-2", "convoy.message_ended")["batch"] = everything().number("batch-4")


@violates("I87")
def a_message_ends_twice_as_it_has_ended(tale: Tale) -> None:
    tale.event("batch-2", "convoy.message_ended", 1)["state"] = "processed"


@violates("I87")
def a_message_has_not_ended_with_its_batch(tale: Tale) -> None:
    tale.leave_out("batch-5", "convoy.message_ended")


@violates("I87")
def a_batch_begins_in_the_task_of_another_one(tale: Tale) -> None:
    tale.event("batch-1", "convoy.batched", messages=0)["batch"] = everything().number("batch-4")


@pytest.mark.parametrize(("invariants", "change"), _VIOLATIONS, ids=[change.__name__ for _, change in _VIOLATIONS])
def test_a_violation_in_a_convoy_is_convicted_by_its_invariant_and_by_no_other(
    invariants: tuple[str, ...], change: Change
) -> None:
    tale = Tale()
    change(tale)
    found = check(tale.rows())
    assert list(dict.fromkeys(violation.invariant for violation in found)) == list(invariants), found


def test_every_invariant_of_convoys_has_a_violation() -> None:
    assert {"I39", "I40", "I41", "I87"} <= {invariants[0] for invariants, _ in _VIOLATIONS}


# --- removed tasks
@pytest.mark.parametrize("limit", range(1, 29, 3))
def test_a_convoy_whose_tasks_were_removed_in_part_is_not_convicted(limit: int) -> None:
    async def story() -> None:
        road = await happens()
        for alert in await road.store.take_alerts(100, 60.0):
            assert await road.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
        states = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
        purged = await road.store.purge(Purge(states=states, ended_before=Instant(road.at)), actor="p1", limit=limit)
        assert purged.count == limit
        await road.place("order-7")
        await road.place("order-8")
        await road.processed("order-7")
        assert check(list(road.store.iterate_history())) == []
        assert disagreements(road) == []

    asyncio.run(story())


def test_removed_tasks_excuse_nothing_that_is_still_told() -> None:
    tale = Tale()
    tale.append("", {"type": "tasks.purged", "count": 1, "heads": ""})
    a_task_overtakes_one_that_waits(tale)
    assert [violation.invariant for violation in check(tale.rows())] == ["I40"]


# --- the export
def test_the_export_of_convoys_is_read_back() -> None:
    rows = list(everything().store.iterate_history())
    lines = list(encode_export(rows, "town"))
    assert read_export(lines) == rows
    assert msgspec.json.decode(lines[-1])["trailer"]["tasks"] == len(everything().store.tasks)


def test_a_task_and_a_convoy_may_have_the_same_name() -> None:
    tale = Tale()
    for commit in tale.of("order"):
        commit.task = "order-1"
    rows = tale.rows()
    assert read_export(encode_export(rows, "town")) == rows


def test_an_export_in_which_the_history_of_a_convoy_was_changed_is_refused() -> None:
    lines = list(encode_export(list(everything().store.iterate_history()), "town"))
    at = next(at for at, line in enumerate(lines) if b"convoy.skipped" in line)
    lines[at] = lines[at].replace(b'"policy"', b'"person"')
    with pytest.raises(MutilatedExport, match="of convoy 'gap' does not have the hash"):
        read_export(lines)


def test_a_broken_chain_of_a_convoy_is_convicted_under_its_name() -> None:
    rows = list(everything().store.iterate_history())
    at = next(at for at, row in enumerate(rows) if row.task_id == "gap")
    rows[at] = msgspec.structs.replace(rows[at], actor="somebody")
    assert next((one.task, one.invariant) for one in check(rows)) == ("convoy gap", "I53")


# --- rows
async def _under_way() -> Road:
    """``order`` has an open task and one that waits, ``gap`` waits for its first, ``park`` is at rest with one that waits."""
    road = Road()
    assert await road.store.register("p1", LEASE) == 1
    for task_id in ("order-1", "order-2", "park-1"):
        await road.place(task_id)
    await road.tell("park", ConvoyVerb.PARK)
    await road.processed("park-1")
    await road.place("park-2")
    await road.tell("park", ConvoyVerb.RELEASE)
    await road.place("gap-2", 2)
    await road.look()
    road.wait(GAP_WITHIN)
    await road.look()
    assert disagreements(road) == []
    return road


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("order", "state", ConvoyState.STOPPED),
        ("order", "open_task", 2),
        ("order", "fence", 9),
        ("order", "number", 9),
        ("order", "expected", 9),
        ("order", "parked_at", Instant(1)),
        ("order", "from_rank", 3),
        ("gap", "alerted_task", None),
        ("gap", "expected", 2),
        ("gap", "state", ConvoyState.IDLE),
        ("gap", "key", "another"),
    ],
)
def test_a_row_of_a_convoy_that_says_something_else_than_its_history_is_found(
    key: str, field: str, value: object
) -> None:
    road = asyncio.run(_under_way())
    tail = road.store.find_tail(key)
    assert tail is not None
    row = msgspec.structs.replace(road.store.convoys[tail.convoy_no], **{field: value})
    road.store.convoys[tail.convoy_no] = row
    assert disagreements(road) != []


@pytest.mark.parametrize(
    ("field", "value"), [("turn", Turn.WAITING), ("rank", 9), ("place", 9), ("sequence", 1), ("convoy_no", 9)]
)
def test_a_row_of_a_task_that_stands_elsewhere_in_its_convoy_is_found(field: str, value: object) -> None:
    road = asyncio.run(_under_way())
    history = folded(road)
    loaded = road.store.load_as_is(road.number("order-1"))
    changed = msgspec.structs.replace(loaded, task=msgspec.structs.replace(loaded.task, **{field: value}))
    found = find_differences(history.tasks[loaded.task.task_no], changed)
    assert [field in text for text in found] == [True]


def test_a_convoy_that_no_history_tells_of_is_found() -> None:
    road = asyncio.run(_under_way())
    row = next(iter(road.store.convoys.values()))
    assert find_convoy_differences(History(), row) == ["convoy order: its history says nothing of it"]
