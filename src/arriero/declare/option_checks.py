"""Checks of the options of Agents and steps: what cannot work is refused where it is declared."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import DefinitionError
from ..model.policies import Adaptive, Duration, check_type, seconds

WEIGHT_MAX = 1_000_000
PREFERENCE_MAX = 1_000
F = TypeVar("F", bound=Callable[..., Any])
# What other libraries call an option, and what it is here.
_MEANT = {
    "timeout": "complete_within=SECONDS",
    "deadline": "complete_within=SECONDS",
    "retries": "retry=Retry(max_calls=NUMBER)",
    "max_retries": "retry=Retry(max_calls=NUMBER)",
    "max_calls": "retry=Retry(max_calls=NUMBER)",
    "max_attempts": "retry=Retry(max_calls=NUMBER)",
    "attempts": "supervision=Supervision(attempts=NUMBER)",
    "rounds": "supervision=Supervision(rounds=NUMBER)",
    "compensation": "a function below it, decorated with @STEP.compensation",
    "compensate": "a function below it, decorated with @STEP.compensation",
}


def explain_options(decorator: F) -> F:
    """Decorate what declares a definition: for an option that it does not have, the TypeError names the one meant."""

    @functools.wraps(decorator)
    def declare(*args: Any, **options: Any) -> Any:
        try:
            return decorator(*args, **options)
        except TypeError:
            parameters = inspect.signature(decorator).parameters
            known = [one.name for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
            unknown = next((name for name in options if name not in parameters), None)
            if unknown is None:
                raise
            name = "Agent" if decorator.__name__ == "__init__" else decorator.__name__
            raise TypeError(_explain_option(name, unknown, known)) from None

    return cast(F, declare)


def _explain_option(decorator: str, unknown: str, known: list[str]) -> str:
    from difflib import get_close_matches  # only for an error

    meant = _MEANT.get(unknown, "")
    near = next(iter(get_close_matches(unknown, known, 1)), "")
    if meant and (meant.partition("=")[0] in known or "effect_free" in known):  # a step has all that is meant
        remedy = f"write {meant}"
    elif meant:
        remedy = f"give it to a step, as {meant}"
    else:
        remedy = f"write {near}=" if near else f"its options are {', '.join(known)}"
    return f"{decorator} has no option {unknown}=: {remedy}"


def check_weight(agent: str, weight: Any) -> float:
    """The weight of ``Agent(weight=)``. Raises DefinitionError."""
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 < weight <= WEIGHT_MAX:
        raise DefinitionError(
            f"Agent {agent}: weight is {weight!r}; it must be a number above 0 and at most {WEIGHT_MAX:,}"
        )
    return float(weight)


def check_preference(agent: str, preference: Any) -> int:
    """The preference of ``Agent(preference=)``. Raises DefinitionError."""
    if isinstance(preference, bool) or not isinstance(preference, int) or not 0 <= preference <= PREFERENCE_MAX:
        raise DefinitionError(
            f"Agent {agent}: preference is {preference!r}; it must be a whole number from 0 to {PREFERENCE_MAX:,}; 0 goes first"
        )
    return preference


def check_base(agent: str, base: Any, *, breaker_key: object) -> None:
    """Check ``Agent(provides=)``. Raises DefinitionError.

    Args:
        base: an Agent, or None.
        breaker_key: of the provider: what it says must hold for all providers, so only the base has one.
    """
    if base is None:
        return
    if base.provides is not None:
        raise DefinitionError(
            f"Agent {agent} provides {base.name}, which itself provides {base.provides.name}; give provides= the Agent whose"
            " steps the workflows call"
        )
    if base.name == agent:
        raise DefinitionError(f"Agent {agent} provides an Agent of its own name; give it another name")
    if breaker_key is not None:
        raise DefinitionError(
            f"Agent {agent}: the breaker_key of {base.name}, whose steps it provides, holds for it too; leave it out here"
        )


MAX_IN_FLIGHT = 10
MAX_IN_FLIGHT_MAX = 100_000


def check_run_in(function: Callable[..., Any], run_in: object) -> None:
    """Refuse a function that a child process could not run. Raises DefinitionError."""
    name = getattr(function, "__qualname__", repr(function))
    if run_in != "process":
        raise DefinitionError(f"step {name}: run_in is {run_in!r}; it must be 'thread' or 'process'")
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(f"step {name}: run_in='process' is for plain functions: write `def`, or leave run_in out")
    if not inspect.isfunction(function) or "<" in name:  # <locals>, <lambda>
        raise DefinitionError(
            f"step {name}: with run_in='process' a child process must be able to import it: define it with `def` at the top"
            " of a module"
        )
    if function.__module__ == "__main__":
        raise DefinitionError(
            f"step {name}: with run_in='process' a child process must be able to import it, and it is in the program that was"
            " started: move it to a module that this program imports"
        )


def check_extend_max(extend_max: Duration | None, complete_within: Duration) -> float | None:
    """Seconds of ``extend_max``. Raises DefinitionError: it is shorter than the attempt's time without it."""
    return (
        None
        if extend_max is None
        else seconds(extend_max, "extend_max", at_least=seconds(complete_within, "complete_within", at_least=0.001))
    )


