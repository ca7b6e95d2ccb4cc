"""Options of steps: their defaults, how they become a step's policy, and how one call changes them."""

from typing import Literal

import msgspec

from ..model.policies import Duration, Retry, StepPolicy, Supervision, check_calls, check_type, seconds, spread_calls
from ..payloads import codec
from .option_checks import check_extend_max

DEFAULT_RETRY = Retry()
DEFAULT_SUPERVISION = Supervision()
COMPLETE_WITHIN = 30.0
RunIn = Literal["thread", "process"]


class StepOptions(msgspec.Struct, frozen=True):
    """Changes of one call by ``options()``; None leaves what the definition says."""

    key: str | None = None
    complete_within: float | None = None
    wait_within: float | None = None
    retry: Retry | None = None
    supervision: Supervision | None = None
    pivot: bool | None = None


NO_OPTIONS = StepOptions()


def change_options(
    old: StepOptions,
    step_name: str,
    *,
    key: str | None,
    complete_within: Duration | None,
    wait_within: Duration | None,
    retry: Retry | None,
    supervision: Supervision | None,
    pivot: bool | None,
) -> StepOptions:
    """Check the changes of one call and add them to its earlier ones; None leaves what is there.

    Raises: InvalidInput for a bad key; DefinitionError for a bad duration or policy.
    """
    if retry is not None:
        check_calls(retry, supervision, f"a call of {step_name}")
    return StepOptions(
        key=old.key if key is None else codec.check_id(key, f"key of {step_name}"),
        complete_within=old.complete_within
        if complete_within is None
        else seconds(complete_within, "complete_within", at_least=0.001),
        wait_within=old.wait_within if wait_within is None else seconds(wait_within, "wait_within", at_least=0.001),
        retry=old.retry if retry is None else check_type(retry, Retry, "retry"),
        supervision=old.supervision if supervision is None else check_type(supervision, Supervision, "supervision"),
        pivot=old.pivot if pivot is None else check_type(pivot, bool, "pivot"),
    )


def build_step_policy(
    complete_within: Duration,
    wait_within: Duration | None,
    retry: Retry,
    supervision: Supervision | None,
    extend_max: Duration | None,
    max_calls: int | None,
) -> StepPolicy:
    """Check the options of a step or of a compensation, and build its policy. Raises DefinitionError."""
    given = DEFAULT_SUPERVISION if supervision is None else check_type(supervision, Supervision, "supervision")
    retry, spread = spread_calls(max_calls, check_type(retry, Retry, "retry"), given)
    return StepPolicy(
        seconds(complete_within, "complete_within", at_least=0.001),
        None if wait_within is None else seconds(wait_within, "wait_within", at_least=0.001),
        retry,
        spread,
        check_extend_max(extend_max, complete_within),
    )
