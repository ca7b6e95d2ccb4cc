"""Choice between the Agents that provide the same steps, and the reports of processes about the Agents that they host.

A request gets its Agent when it is opened: by preference, weight, health and room. Until it is taken it may move to any other
provider. Once it was taken it stays, because the service of another Agent may not know its idempotency key: only a step that
is declared ``interchangeable`` moves then. A compensation must reach the service on which its step was done. So it moves only
if that step is interchangeable, also before it was ever taken.

Sources: smooth weighted round robin as in nginx; priority levels that spill over as in Envoy.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..model import NOT_SAID, Instant, StepKind, StepRow
from ..model.moves import NewStep
from ..model.policies import Breaker
from ..model.processes import ProcessRow
from .apps import may_run
from .breaker_book import Barred
from .lease import is_alive, read_process_about


class HeldRetries(msgspec.Struct, frozen=True, array_like=True):
    """Retries of one Agent in one process that wait for its retry budget.

    Attributes:
        share: of the calls of the process that may be retries.
        leaves_attempts: True if its Takes leave later attempts in the store.
        tries: running attempts that wait before their next try.
    """

    share: float
    leaves_attempts: bool
    tries: int


class AgentReport(msgspec.Struct, frozen=True, array_like=True):
    """One Agent in one process.

    Attributes:
        free: places that a request of any priority could take.
        places: all of them.
        health: by its calls there, if other Agents provide the same steps; see ``core.routing.compute_health``.
        is_barred: the breaker of the whole Agent is known there not to be closed, or an operator has paused it.
        asked_at: when a program outside of Python asked last for its requests; 0: none has, or its steps are Python code.
        held: retries that its retry budget holds back there; None: it holds none back.
    """

    free: int
    places: int
    health: float = 1.0
    is_barred: bool = False
    asked_at: Instant = Instant(0)
    held: HeldRetries | None = None


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
            steps = frozenset(step for of, step in about.list_begun() if of == agent)
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


HEALTH_MIN = 0.05  # of a closed breaker: a service that is healthy again is found out by a few calls
HEALTHY_FROM = (
    0.7  # from this health on, the Agents of a preference keep all calls; below it some go to the next preference
)
OVERFLOW_SECONDS = (
    2.0  # that a request waits for its own Agent before another one may take it over; polls are more frequent
)

PINNED = "pinned"  # StepRow.routing: once taken, it stays with its Agent
INTERCHANGEABLE = "interchangeable"  # it moves also between attempts


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An Agent that could get a request.

    Attributes:
        health: from 0 to 1, see ``compute_health``.
        has_room: a process that hosts it has a free place.
        is_barred: its breaker lets nothing through, or an operator keeps it from taking requests.
        awaits_canary: its breaker is not closed, and one attempt may go now.
        is_hosted: a process alive has the code of the step.
    """

    name: str
    weight: float = 1.0
    preference: int = 0
    health: float = 1.0
    has_room: bool = True
    is_barred: bool = False
    awaits_canary: bool = False
    is_hosted: bool = True


def compute_health(calls: int, failed: int, policy: Breaker | None) -> float:
    """Return the health of a service: 1 without failures, ``HEALTH_MIN`` where its breaker is about to open.

    Few calls say little, so failures are measured by the calls that the breaker needs at least.
    """
    if policy is None:
        return 1.0
    rate = failed / max(calls, policy.minimum)
    return max(1.0 - rate / policy.failure_rate, HEALTH_MIN)


def choose_agent(candidates: Sequence[Candidate], turns: Mapping[str, float]) -> tuple[str, dict[str, float]]:
    """Choose the Agent of a new request.

    Args:
        candidates: at least one; the base Agent first.
        turns: what the last choice returned; empty at first. By it the choices of many requests add up to the shares.
    Returns: the name, and the turns for the next choice.
    """
    canary = min((one for one in candidates if one.awaits_canary and one.is_hosted), key=_rank, default=None)
    if canary is not None:
        return canary.name, dict(turns)
    after = dict(turns)
    shares = compute_shares(candidates)
    for name, share in shares.items():
        after[name] = after.get(name, 0.0) + share
    chosen = max(shares, key=lambda name: after[name])
    after[chosen] -= 1.0
    return chosen, after


def compute_shares(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Compute which part of the requests each Agent gets as things stand. They add up to 1; who gets nothing is left out.

    Where no Agent that can take requests has room, the healthy ones of the first preference share what waits. Where all are
    barred, or nobody hosts any, it waits for those of the first preference.
    """
    hosted = [one for one in candidates if one.is_hosted]
    open_ = [one for one in hosted if not one.is_barred and not one.awaits_canary]
    if with_room := [one for one in open_ if one.has_room]:
        return _share_out(with_room)
    if open_:
        return _share_out(_list_first(open_))
    return _share_out([replace(one, health=1.0) for one in _list_first(hosted or candidates)])


def _share_out(candidates: Iterable[Candidate]) -> dict[str, float]:
    levels: dict[int, list[Candidate]] = {}
    for one in candidates:
        levels.setdefault(one.preference, []).append(one)
    shares: dict[str, float] = {}
    left = 1.0
    for preference in sorted(levels):
        level = levels[preference]
        weights = {one.name: one.weight * max(one.health, HEALTH_MIN) for one in level}
        total = sum(weights.values())
        health = total / sum(one.weight for one in level)
        kept = left if preference == max(levels) else left * min(health / HEALTHY_FROM, 1.0)
        shares |= {name: kept * weight / total for name, weight in weights.items() if kept > 0}
        left -= kept
    return shares


def _list_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    first = min(one.preference for one in candidates)
    return [one for one in candidates if one.preference == first]


def _rank(candidate: Candidate) -> int:
    return candidate.preference


# --- a request that has its Agent
class Ways(msgspec.Struct, frozen=True):
    """Restrictions on requests that another Agent could take over.

    Attributes:
        closed: what the breakers of their own Agent do not let through: it moves immediately.
        barred: what those of the other Agent do not let through: it stays.
        waited_since: what has been due since then, or for longer, moves, too.
    """

    closed: Barred
    barred: Barred
    waited_since: Instant

    def lead(self, step: StepRow) -> bool:
        """Returns True if a due request may be taken over now."""
        assert step.not_before is not None
        may_leave = self.closed.holds(step) or step.not_before <= self.waited_since
        return may_leave and not self.barred.holds(step) and may_move(step)


def may_move(step: StepRow) -> bool:
    """Returns True if a request may go to another Agent that provides its step."""
    return step.routing == INTERCHANGEABLE or (step.kind is StepKind.STEP and not step.taken)


def is_to_be_routed(new: NewStep) -> bool:
    """Returns True if the Agent of a new request is still to be chosen among those that provide its step."""
    return new.kind is StepKind.STEP and new.routing != PINNED


def route(new: NewStep, agent: str) -> NewStep:
    """Return a new request with the Agent that was chosen for it."""
    return replace(new, agent=agent, routing=new.routing or PINNED)


def stay_with_agent(new: NewStep, before: StepRow, providers: Iterable[str]) -> NewStep:
    """Return the request for a step that is asked for again after a resubmission: it stays where it was taken.

    Args:
        new: as the code of today asks for it.
        before: its row; withdrawn or set back.
        providers: the Agents that do its steps today.
    """
    if not before.taken or new.routing == INTERCHANGEABLE:
        return new
    if before.routing == PINNED or before.agent in providers:
        return replace(new, agent=before.agent, routing=PINNED)
    return new  # its Agent has another name today
