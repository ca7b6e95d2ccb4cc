"""Definitions of the functions that get an Attempt or an Undo: those whose first parameter is annotated so."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pytest

import arriero
from arriero import (
    Agent,
    App,
    ArrieroError,
    AsyncStep,
    AsyncStepWithoutAttempt,
    Attempt,
    AttemptOver,
    DefinitionError,
    InvalidInput,
    Permanent,
    SyncStep,
    SyncStepWithoutAttempt,
    TaskCompensated,
    Undo,
    current_attempt,
    current_undo,
    testing,
    workflow,
)
from arriero.declare.attempt import StepTry, current_try

if TYPE_CHECKING:
    import arriero as by_alias
    from arriero import Attempt as Hidden


class HasKey(Protocol):
    @property
    def idempotency_key(self) -> str: ...


def first_typed(of: Any) -> Any:
    async def charge(first: Any, amount: int) -> None: ...

    charge.__annotations__["first"] = of
    return charge


def list_arguments(function: Any) -> list[str]:
    return Agent("a").step(function).signature.list_names()


# --- steps
def test_a_step_without_an_attempt_takes_its_arguments_alone() -> None:
    agent = Agent("a")

    @agent.step
    async def charge(amount: int) -> str:
        return f"charged {amount}"

    @agent.step(complete_within=5)
    def reserve(pieces: int, *, shelf: str = "a") -> int:
        return pieces

    @agent.step
    def tidy() -> None: ...

    assert (type(charge), type(reserve)) == (AsyncStepWithoutAttempt, SyncStepWithoutAttempt)
    assert asyncio.run(charge.function(3)) == "charged 3"
    assert reserve.function(2) == 2
    assert reserve(2, shelf="b").arguments == '{"pieces":2,"shelf":"b"}'
    assert tidy().arguments == "{}"
    with pytest.raises(InvalidInput, match="step charge takes 1 positional argument, 2 were given"):
        charge(1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "of",
    [
        Attempt,
        "Attempt",
        "arriero.Attempt",
        "by_alias.Attempt",  # for type checkers alone
        Annotated[Attempt, "note"],
        "Annotated[Attempt, 'note']",
        Attempt | None,
        "Attempt | None",
        object,
        HasKey,
    ],
    ids=str,
)
def test_a_step_whose_first_parameter_is_an_attempt_gets_it(of: Any) -> None:
    assert list_arguments(first_typed(of)) == ["amount"]


@pytest.mark.parametrize("of", [int, "int", Any, str | None, list[int], Annotated[int, "note"]], ids=str)
def test_a_first_parameter_of_another_type_is_an_argument(of: Any) -> None:
    assert list_arguments(first_typed(of)) == ["first", "amount"]


def test_an_attempt_imported_for_type_checkers_alone_is_known_by_its_name() -> None:
    def charge(attempt: by_alias.Attempt, amount: int) -> int: ...  # type: ignore[empty-body]

    step = Agent("a").step(charge)
    assert isinstance(step, SyncStep)
    assert step.signature.arguments(step(3).arguments) == {"amount": 3}


def test_an_alias_for_type_checkers_alone_is_refused_where_its_step_is_called() -> None:
    def charge(attempt: Hidden, amount: int) -> None: ...

    with pytest.raises(DefinitionError, match="'Hidden' is not defined"):
        Agent("a").step(charge)(3)


def test_a_parameter_without_a_type_is_an_argument_and_what_it_was_before_is_said() -> None:
    def charge(ctx, amount): ...  # type: ignore[no-untyped-def]

    step = Agent("a").step(charge)
    assert step(1, 2).arguments == '{"amount":2,"ctx":1}'
    with pytest.raises(InvalidInput, match="missing amount; arriero gives ctx an Attempt only if .*`ctx: Attempt`"):
        step(1)


@pytest.mark.parametrize("name", ["attempt", "undo"])
def test_a_first_parameter_that_is_named_like_an_attempt_needs_a_type(name: str) -> None:
    functions: Any = {"attempt": lambda attempt, amount: None, "undo": lambda undo, amount: None}
    with pytest.raises(DefinitionError, match=f"its first parameter {name} has no type: write `{name}: Attempt`"):
        Agent("a").step(name="charge")(functions[name])


# --- what cannot be given
def test_an_attempt_in_another_place_is_refused_with_the_place() -> None:
    def second(amount: int, attempt: Attempt) -> None: ...

    def optional(amount: int, attempt: Attempt | None = None) -> None: ...

    def by_name(*, attempt: Attempt) -> None: ...

    for function in (second, optional):
        with pytest.raises(DefinitionError, match="parameter attempt is an Attempt, .*: make it the first parameter"):
            Agent("a").step(function)
    with pytest.raises(DefinitionError, match=r"attempt is keyword-only; .* write it before the `\*`"):
        Agent("a").step(by_name)


def test_workflow_code_gets_no_attempt() -> None:
    async def flow(attempt: Attempt, amount: int) -> None: ...

    with pytest.raises(DefinitionError, match="parameter attempt is an Attempt, .*workflow code has none"):
        workflow(flow)


def test_a_step_gets_no_undo_and_no_subclass() -> None:
    class Own(Attempt): ...

    for of, named in ((Undo[int], "Undo"), (Own, "Own")):
        with pytest.raises(DefinitionError, match=f"first is typed {named}; a step gets an Attempt"):
            Agent("a").step(first_typed(of))


# --- compensations
@pytest.mark.parametrize("of", [Undo[int], Undo, "Undo[int]", "by_alias.Undo[int]", "Undo[Missing]", Attempt, None])
def test_a_compensation_gets_its_undo_if_its_first_parameter_says_so(of: Any) -> None:
    step: Any = Agent("a").step(lambda amount: None, name="charge")

    def refund(undo: Any, amount: Any) -> None: ...

    if of is None:
        del refund.__annotations__["undo"]
    else:
        refund.__annotations__["undo"] = of
    step.compensation(refund)
    assert step.undone_by.signature.is_given


def test_a_compensation_may_take_the_arguments_alone() -> None:
    agent = Agent("a")

    @agent.step
    def charge(attempt: Attempt, amount: int) -> int:
        return amount

    @charge.compensation
    def refund(amount: int) -> None: ...

    @agent.step
    def tidy() -> None: ...

    @tidy.compensation
    async def untidy() -> None: ...

    for step in (charge, tidy):
        assert step.undone_by is not None
        assert not step.undone_by.signature.is_given


def test_a_compensation_with_other_arguments_is_refused() -> None:
    agent = Agent("a")

    @agent.step
    def charge(amount: int) -> None: ...

    def none() -> None: ...

    def more(undo: Undo[None], order: str, amount: int) -> None: ...

    for function, taken in ((none, r"\(\)"), (more, r"\(order, amount\)")):
        with pytest.raises(DefinitionError, match=rf"takes {taken}; it gets the step's own arguments: \(amount\)"):
            charge.compensation(function)  # type: ignore[call-overload]


def test_remote_steps_and_their_compensations_may_leave_it_out() -> None:
    agent = Agent("a")

    @agent.step(remote=True)
    def charge(amount: int) -> int: ...  # type: ignore[empty-body]

    @charge.compensation
    def refund(amount: int) -> None: ...

    @agent.step(remote=True)
    async def ship(attempt: Attempt, amount: int) -> int: ...  # type: ignore[empty-body]

    assert (charge(3).arguments, ship(3).arguments) == ('{"amount":3}', '{"amount":3}')
    assert (type(charge), type(ship)) == (SyncStepWithoutAttempt, AsyncStep)


def test_a_provider_may_take_its_attempt_where_the_base_does_not() -> None:
    base = Agent("base")
    other = Agent("other", provides=base)

    @base.step
    def charge(amount: int) -> None: ...

    @other.step(name="charge")
    def charge_there(attempt: Attempt, amount: int) -> None: ...

    App("a", agents=[base, other])


# --- current_attempt() and current_undo()
def test_a_compensation_of_any_first_parameter_before_the_arguments_of_the_step_gets_its_undo() -> None:
    step: Any = Agent("a").step(lambda amount: None, name="charge")

    def refund(undo: Any, amount: Any) -> None: ...

    step.compensation(refund)
    assert step.undone_by.signature.list_names() == ["amount"]


def build_shop(seen: list[str]) -> tuple[App, Any, Any]:
    payments = Agent("payments")

    def note(where: str) -> None:
        attempt = current_attempt()
        seen.append(f"{where}: {attempt.step} {attempt.task_id} {attempt.number}")

    async def note_in_task(where: str) -> None:
        note(where)

    @payments.step
    async def charge(order: str) -> str:
        note("async")
        await asyncio.create_task(note_in_task("task"))
        await asyncio.to_thread(note, "to_thread")
        return current_attempt().idempotency_key

    @charge.compensation
    async def refund(order: str) -> None:
        undo = current_undo()
        seen.append(f"undo of {undo.result == undo.forward_key}: {undo is current_attempt()}")

    @payments.step(effect_free=True)
    def reserve(order: str) -> None:
        note("plain")
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(note, "thread"))
        thread.start()
        thread.join()
        raise Permanent("out of stock")

    @workflow
    async def fulfil(order: str) -> None:
        await charge(order)
        try:
            current_attempt()
        except ArrieroError as error:
            seen.append(str(error))
        await reserve(order)

    return App("shop", agents=[payments], workflows=[fulfil]), fulfil, charge


async def test_the_current_attempt_is_found_below_steps_and_the_undo_below_compensations() -> None:
    seen: list[str] = []
    app, fulfil, _ = build_shop(seen)
    async with testing.running(app) as world:
        task = await world.app.submit(fulfil("1"), task_id="t")
        with pytest.raises(TaskCompensated):
            await task.result()
    assert [line for line in seen if "workflow code" not in line] == [
        "async: charge t 1",
        "task: charge t 1",
        "to_thread: charge t 1",
        "plain: reserve t 1",
        "thread: reserve t 1",
        "undo of True: True",
    ]
    assert "arriero.current_attempt works only inside a step: workflow code has no attempt" in " ".join(seen)


async def test_what_a_test_puts_in_the_place_of_a_step_finds_the_attempt_too() -> None:
    app, fulfil, charge = build_shop([])
    keys = []

    def instead(order: str) -> str:
        keys.append(current_attempt().idempotency_key)
        return order

    async with testing.running(app) as world:
        world.replace(charge, instead)
        with pytest.raises(TaskCompensated):
            await (await world.app.submit(fulfil("1"))).result()
    assert len(keys) == 1


def test_outside_of_a_step_the_error_says_what_to_do() -> None:
    for function in (current_attempt, current_undo):
        with pytest.raises(ArrieroError, match=f"arriero.{function.__name__} works only inside a step .*copy_context"):
            function()


def test_a_test_says_which_attempt_is_the_current_one() -> None:
    with testing.current(testing.attempt(idempotency_key="k")) as attempt:
        assert current_attempt() is attempt
        with pytest.raises(ArrieroError, match="step test runs here and no compensation"):
            current_undo()
    with testing.current(testing.undo(3)) as undo:
        assert current_undo() is current_attempt() is undo


def test_code_that_outlives_its_attempt_is_stopped() -> None:
    def outlive() -> None:
        step_try = StepTry(testing.attempt())
        current_try.set(step_try)
        step_try.end()
        with pytest.raises(AttemptOver, match="the attempt of step test has ended"):
            arriero.current_attempt()

    contextvars.copy_context().run(outlive)
