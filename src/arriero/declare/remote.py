"""Steps that are declared by their signature alone, because a program outside of Python carries them out."""

import dis
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from ..errors import DefinitionError
from ..model.policies import ONE_TRY, Retry
from .option_checks import check_run_in
from .step_options import DEFAULT_RETRY

PLACES_MAX = 1_000  # of a remote Agent in one process, where nobody said how many: what programs ask for is the bound


def _say_nothing() -> None: ...


async def _say_nothing_later() -> None: ...


def _list_instructions(code: CodeType) -> list[tuple[str, Any]]:
    """List the instructions of a function, without those that depend on its line numbers and its docstring."""
    listed = (i for i in dis.get_instructions(code) if i.opname not in ("NOP", "RESUME", "CACHE"))
    return [(i.opname, i.argval if i.opname.startswith(("LOAD_CONST", "RETURN_CONST")) else None) for i in listed]


_EMPTY = tuple(_list_instructions(function.__code__) for function in (_say_nothing, _say_nothing_later))


def refuse_body(function: Callable[..., Any], what: str) -> None:
    """Refuse a function that does something. Raises DefinitionError."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or _list_instructions(code) not in _EMPTY:
        raise DefinitionError(
            f"{what} is remote: a program outside of Python carries it out, so its body would never run; write `...` as its"
            " body, or leave remote=True out"
        )


def check_step_function(function: Callable[..., Any], run_in: Any, *, is_remote: bool) -> None:
    """Check that a function can be the body of a step. Raises DefinitionError."""
    if is_remote:
        refuse_body(function, f"step {getattr(function, '__name__', function)}")
    elif run_in != "thread":
        check_run_in(function, run_in)


def refuse_options(what: str, *, run_in: object = "thread", retry: object = None, default: object = None) -> None:
    """Refuse options that mean nothing for a remote step. ``default``: the retry that stands for none. Raises DefinitionError."""
    if run_in != "thread":
        raise DefinitionError(f"{what} is remote: nothing of it runs here, so leave run_in out")
    if retry is not default:
        raise DefinitionError(
            f"{what} is remote: one attempt delivers it once, and its program makes its own tries; leave retry out and say with"
            " supervision=Supervision(attempts=...) how many attempts there are"
        )


def choose_remote_retry(what: str, run_in: object, retry: Retry, *, pushes: bool) -> Retry:
    """Return the retry of a remote step or of its compensation, as ``what`` names it.

    Args:
        pushes: whether the Agent calls its program: then each call is a try. Else one attempt is one try.
    Raises: DefinitionError - an option that means nothing for a remote step.
    """
    refuse_options(what, run_in=run_in, retry=retry, default=retry if pushes or retry.max_calls else DEFAULT_RETRY)
    return retry if pushes else ONE_TRY  # a request is delivered once in an attempt; its program makes its own tries


def refuse_mixture(agent: str, name: str, others: Iterable[tuple[str, bool]], is_remote: bool) -> None:
    """Refuse an Agent with remote steps and others. ``others``: the steps declared so far. Raises DefinitionError."""
    for other, other_is_remote in others:
        if other_is_remote is not is_remote:
            here, there = (other, name) if is_remote else (name, other)
            raise DefinitionError(
                f"Agent {agent}: step {there} is remote and step {here} is not; the steps of an Agent are all remote or none:"
                " declare a second Agent for the others"
            )


def refuse_local_part(agent: str, part: str) -> None:
    """Refuse a resource or a probe of an Agent with remote steps. Raises DefinitionError."""
    raise DefinitionError(
        f"Agent {agent}: its steps are remote, so nothing here would use its {part}; leave the {part} out"
    )
