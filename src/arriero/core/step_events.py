"""The events that tell of a step as its row stands."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from ..events.step import CompensationDispatched, StepDispatched, StepOpened, StepReopened
from ..history_chain import payload_hash
from ..model import STEP_BITS, StepKind, StepRow, StepState


def build_dispatched(
    step: StepRow, limits: Mapping[str, str] | None = None, moved_to: str = ""
) -> StepDispatched | CompensationDispatched:
    """Build the event of an attempt that begins.

    Args:
        limits: see ``core.limits.hash_keys``.
        moved_to: the Agent that takes it over from another one.
    """
    kind = CompensationDispatched if step.kind is StepKind.COMPENSATION else StepDispatched
    assert step.complete_by is not None
    assert step.locked_by is not None
    return kind(
        step.ordinal,
        step.attempt,
        step.fence,
        step.complete_by,
        step.locked_by,
        step.idempotency_key,
        dict(limits) if limits else None,
        moved_to,
    )


def build_opened(step: StepRow) -> StepOpened:
    """Build the event of a step, compensation or timer that is opened."""
    return StepOpened(**_list_declared_fields(step))


def build_reopened(step: StepRow) -> StepReopened:
    """Build the event of a step or timer that is opened again."""
    return StepReopened(**_list_declared_fields(step), attempt=step.attempt)


def _list_declared_fields(step: StepRow) -> dict[str, Any]:
    fields = {"step": step.ordinal, "kind": step.kind, "name": step.name, "key": step.key}
    if step.kind is StepKind.TIMER:
        return {**fields, "fire_at": step.not_before}
    return {
        **fields,
        "agent": step.agent,
        "idempotency_key": step.idempotency_key,
        "arguments": payload_hash(step.arguments),
        "policy": Raw(step.policy.encode()),
        "pivot": step.pivot,
        "effect_free": step.effect_free,
        "undoable": step.compensation is not None,
        "undoes": None if step.undoes is None else step.undoes & ((1 << STEP_BITS) - 1),
        "planned": step.state is StepState.PLANNED,
        "routing": step.routing,
    }