def check_max_in_flight(agent: str, places: Any) -> int:
    """The places of ``Agent(max_in_flight=)``; None: ``MAX_IN_FLIGHT``. Raises DefinitionError."""
    if places is None:
        return MAX_IN_FLIGHT
    if isinstance(places, bool) or not isinstance(places, int) or not 1 <= places <= MAX_IN_FLIGHT_MAX:
        raise DefinitionError(f"Agent {agent}: max_in_flight is {places!r}; it must be from 1 to {MAX_IN_FLIGHT_MAX:,}")
    return places


def check_retry_budget(agent: str, share: Any) -> float | None:
    """The share of ``Agent(retry_budget=)``. Raises DefinitionError."""
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise DefinitionError(
            f"Agent {agent}: retry_budget is {share!r}; give a share of its calls above 0 and at most 1, such as 0.2, or None"
            " for no budget; for no retries at all give Retry(tries=1) and Supervision(attempts=1)"
        )
    return float(share)


def check_adaptive(agent: str, adaptive: Any, places: int) -> Adaptive | None:
    """The policy of ``Agent(adaptive=)``. Raises DefinitionError, also if its bounds are the wrong way round."""
    if isinstance(adaptive, bool):
        adaptive = Adaptive() if adaptive else None
    if adaptive is None:
        return None
    if not isinstance(adaptive, Adaptive):
        raise DefinitionError(f"Agent {agent}: adaptive is {adaptive!r}; give True, False or Adaptive(minimum=...)")
    if adaptive.minimum > places:
        raise DefinitionError(
            f"Agent {agent}: Adaptive.minimum is {adaptive.minimum:,}, above max_in_flight, which is {places:,}: lower the"
            " minimum or raise max_in_flight"
        )
    return adaptive


def check_key_function(what: str, function: Any) -> Callable[..., str] | None:
    """A function of a step's arguments that returns a key, or None. Raises DefinitionError naming ``what``."""
    if function is not None and not callable(function):
        raise DefinitionError(f"{what} is {function!r}; give a function of the step's arguments")
    checked: Callable[..., str] | None = function
    return checked


def count_reserved(agent: str, reserve: Any, places: int) -> int:
    """Count the places that ``Agent(reserve=)`` keeps. Raises DefinitionError, also if none is left for other priorities."""
    is_number = isinstance(reserve, int | float) and not isinstance(reserve, bool)
    if not is_number or not 0 <= reserve < places or (reserve >= 1 and reserve != int(reserve)):
        raise DefinitionError(
            f"Agent {agent}: reserve is {reserve!r}; it must be a share below 1, such as 0.2, or a whole number of places below"
            f" max_in_flight, which is {places:,}"
        )
    reserved = int(reserve) if reserve >= 1 else math.ceil(reserve * places)
    if reserved >= places:
        raise DefinitionError(
            f"Agent {agent}: reserve {reserve!r} keeps all of the {places:,} places, so no task of a priority below 8 would ever"
            " run: raise max_in_flight or lower reserve"
        )
    return reserved


def check_flags(**flags: Any) -> None:
    """Check options that are True or False. Raises DefinitionError naming the option."""
    for option, value in flags.items():
        check_type(value, bool, option)
