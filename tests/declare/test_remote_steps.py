"""Steps that are declared by their signature alone: what is accepted, and what is refused with its remedy."""

from typing import Any

import pytest

from arriero import Agent, Attempt, DefinitionError, Retry, Supervision, Undo


def test_a_remote_step_is_declared_by_its_signature_alone() -> None:
    shipping = Agent("shipping")

    @shipping.step(remote=True, complete_within=20, supervision=Supervision(attempts=4), pivot=True)
    def book(attempt: Attempt, parcel: str, *, pieces: int = 1) -> str: ...  # type: ignore[empty-body]

    @shipping.step(remote=True)
    async def print_label(attempt: Attempt, parcel: str) -> str:  # type: ignore[empty-body]
        """Print it."""

    @shipping.step(remote=True)
    def close(attempt: Attempt) -> None:
        pass

    @book.compensation
    def cancel(undo: Undo[str], parcel: str, *, pieces: int = 1) -> None:
        """Cancel it."""

    assert book.is_remote
    assert shipping.is_remote
    assert book.policy.retry.tries == 1
    assert book.policy.calls_max == 4
    assert book.undone_by is not None
    assert book.undone_by.policy.retry.tries == 1
    assert book("p", pieces=2).arguments == '{"parcel":"p","pieces":2}'
    assert print_label.__doc__ == "Print it."


def body_of_a_value(attempt: Attempt) -> int:
    return 1


def body_that_calls(attempt: Attempt) -> None:
    len("x")


async def body_that_waits(attempt: Attempt) -> None:
    await print_later()


async def print_later() -> None: ...


def body_that_raises(attempt: Attempt) -> None:
    raise NotImplementedError


@pytest.mark.parametrize("function", [body_of_a_value, body_that_calls, body_that_waits, body_that_raises, dict])
def test_a_body_that_would_never_run_is_refused(function: Any) -> None:
    with pytest.raises(DefinitionError, match=r"is remote: .* write `\.\.\.` as its body"):
        Agent("shipping").step(remote=True)(function)


def test_the_compensation_of_a_remote_step_has_no_body() -> None:
    shipping = Agent("shipping")

    @shipping.step(remote=True)
    def book(attempt: Attempt) -> None: ...

    with pytest.raises(DefinitionError, match="compensation of book is remote"):

        @book.compensation
        def cancel(undo: Undo[None]) -> None:
            len("x")


@pytest.mark.parametrize("first", [True, False])
def test_the_steps_of_an_agent_are_all_remote_or_none(first: bool) -> None:
    shipping = Agent("shipping")

    @shipping.step(remote=first, name="one")
    def one(attempt: Attempt) -> None: ...

    with pytest.raises(DefinitionError, match="all remote or none: declare a second Agent"):

        @shipping.step(remote=not first, name="two")
        def two(attempt: Attempt) -> None: ...

    assert list(shipping.steps) == ["one"]


def test_options_that_mean_nothing_there_are_refused() -> None:
    shipping = Agent("shipping")
    with pytest.raises(DefinitionError, match="leave run_in out"):
        shipping.step(remote=True, run_in="process")
    with pytest.raises(DefinitionError, match=r"leave retry out and say with supervision"):
        shipping.step(remote=True, retry=Retry(tries=2))

    @shipping.step(remote=True)
    def book(attempt: Attempt) -> None: ...

    with pytest.raises(DefinitionError, match="leave retry out"):
        book.compensation(retry=Retry(tries=2))
    with pytest.raises(DefinitionError, match="leave retry out"):
        book().options(retry=Retry(tries=2))
    with pytest.raises(DefinitionError, match="remote is 1"):
        shipping.step(remote=1)  # type: ignore[call-overload]


def test_a_remote_agent_has_no_resource_and_no_probe() -> None:
    shipping, other = Agent("shipping"), Agent("other")

    @shipping.step(remote=True)
    def book(attempt: Attempt) -> None: ...

    with pytest.raises(DefinitionError, match="leave the resource out"):

        @shipping.resource
        def connection() -> Any:
            yield 1

    with pytest.raises(DefinitionError, match="leave the probe out"):

        @shipping.probe
        def is_well() -> None: ...

    @other.probe
    def is_well_too() -> None: ...

    with pytest.raises(DefinitionError, match="leave the probe out"):

        @other.step(remote=True)
        def look(attempt: Attempt) -> None: ...


def test_a_remote_agent_has_as_many_places_as_its_programs_ask_for_unless_they_are_bounded() -> None:
    free, bounded = Agent("free"), Agent("bounded", max_in_flight=3)
    for agent in (free, bounded):

        @agent.step(remote=True)
        def book(attempt: Attempt) -> None: ...

    assert (free.max_in_flight, bounded.max_in_flight, Agent("local").max_in_flight) == (1_000, 3, 10)
