"""What may be declared, and that what is declared wrongly is refused with the remedy."""

import asyncio
import collections.abc
import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

import arriero
from arriero import (
    Adaptive,
    Agent,
    App,
    ArrieroError,
    Attempt,
    ConvoyPolicy,
    DefinitionError,
    InvalidInput,
    Retry,
    Supervision,
    Undo,
    testing,
    workflow,
)
from arriero.declare.steps import AsyncStep, SyncStep

remote = Agent("remote")


@remote.step
async def charge(attempt: Attempt, amount: int, *, tip: int = 0) -> str:
    """Charge the card."""
    return f"{amount + tip}"


@remote.step
def reserve(attempt: Attempt, pieces: int) -> None: ...


@workflow
async def fulfil(amount: int) -> str:
    """Charge."""
    return await charge(amount)


# --- what a declaration gives
def test_steps_know_their_name_function_and_docstring() -> None:
    assert (charge.name, charge.__doc__, fulfil.name, fulfil.__doc__) == (
        "charge",
        "Charge the card.",
        "fulfil",
        "Charge.",
    )
    assert isinstance(charge, AsyncStep)
    assert isinstance(reserve, SyncStep)
    assert reserve.function.__name__ == "reserve"
    assert inspect.iscoroutinefunction(fulfil.function)


async def test_the_plain_function_is_at_hand_for_tests() -> None:
    attempt = testing.attempt()
    assert await charge.function(attempt, 3, tip=1) == "4"
    assert reserve.function(attempt, 3) is None
    assert await arriero.workflow(_three).function() == 3


async def _three() -> int:
    return 3


def test_an_attempt_says_what_a_service_must_know() -> None:
    seconds = [2.5, -1.0]
    trace = {"traceparent": "00-1-2-01"}
    time = Mock(
        complete_by=arriero.model.Instant(1_500_000), remaining_seconds=lambda: seconds.pop(0), trace_headers=trace
    )
    attempt = Attempt("käse-1", "charge[a]", 2, "k", time)
    assert (attempt.task_id, attempt.step, attempt.number, attempt.idempotency_key) == ("käse-1", "charge[a]", 2, "k")
    assert attempt.complete_by.isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert [attempt.remaining, attempt.remaining] == [2.5, 0.0]
    assert attempt.headers == {"Idempotency-Key": "k", "Arriero-Task": "k\\xe4se-1", **trace}
    attempt.headers["Arriero-Task"].encode("ascii")


def test_names_may_be_given_so_that_a_renamed_function_keeps_its_own() -> None:
    agent = Agent("a")

    @agent.step(name="old-name")
    def new_name(attempt: Attempt) -> None: ...

    @workflow(name="old-flow")
    async def new_flow() -> None: ...

    assert (new_name.name, new_flow.name, list(agent.steps)) == ("old-name", "old-flow", ["old-name"])


def test_repr_shows_the_product_of_the_policies() -> None:
    agent = Agent("bank", max_in_flight=3)

    @agent.step
    def by_default(attempt: Attempt) -> None: ...

    @agent.step(
        retry=Retry(tries=2), supervision=Supervision(attempts=5, rounds=4), complete_within=timedelta(minutes=1)
    )
    def by_hand(attempt: Attempt) -> None: ...

    assert repr(by_default) == "<step by_default of Agent bank: up to 9 calls, each attempt within 30 s>"
    assert repr(by_hand) == "<step by_hand of Agent bank: up to 40 calls, each attempt within 60 s>"
    assert repr(agent) == "<Agent bank: 2 steps, 3 in flight>"
    assert repr(fulfil) == "<workflow fulfil>"
    assert repr(charge(1)) == "<call of step charge>"
    assert repr(fulfil(1)) == "<call of workflow fulfil>"


def test_durations_may_be_seconds_or_timedelta_and_are_kept_as_seconds() -> None:
    agent = Agent("a")

    @agent.step(complete_within=timedelta(minutes=2), wait_within=30)
    def step(attempt: Attempt) -> None: ...

    assert (step.policy.complete_within, step.policy.wait_within) == (120.0, 30.0)
    assert Supervision(cool_off=timedelta(hours=1)).cool_off == 3600.0
    assert (Retry(delay=1).delay, Retry(delay_max=timedelta(seconds=9)).delay_max) == (1.0, 9.0)
    assert ConvoyPolicy(gap_within=timedelta(days=1)).gap_within == 86_400.0

    @workflow(complete_within=timedelta(days=2), convoy_policy=ConvoyPolicy(head="skip"))
    async def flow() -> None: ...

    assert flow.policy.complete_within == 172_800.0


