"""Which Agent gets a request: by preference, weight, health and room; and when a request that has its Agent may move."""

from collections import Counter

import pytest
from core_rows import done, loaded, step_row
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arriero import Breaker
from arriero.core.routing import (
    HEALTH_MIN,
    INTERCHANGEABLE,
    PINNED,
    Candidate,
    choose_agent,
    compute_health,
    compute_shares,
    is_to_be_routed,
    may_move,
    route,
    stay_with_agent,
)
from arriero.core.undo import plan_undo
from arriero.model import StepKind, TaskState
from arriero.model.failures import TaskFailure
from arriero.model.moves import NewStep, PlanUndo

FAILURE = TaskFailure("step", "charge: declined")
EU, US, OWN = Candidate(name="eu"), Candidate(name="us"), Candidate(name="own")


def choices(count: int, *candidates: Candidate) -> list[str]:
    turns: dict[str, float] = {}
    names = []
    for _ in range(count):
        name, turns = choose_agent(candidates, turns)
        names.append(name)
    return names


def test_weights_share_the_requests_of_one_preference_evenly_over_time() -> None:
    names = choices(8, replace(EU, weight=3), US)
    assert Counter(names) == {"eu": 6, "us": 2}
    assert Counter(names[:4]) == {"eu": 3, "us": 1}


def test_a_later_preference_gets_nothing_while_the_first_one_is_well() -> None:
    assert compute_shares([EU, replace(US, preference=1)]) == {"eu": 1.0}


def test_without_room_the_next_preference_gets_the_requests() -> None:
    assert compute_shares([replace(EU, has_room=False), replace(US, preference=1)]) == {"us": 1.0}


def test_a_degraded_agent_gets_less() -> None:
    assert compute_shares([replace(EU, health=0.25), US]) == pytest.approx({"eu": 0.2, "us": 0.8})


def test_below_a_health_the_next_preference_gets_a_part() -> None:
    assert compute_shares([replace(EU, health=0.7), replace(US, preference=1)]) == {"eu": 1.0}
    assert compute_shares([replace(EU, health=0.35), replace(US, preference=1)]) == pytest.approx(
        {"eu": 0.5, "us": 0.5}
    )


def test_a_barred_agent_gets_nothing_and_one_that_nobody_hosts_neither() -> None:
    assert compute_shares([replace(EU, is_barred=True), US]) == {"us": 1.0}
    assert compute_shares([replace(EU, is_hosted=False), US]) == {"us": 1.0}


def test_a_breaker_that_lets_one_attempt_through_gets_the_next_request_as_its_canary() -> None:
    assert choices(1, replace(EU, awaits_canary=True), US) == ["eu"]
    assert choices(1, replace(EU, awaits_canary=True, is_hosted=False), US) == ["us"]


def test_where_nobody_has_room_the_first_preference_shares_what_waits() -> None:
    full = replace(EU, has_room=False)
    assert compute_shares([full, replace(full, name="us"), replace(full, name="own", preference=1)]) == {
        "eu": 0.5,
        "us": 0.5,
    }


def test_where_all_are_barred_it_waits_for_the_first_preference_that_is_hosted() -> None:
    barred = replace(EU, is_barred=True)
    assert compute_shares([barred, replace(barred, name="us", preference=1)]) == {"eu": 1.0}
    assert compute_shares([replace(barred, is_hosted=False), replace(barred, name="us", preference=1)]) == {"us": 1.0}
    assert compute_shares([replace(barred, is_hosted=False)]) == {"eu": 1.0}


candidates = st.lists(
    st.builds(
        Candidate,
        name=st.sampled_from("abcdef"),
        weight=st.floats(0.1, 10),
        preference=st.integers(0, 2),
        health=st.floats(0, 1),
        has_room=st.booleans(),
        is_barred=st.booleans(),
        is_hosted=st.booleans(),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one.name,
)


@given(candidates)
def test_shares_add_up_to_one_and_choices_keep_to_them(asked: list[Candidate]) -> None:
    shares = compute_shares(asked)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(share > 0 for share in shares.values())
    found = Counter(choices(200, *asked))
    for one in asked:
        assert abs(found[one.name] - 200 * shares.get(one.name, 0.0)) <= len(asked)


@given(candidates)
def test_who_is_barred_or_unhosted_gets_nothing_while_another_one_can_take_it(asked: list[Candidate]) -> None:
    shares = compute_shares(asked)
    if any(one.is_hosted and not one.is_barred for one in asked):
        assert all(one.is_hosted and not one.is_barred for one in asked if one.name in shares)


# --- health
def test_few_failures_of_few_calls_say_little() -> None:
    policy = Breaker(minimum=20, failure_rate=0.5)
    assert compute_health(0, 0, policy) == 1.0
    assert compute_health(1, 1, policy) == pytest.approx(0.9)
    assert compute_health(40, 10, policy) == pytest.approx(0.5)
    assert compute_health(40, 40, policy) == HEALTH_MIN
    assert compute_health(40, 40, None) == 1.0


# --- moving
def test_a_step_moves_until_it_is_taken_and_then_only_if_it_is_interchangeable() -> None:
    step = step_row(taken=False, routing=PINNED)
    assert may_move(step)
    assert not may_move(replace(step, taken=True))
    assert may_move(replace(step, taken=True, routing=INTERCHANGEABLE))


def test_a_compensation_moves_only_if_its_step_is_interchangeable() -> None:
    undo = step_row(kind=StepKind.COMPENSATION, taken=False, routing=PINNED)
    assert not may_move(undo)
    assert not may_move(replace(undo, routing=""))
    assert may_move(replace(undo, routing=INTERCHANGEABLE))


NEW = NewStep(kind=StepKind.STEP, name="charge", key="#1", agent="payments")


def test_a_new_request_is_routed_and_pinned_unless_it_is_interchangeable() -> None:
    assert is_to_be_routed(NEW)
    assert route(NEW, "eu") == replace(NEW, agent="eu", routing=PINNED)
    free = replace(NEW, routing=INTERCHANGEABLE)
    assert route(free, "eu") == replace(free, agent="eu")
    assert not is_to_be_routed(replace(NEW, kind=StepKind.COMPENSATION))


def test_what_was_taken_is_asked_for_again_where_it_was_taken() -> None:
    before = step_row(agent="eu", taken=True, routing=PINNED)
    again = stay_with_agent(NEW, before, ("payments", "eu"))
    assert (again.agent, is_to_be_routed(again)) == ("eu", False)
    assert stay_with_agent(NEW, before, ()).agent == "eu", "also if its Agent is no provider any more"
    assert stay_with_agent(NEW, replace(before, taken=False), ("payments", "eu")) == NEW
    free = replace(NEW, routing=INTERCHANGEABLE)
    assert stay_with_agent(free, before, ("payments", "eu")) == free


def test_a_step_of_a_release_without_providers_stays_with_the_base_and_follows_a_new_name() -> None:
    before = step_row(agent="payments", taken=True)
    assert not is_to_be_routed(stay_with_agent(NEW, before, ("payments", "eu")))
    assert stay_with_agent(NEW, replace(before, agent="billing"), ()) == NEW


def test_an_undo_is_planned_for_the_agent_that_did_the_step_with_the_same_way() -> None:
    for routing in (PINNED, INTERCHANGEABLE, ""):
        undone = done(1, agent="eu", routing=routing)
        plan = plan_undo(loaded(undone, state=TaskState.COMPENSATING), FAILURE, "store")
        assert isinstance(plan, PlanUndo)
        assert [(new.agent, new.routing) for new in plan.planned] == [("eu", routing)]
