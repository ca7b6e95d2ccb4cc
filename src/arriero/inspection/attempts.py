"""Recent attempts and steps that are tried again: the facts that ``explain.outages`` judges.

They come from two places. Rows of steps say what is tried again now, however long ago its last attempt failed. The end
of the history says when attempts failed and succeeded: a step's row keeps only the last failure, and no index holds
when a step finished. Both are read as far as a limit goes, so the question stays cheap on a large store.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..model import Instant, step_number
from ..model.failures import StepFailure, read_step_failure

UNREADABLE = StepFailure("unknown", "its failure cannot be read")
SUCCEEDED = frozenset(("step.recorded", "compensation.recorded"))
FAILED = frozenset(("recover.applied", "step.failed", "compensation.failed"))


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """A step or compensation whose last attempt failed and that is tried again without anybody's help.

    Args:
        step: its label; of a compensation with ``undo:`` before it.
        attempt: the number of the attempt that runs, or of the next one.
        failure_count: attempts that failed, one after the other.
        failure: of the last one that failed.
        is_running: an attempt runs now.
        next_at: when the next attempt may begin; None while one runs, or while an operator keeps the task paused.
    """

    agent: str
    task_no: int
    task_id: str
    step: str
    attempt: int
    failure_count: int
    failure: StepFailure
    is_running: bool
    next_at: Instant | None


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests for one Agent.

    Args:
        due: requests that may be taken now, and ``oldest_at`` since when the oldest may.
        later: requests whose time has not come: each waits for its next attempt.
        running: running attempts.
    """

    agent: str
    due: int = 0
    oldest_at: Instant | None = None
    later: int = 0
    running: int = 0


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an attempt, or of a request that no Agent took in time. ``failure`` None: it succeeded."""

    at: Instant
    agent: str
    task_no: int
    failure: StepFailure | None


class AttemptSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """Recent attempts, and the steps that wait for the next one.

    Args:
        retrying: steps that are tried again; of each Agent as many as were asked for at most.
        requests: one for each Agent that is asked for something, by name.
        ends: in the order of their commits.
        ends_from: nothing that ended since is missing in ``ends``; None: nothing is missing at all.
    """

    now: Instant
    retrying: tuple[Retrying, ...]
    requests: tuple[Requests, ...]
    ends: tuple[AttemptEnd, ...]
    ends_from: Instant | None


class RecordedEnd(msgspec.Struct, frozen=True):
    """The end of an attempt as the history has it: the step by its number, not yet by its Agent."""

    at: Instant
    task_no: int
    step_no: int
    failure: StepFailure | None


class _PossibleEnd(msgspec.Struct):
    """Part of an event that reports an attempt's end; it also reads events that a later release has extended."""

    type: str
    step: Any = None
    failure: Any = None


_read_ends = msgspec.json.Decoder(list[_PossibleEnd]).decode


def read_failure(text: str | None) -> StepFailure:
    """Read the failure in a step's row; ``UNREADABLE`` if this release cannot read it."""
    try:
        return read_step_failure(text or "")
    except (msgspec.DecodeError, TypeError):  # ValidationError is a DecodeError
        return UNREADABLE


def read_attempt_ends(commits: Iterable[tuple[int, Instant, str]]) -> list[RecordedEnd]:
    """Read the ends of attempts in some commits, in their order.

    Args:
        commits: task_no, instant and events (JSON text) of each. One whose events cannot be read is left out:
            ``arriero check`` reports it.
    """
    found: list[RecordedEnd] = []
    for task_no, at, events in commits:
        try:
            ends = _read_ends(events)
        except (msgspec.DecodeError, TypeError):
            continue
        for event in ends:
            if isinstance(event.step, int) and event.type in SUCCEEDED | FAILED:
                failure = None if event.type in SUCCEEDED else _convert_failure(event.failure)
                found.append(RecordedEnd(at, task_no, step_number(task_no, event.step), failure))
    return found


def _convert_failure(failure: object) -> StepFailure:
    try:
        return msgspec.convert(failure, StepFailure)
    except msgspec.ValidationError:
        return UNREADABLE


def resolve_agents(ends: Iterable[RecordedEnd], agents: Mapping[int, str]) -> tuple[AttemptEnd, ...]:
    """Add the Agents of their steps to ends. ``agents``: by step_no; an end of a step that no longer exists is left out."""
    return tuple(
        AttemptEnd(at=end.at, agent=agents[end.step_no], task_no=end.task_no, failure=end.failure)
        for end in ends
        if end.step_no in agents
    )