def test_a_compensation_stays_the_plain_function() -> None:
    agent = Agent("a")

    @agent.step
    async def book(attempt: Attempt, seat: str) -> int: ...

    @book.compensation
    async def cancel(undo: Undo[int], seat: str) -> None: ...

    @agent.step
    def rent(attempt: Attempt, car: str) -> int: ...

    @rent.compensation(complete_within=60, retry=Retry(tries=1), supervision=Supervision(attempts=20))
    def give_back(undo: Undo[int], car: str) -> None: ...

    assert inspect.isfunction(cancel)
    assert inspect.isfunction(give_back)
    assert book.undone_by is not None
    assert book.undone_by.is_async
    assert rent.undone_by is not None
    assert (rent.undone_by.policy.complete_within, rent.undone_by.policy.supervision.attempts) == (60.0, 20)


# --- declared wrongly
@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0b", "\ud800", 5])
def test_a_bad_name_is_refused_for_everything(name: Any) -> None:
    agent = Agent("a")
    with pytest.raises(DefinitionError, match="name of an Agent"):
        Agent(name)
    with pytest.raises(DefinitionError, match="name of an App"):
        App(name)
    with pytest.raises(DefinitionError, match="name of a step"):
        agent.step(name=name)(reserve.function)
    with pytest.raises(DefinitionError, match="name of a workflow"):
        workflow(name=name)(fulfil.function)


def test_a_name_may_have_255_characters_of_any_language() -> None:
    assert Agent("ñ" * 255).name == "ñ" * 255


@pytest.mark.parametrize("places", [0, -1, 1.5, True, "3", 100_001])
def test_an_agents_places_must_be_a_whole_number(places: Any) -> None:
    with pytest.raises(DefinitionError, match="Agent a: max_in_flight is"):
        Agent("a", max_in_flight=places)


@pytest.mark.parametrize(
    ("reserve", "places", "reserved"), [(0, 10, 0), (0.2, 10, 2), (0.01, 10, 1), (3, 10, 3), (9, 10, 9), (0.0, 1, 0)]
)
def test_an_agent_keeps_a_share_or_a_number_of_its_places(reserve: float, places: int, reserved: int) -> None:
    assert Agent("a", max_in_flight=places, reserve=reserve).reserved == reserved


