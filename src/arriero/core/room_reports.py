"""Report of a process about the Agents that it hosts: free places, and outcomes of their last calls."""

from collections.abc import Iterable, Mapping

import msgspec

from ..model import NOT_SAID, Instant
from ..processes import ProcessRow
from .apps import may_run
from .lease import is_alive, read_process_about


class AgentReport(msgspec.Struct, frozen=True, array_like=True):
    """One Agent in one process.

    Attributes:
        free: places that a request of any priority could take.
        places: all of them.
        health: by its calls there, if other Agents provide the same steps; see ``core.routing.compute_health``.
        is_barred: the breaker of the whole Agent is known there not to be closed, or a person has paused it.
        asked_at: when a program outside of Python asked last for its requests; 0: none has, or its steps are Python code.
    """

    free: int
    places: int
    health: float = 1.0
    is_barred: bool = False
    asked_at: Instant = Instant(0)


_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(dict[str, AgentReport]).decode


def encode_reports(reports: Mapping[str, AgentReport]) -> str:
    """Encode the reports of a process, by Agent, for its row; empty if it hosts none."""
    return _encode(reports).decode() if reports else ""


def read_reports(process: ProcessRow) -> dict[str, AgentReport]:
    """Read the reports in a process's row, by Agent. Empty: it has not reported yet, or is of another release."""
    if not process.room:
        return {}
    try:
        return _read(process.room)
    except msgspec.MsgspecError:  # a hint that cannot be read is none
        return {}


class SurveyedAgent(msgspec.Struct, frozen=True):
    """An Agent over several processes.

    Attributes:
        steps: that a process alive has the code of.
        free: free places, added up; None: no process has reported.
        places: all places that were reported.
        health: by the calls of the process that sees most trouble.
        is_barred: a process knows that its breaker is not closed.
    """

    steps: frozenset[str]
    free: int | None = None
    places: int = 0
    health: float = 1.0
    is_barred: bool = False

    @property
    def has_room(self) -> bool:
        """True unless all its places are known to be taken."""
        return self.free is None or self.free > 0


def survey_hosts(processes: Iterable[ProcessRow], now: Instant, app: str) -> dict[str, SurveyedAgent]:
    """Survey which Agents are hosted for an App by processes that are alive and take requests.

    Args:
        app: tasks of this App; empty: of any.
    """
    found: dict[str, SurveyedAgent] = {}
    for process in processes:
        about = read_process_about(process)
        if about.leaving or not (is_alive(process, "agents", now) or is_alive(process, "http", now)):
            continue
        if NOT_SAID not in (app, about.app) and not may_run(about.app, app):
            continue
        reports = read_reports(process)
        for agent in {agent for agent, _ in about.steps}:
            steps = frozenset(step for of, step in about.steps if of == agent)
            found[agent] = _join(found.get(agent), steps, reports.get(agent))
    return found


def _join(one: SurveyedAgent | None, steps: frozenset[str], report: AgentReport | None) -> SurveyedAgent:
    before = SurveyedAgent(frozenset()) if one is None else one
    if report is None:
        return SurveyedAgent(before.steps | steps, before.free, before.places, before.health, before.is_barred)
    return SurveyedAgent(
        before.steps | steps,
        (before.free or 0) + report.free,
        before.places + report.places,
        min(before.health, report.health),
        before.is_barred or report.is_barred,
    )