@pytest.mark.parametrize(
    ("adaptive", "says"),
    [
        (lambda: Adaptive(minimum=11), "Agent a: Adaptive.minimum is 11, above max_in_flight, which is 10"),
        (lambda: "yes", "Agent a: adaptive is 'yes'; give True, False or Adaptive"),
        (lambda: Adaptive(minimum=0), "Adaptive.minimum is 0"),
        (lambda: Adaptive(tolerance=0.5), "Adaptive.tolerance is 0.5"),
    ],
)
def test_adaptive_concurrency_with_bounds_that_cannot_work_is_refused(adaptive: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        Agent("a", adaptive=adaptive())


def test_an_agent_s_places_are_fixed_unless_it_says_otherwise() -> None:
    assert Agent("a").adaptive is None
    assert Agent("a", adaptive=True).adaptive == Adaptive()


def test_an_agent_has_one_probe_and_it_stays_a_plain_function() -> None:
    agent = Agent("a")

    @agent.probe
    def ask() -> str:
        return "well"

    assert ask() == "well"
    with pytest.raises(DefinitionError, match=r"Agent a has a probe already: .*ask; remove one of the two"):
        agent.probe(complete_within=2)(lambda: None)


def test_a_probe_with_wrong_parameters_is_refused() -> None:
    with pytest.raises(DefinitionError, match="must take no parameters, because it has no breaker_key"):
        Agent("a").probe(lambda part: None)
    with pytest.raises(DefinitionError, match="must take one parameter, the name of the part"):
        Agent("a", breaker_key=lambda n: "x").probe(lambda: None)
    Agent("a").probe(lambda part="": None)


def test_a_probe_that_nothing_would_ask_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Agent a has no breaker, so nothing would ask its probe"):
        Agent("a", breaker=None).probe(lambda: None)


@pytest.mark.parametrize("within", [0, -1, 301, float("nan"), "5", True])
def test_a_probe_with_a_time_that_cannot_work_is_refused(within: Any) -> None:
    with pytest.raises(DefinitionError, match="Agent a: complete_within of its probe is"):
        Agent("a").probe(complete_within=within)(lambda: None)


@pytest.mark.parametrize("share", [0, -0.1, 1.01, True, "0.2", float("nan"), float("inf")])
def test_a_retry_budget_that_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(
        DefinitionError, match="Agent a: retry_budget is .*; give a share of its calls above 0 and at most 1"
    ):
        Agent("a", retry_budget=share)


@pytest.mark.parametrize(("share", "kept"), [(0.01, 0.01), (1, 1.0), (None, None)])
def test_a_retry_budget_is_a_share_of_calls_or_none(share: Any, kept: float | None) -> None:
    assert Agent("a", retry_budget=share).retry_budget == kept


@pytest.mark.parametrize("reserve", [-1, 10, 11, 2.5, True, "2", None, float("nan")])
def test_a_reserve_that_is_no_share_and_no_number_of_places_is_refused(reserve: Any) -> None:
    with pytest.raises(DefinitionError, match="Agent a: reserve is .*; it must be a share below 1"):
        Agent("a", max_in_flight=10, reserve=reserve)


def test_a_reserve_of_all_places_is_refused() -> None:
    with pytest.raises(DefinitionError, match="keeps all of the 1 places"):
        Agent("a", max_in_flight=1, reserve=0.2)


def test_parameters_without_a_name_of_their_own_are_refused() -> None:
    def many(attempt: Attempt, *orders: int) -> None: ...

    def named(attempt: Attempt, **orders: int) -> None: ...

    async def flow(*orders: int) -> None: ...

    for function in (many, named):
        with pytest.raises(DefinitionError, match=r"\*orders has no name for each value; give every parameter a name"):
            remote.step(function)
    with pytest.raises(DefinitionError, match=r"workflow flow: \*orders"):
        workflow(flow)
    assert "many" not in remote.steps


def test_a_workflow_must_be_async() -> None:
    def flow() -> None: ...

    with pytest.raises(DefinitionError, match="workflow flow must be an `async def`: it awaits its steps"):
        workflow(flow)  # type: ignore[call-overload]


def test_a_second_step_of_the_same_name_is_refused() -> None:
    agent = Agent("a")
    agent.step(reserve.function)
    with pytest.raises(DefinitionError, match="Agent a has a step reserve already; give one of them another name="):
        agent.step(reserve.function)


def test_a_second_compensation_is_refused_and_names_the_first() -> None:
    agent = Agent("a")
    step = agent.step(reserve.function)

    def release(undo: Undo[None], pieces: int) -> None: ...

    step.compensation(release)
    with pytest.raises(DefinitionError, match=r"step reserve has a compensation already: .*release"):
        step.compensation(release)


def test_a_compensation_with_other_parameters_is_refused_and_both_are_named() -> None:
    step = Agent("a").step(charge.function)

    def refund(undo: Undo[str], amount: int) -> None: ...

    with pytest.raises(DefinitionError, match=r"takes \(amount\); it gets the step's own arguments: \(amount, tip\)"):
        step.compensation(refund)  # type: ignore[call-overload]


def test_then_on_a_compensation_is_refused() -> None:
    step = Agent("a").step(reserve.function)
    with pytest.raises(DefinitionError, match="`then` has no meaning here"):
        step.compensation(supervision=Supervision(then="hold"))


BAD_DURATIONS = [
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    -0.001,
    timedelta(seconds=-1),
    10**12,
    10**400,
    "5",
    True,
    None,
]


# What declares a duration, and whether None there means "not given".
TAKES_DURATION: dict[str, tuple[Any, bool]] = {
    "step.complete_within": (lambda d: remote.step(complete_within=d), False),
    "step.wait_within": (lambda d: remote.step(wait_within=d), True),
    "compensation.complete_within": (lambda d: reserve.compensation(complete_within=d), False),
    "workflow.complete_within": (lambda d: workflow(complete_within=d), True),
    "options.complete_within": (lambda d: reserve(1).options(complete_within=d), True),
    "options.wait_within": (lambda d: reserve(1).options(wait_within=d), True),
    "Retry.delay": (lambda d: Retry(delay=d), False),
    "Retry.delay_max": (lambda d: Retry(delay_max=d), False),
    "Supervision.cool_off": (lambda d: Supervision(cool_off=d), False),
    "ConvoyPolicy.gap_within": (lambda d: ConvoyPolicy(gap_within=d), False),
}


@pytest.mark.parametrize("duration", BAD_DURATIONS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("where", TAKES_DURATION)
def test_a_bad_duration_is_refused_everywhere_and_its_place_is_named(where: str, duration: Any) -> None:
    declare, may_be_none = TAKES_DURATION[where]
    if duration is None and may_be_none:
        declare(duration)
        return
    with pytest.raises(DefinitionError, match=where.split(".")[1]):
        declare(duration)


@pytest.mark.parametrize("limit", [0, 0.0001, timedelta(0)])
def test_a_time_to_complete_within_must_be_at_least_a_millisecond(limit: Any) -> None:
    for declare in (remote.step, reserve.compensation, workflow, reserve(1).options):
        with pytest.raises(DefinitionError, match="complete_within"):
            declare(complete_within=limit)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("declare", "named"),
    [
        (lambda: Retry(tries=0), "Retry.tries"),
        (lambda: Retry(tries=101), "Retry.tries"),
        (lambda: Retry(tries=1.0), "Retry.tries"),  # type: ignore[arg-type]
        (lambda: Retry(tries=True), "Retry.tries"),
        (lambda: Retry(factor=0.5), "Retry.factor"),
        (lambda: Retry(factor=float("nan")), "Retry.factor"),
        (lambda: Retry(factor=float("inf")), "Retry.factor"),
        (lambda: Retry(factor="2"), "Retry.factor"),  # type: ignore[arg-type]
        (lambda: Supervision(attempts=0), "Supervision.attempts"),
        (lambda: Supervision(attempts=1001), "Supervision.attempts"),
        (lambda: Supervision(rounds=0), "Supervision.rounds"),
        (lambda: Supervision(rounds=None), "Supervision.rounds"),  # type: ignore[arg-type]
        (lambda: Supervision(then="retry"), "Supervision.then"),  # type: ignore[arg-type]
        (lambda: ConvoyPolicy(head="run"), "ConvoyPolicy.head"),  # type: ignore[arg-type]
        (lambda: ConvoyPolicy(gap="run"), "ConvoyPolicy.gap"),  # type: ignore[arg-type]
        (lambda: remote.step(retry=3), "retry is 3"),  # type: ignore[call-overload]
        (lambda: remote.step(supervision="hold"), "supervision is 'hold'"),  # type: ignore[call-overload]
        (lambda: remote.step(pivot="yes"), "pivot is 'yes'"),  # type: ignore[call-overload]
        (lambda: remote.step(effect_free=1), "effect_free is 1"),  # type: ignore[call-overload]
        (lambda: reserve.compensation(retry=3), "retry is 3"),  # type: ignore[call-overload]
        (lambda: reserve.compensation(supervision=3), "supervision is 3"),  # type: ignore[call-overload]
        (lambda: workflow(supervision=Retry()), "supervision is Retry"),  # type: ignore[call-overload]
        (lambda: workflow(convoy_policy=3), "convoy_policy is 3"),  # type: ignore[call-overload]
        (lambda: reserve(1).options(retry=Supervision()), "retry is Supervision"),  # type: ignore[arg-type]
        (lambda: reserve(1).options(supervision=1), "supervision is 1"),  # type: ignore[arg-type]
        (lambda: reserve(1).options(pivot=1), "pivot is 1"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_out_of_range_or_of_another_type_is_refused_and_named(declare: Any, named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        declare()


def test_policies_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Retry().tries = 5  # type: ignore[misc]


# --- types that cannot be told apart
@dataclass
class Card:
    number: str


@dataclass
class Invoice:
    number: str


class TaggedCard(msgspec.Struct, tag=True):
    number: str


class TaggedInvoice(msgspec.Struct, tag=True):
    number: str


def test_alternatives_that_look_alike_are_refused_with_the_parameter_and_the_remedy() -> None:
    def pay(attempt: Attempt, amount: int, by: Card | Invoice) -> None: ...

    with pytest.raises(DefinitionError, match=r"step pay: parameter by .* Give the alternatives a tag"):
        remote.step(pay)


def test_a_result_that_cannot_be_told_apart_is_refused() -> None:
    def pay(attempt: Attempt) -> Card | Invoice: ...

    with pytest.raises(DefinitionError, match="step pay: result"):
        remote.step(pay)

    async def flow() -> list[Card | Invoice]: ...

    with pytest.raises(DefinitionError, match="workflow flow: result"):
        workflow(flow)


def test_alternatives_with_a_tag_are_taken() -> None:
    @Agent("a").step
    def pay(attempt: Attempt, by: TaggedCard | TaggedInvoice) -> TaggedCard | None: ...

    text = pay.signature.bind((TaggedInvoice("n"),), {})
    assert pay.signature.arguments(text) == {"by": TaggedInvoice("n")}


@pytest.mark.parametrize("annotation", ["Missing.thing.", "int.missing", "None | 5", "list[int"])
def test_a_type_that_cannot_be_read_is_refused_at_its_definition(annotation: str) -> None:
    def step(attempt: Attempt, value: int) -> None: ...

    step.__annotations__["value"] = annotation
    with pytest.raises(DefinitionError, match="step step: a type cannot be read"):
        Agent("a").step(step)


def test_a_value_that_is_no_type_is_refused() -> None:
    def step(attempt: Attempt, value: 5) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(DefinitionError, match="step step: parameter value"):
        Agent("a").step(step)


# --- Apps
def test_an_app_knows_its_parts_and_opens_nothing() -> None:
    agents = (Agent("a"), Agent("b"))
    shop = App("shop", agents=iter(agents), workflows=[fulfil], store="sqlite:////nowhere/at/all.db")
    assert (shop.agents, shop.workflows) == (agents, (fulfil,))
    assert repr(shop) == "<App shop: 2 Agents, 1 workflows>"


def test_doubled_names_in_an_app_are_refused() -> None:
    first, second = Agent("first"), Agent("second")
    first.step(reserve.function)
    second.step(reserve.function)
    with pytest.raises(DefinitionError, match="two steps are named 'reserve'; give one of them another name="):
        App("shop", agents=[first, second])
    with pytest.raises(DefinitionError, match="two Agents are named 'first'"):
        App("shop", agents=[first, Agent("first")])
    with pytest.raises(DefinitionError, match="two workflows are named 'fulfil'"):
        App("shop", workflows=[fulfil, workflow(fulfil.function)])


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("agents", [charge]),
        ("agents", remote),
        ("agents", ["remote"]),
        ("agents", None),
        ("workflows", [fulfil.function]),
        ("workflows", [remote]),
    ],
)
def test_parts_of_another_kind_are_refused(parameter: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=f"{parameter} of an App is"):
        App("shop", **{parameter: value})


async def test_a_closed_app_says_how_to_open_it() -> None:
    shop = App("shop", agents=[remote], workflows=[fulfil])
    with pytest.raises(InvalidInput, match="use `async with app:`"):
        await shop.submit(fulfil(1))


# --- resources
def test_a_resource_must_yield() -> None:
    agent = Agent("a")
    with pytest.raises(DefinitionError, match="resource plain of Agent a: write it as a function that yields"):

        @agent.resource
        def plain() -> Iterator[int]:
            return iter([1])


def test_a_resource_outside_of_its_steps_says_where_it_is_open() -> None:
    agent = Agent("bank")

    @agent.resource
    async def client() -> AsyncIterator[int]:
        yield 1

    @agent.resource
    def pool() -> Iterator[int]:
        yield 1

    for resource in (client, pool):
        with pytest.raises(ArrieroError, match=r"\(\) is open only inside steps of Agent 'bank'"):
            resource()
    assert agent.resources == [client, pool]


# --- call values
def test_call_values_are_coroutines_in_full() -> None:
    for call in (charge(1), fulfil(1)):
        assert isinstance(call, collections.abc.Coroutine)
        assert asyncio.iscoroutine(call)
        assert inspect.isawaitable(call)
        call.close()
        call.close()


def test_a_call_value_that_is_dropped_is_silent() -> None:
    charge(1)
    fulfil(1)


async def test_awaiting_a_step_outside_of_a_workflow_says_what_to_do() -> None:
    with pytest.raises(ArrieroError, match=r"app\.submit\(charge\(\.\.\.\)\), or call charge\.function\(attempt"):
        await charge(1)
    with pytest.raises(ArrieroError, match="runs only inside a workflow"):
        await asyncio.gather(charge(1))
    with pytest.raises(ArrieroError, match="runs only inside a workflow"):
        charge(1).send(None)
    with pytest.raises(KeyError):
        charge(1).throw(KeyError("thrown in"))


async def test_awaiting_a_workflow_outside_of_one_says_what_to_do() -> None:
    with pytest.raises(
        DefinitionError, match=r"start it with app\.submit\(fulfil\(\.\.\.\)\), then await task\.result\(\)"
    ):
        await fulfil(1)
    with pytest.raises(DefinitionError, match="start it with"):
        fulfil(1).send(None)
    with pytest.raises(KeyError):
        fulfil(1).throw(KeyError("thrown in"))


def test_options_change_one_call_and_leave_the_rest() -> None:
    call = charge(1)
    strict = Supervision(attempts=1)
    once = call.options(key="k", complete_within=timedelta(seconds=3), retry=Retry(tries=1))
    twice = once.options(wait_within=4, supervision=strict, pivot=True)
    assert call.changed.key is None
    assert (twice.changed.key, twice.changed.complete_within, twice.changed.wait_within) == ("k", 3.0, 4.0)
    assert (twice.changed.retry, twice.changed.supervision, twice.changed.pivot) == (Retry(tries=1), strict, True)
    assert twice.options(pivot=False).changed.pivot is False
    assert (twice.arguments, twice.step) == (call.arguments, charge)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\x7f", "\ud800", 7])
def test_a_bad_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="key of charge"):
        charge(1).options(key=key)


@pytest.mark.parametrize("share", [0, -1, 1.5, True, "3", 1_001])
def test_a_share_must_be_a_whole_number(share: Any) -> None:
    with pytest.raises(DefinitionError, match="workflow fulfil: share is"):
        workflow(share=share)(fulfil.function)


def test_a_workflow_has_no_share_unless_it_says_so() -> None:
    assert workflow(share=3)(fulfil.function).share == 3
    assert workflow(fulfil.function).share is None


async def test_a_hand_made_attempt_is_extended_and_keeps_checkpoints() -> None:
    attempt = testing.attempt(remaining=1.0, checkpointed={"page": 3})
    assert attempt.checkpointed == {"page": 3}
    assert (await attempt.extend(20), attempt.remaining) == (20.0, 20.0)
    await attempt.checkpoint([1])
    assert attempt.checkpointed == [1]
    attempt.checkpoint_sync(2)
    assert (attempt.checkpointed, attempt.extend_sync(timedelta(seconds=30))) == (2, 30.0)
    assert testing.undo(None, forward_checkpointed="t-7").forward_checkpointed == "t-7"


def test_extend_max_is_refused_where_it_is_shorter_than_the_attempts_own_time() -> None:
    with pytest.raises(DefinitionError, match="extend_max is 5 seconds; it must lie between 10"):
        Agent("short").step(complete_within=10, extend_max=5)


def test_options_of_a_child_task_are_checked_where_they_are_given() -> None:
    @workflow
    async def carry() -> None: ...

    call = carry().options(task_id="child", convoy="c-7", priority=9, tags={"tenant": "acme"}, detach=True)
    assert (call.child.task_id, call.child.convoy, call.child.priority) == ("child", "c-7", 9)
    assert (call.child.tags, call.child.is_detached) == ('{"tenant":"acme"}', True)
    assert call.options(priority=1).child.task_id == "child"
    for wrong in (
        {"task_id": ""},
        {"convoy": "x" * 300},
        {"priority": 10},
        {"tags": {"": "x"}},
        {"detach": 1},
        {"key": ""},
    ):
        with pytest.raises(InvalidInput):
            carry().options(**wrong)  # type: ignore[arg-type]  # as a caller without types would
