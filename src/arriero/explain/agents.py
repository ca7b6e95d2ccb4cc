"""Sentences for operators about Agents: their breakers and limits, and the routing of requests."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..core.breaker_book import find_breaker, find_whole
from ..core.capacity import BURST, PER_SECOND
from ..core.lease import read_process_about
from ..core.limits import build_book, find_limits
from ..core.routing import HeldRetries, may_move, read_reports, survey_hosts
from ..core.stand_ins import LIMITS_UNKNOWN
from ..inspection.attempts import Requests
from ..inspection.facts import AgentLoad
from ..model import NOT_SAID, Instant, StepKind, StepRow
from ..model.agents import BreakerRow, BreakerState, LimitPolicy, LimitsInUse, read_limits
from ..model.processes import ProcessRow
from ..text.escaping import shell_word
from ..text.format import format_count, format_count_with_verb, format_instant_and_age, format_relative
from .doctor import NAMES_SHOWN_MAX, Finding
from .liveness import LiveProcesses, format_by_app, format_of_app, format_process
from .requests import is_pulled

FULL_SHOWN_MAX = 3  # limits and keys without room in one finding


def describe_wait_for_limit(step: StepRow, limits: Sequence[LimitsInUse], now: Instant) -> str:
    """Describe which limit keeps a due request from being taken. Empty: none does."""
    of_agent = [one for one in limits if one.row.agent == step.agent]
    row = find_limits([one.row for one in of_agent], step.app)
    use = next((one for one in of_agent if one.row == row), None)
    if use is None:
        return ""
    if use.row.limits == LIMITS_UNKNOWN:
        return f"the limits of {step.agent} cannot be read, so no request of it begins; see: arriero doctor"
    book = build_book(use)
    full = book.list_full(step.limit_keys)
    if not full:
        return ""
    says = "; ".join(format_use(policy, key, used) for policy, key, used in full)
    next_at = book.compute_next_at_of(step.limit_keys)
    when = "" if next_at is None or next_at <= now else f"; the next call may begin {format_relative(next_at, now)}"
    see = f"; see: arriero agent show {shell_word(step.agent)}"
    return f"it waits for room at {step.agent}: {says}{when}; waiting spends no attempt{see}"


class CountedLimit(Protocol):
    """A limit, as a policy or as operators see it."""

    @property
    def kind(self) -> str: ...
    @property
    def most(self) -> int: ...
    @property
    def per(self) -> float: ...


def format_use(limit: CountedLimit, key: str, used: int) -> str:
    """Format what is in use of a limit, as ``50 of 50 in use`` or ``2 of 2 calls in 1 s of 'm-7'``."""
    what = "in use" if limit.kind == "concurrent" else f"calls in {limit.per:g} s"
    whose = f" of {key!r}" if key else ""
    return f"{used:,} of {limit.most:,} {what}{whose}"


def format_limits(text: str) -> str:
    """Format the limits of a process or a row in words."""
    parts = [
        f"{policy.name} {policy.most:,}" + ("" if policy.kind == "concurrent" else f" in {policy.per:g} s")
        for policy in read_limits(text)
    ]
    return ", ".join(parts) or "no limits"


def diagnose_hosts(loads: Iterable[AgentLoad], processes: Iterable[ProcessRow], now: Instant) -> list[Finding]:
    """Diagnose Agents with due requests that no process alive hosts, while processes host others."""
    running = LiveProcesses(processes, now)
    if not running.list_with_role("agents"):
        return []  # the finding about roles says so
    return [
        Finding(
            "care",
            "code",
            f"{format_count_with_verb(load.due, 'request')} due of Agent {load.agent}{format_by_app(told)}, and no process alive"
            f"{format_of_app(told)} hosts it",
            "run an App that has it, and name the Agent where --agents is given",
        )
        for load in loads
        if load.due and not is_pulled(running, load.agent) and not running.list_hosts(load.agent, load.app)
        for told in (running.choose_app_to_name(load.app),)
    ]


def diagnose_limits(
    limits: Iterable[LimitsInUse], processes: Iterable[ProcessRow], requests: Iterable[Requests], now: Instant
) -> list[Finding]:
    """Diagnose limits that processes declare differently, and limits that hold requests back."""
    alive = [process for process in processes if process.lease_until > now]
    due = {one.agent: one.due for one in requests}
    found: list[Finding] = []
    for use in limits:
        if use.row.limits == LIMITS_UNKNOWN:
            continue  # the finding about rows that cannot be read says so
        found += _diagnose_differing(use, alive)
        full = build_book(use).list_all_full()
        if full and due.get(use.row.agent):
            waiting = format_count(due[use.row.agent], "request")
            says = (
                f"{waiting} for Agent {use.row.agent} due, and there is no room: {_format_full(full)}. What waits for room"
                " spends no attempt"
            )
            found.append(Finding("information", "limits", says, f"arriero agent show {shell_word(use.row.agent)}"))
    return found


def _format_full(full: Sequence[tuple[LimitPolicy, str, int]]) -> str:
    parts = [format_use(*one) for one in full[:FULL_SHOWN_MAX]]
    if more := len(full) - len(parts):
        parts.append(f"and {format_count(more, 'other')}")
    return "; ".join(parts)


def _diagnose_differing(use: LimitsInUse, alive: Sequence[ProcessRow]) -> list[Finding]:
    row = use.row
    for process in alive:
        about = read_process_about(process)
        if about.app != row.app or row.agent not in {agent for agent, _ in about.steps}:
            continue
        declared = about.limits.get(row.agent, "[]")
        if declared != row.limits:
            says = (
                f"{format_process(process)} declares other limits of Agent {row.agent} ({format_limits(declared)}) than process"
                f" {row.process_no}, which was started last: {format_limits(row.limits)}. The newest hold for all"
            )
            remedy = "let all processes run the same code; restart the one whose limits are meant last"
            return [Finding("care", "limits", says, remedy)]
    return []


def list_providers(processes: Iterable[ProcessRow], step: StepRow) -> tuple[str, ...]:
    """List the Agents that provide a step, as the processes alive of its App say; empty if its own is the only one."""
    names: dict[str, None] = {}
    for process in processes:
        about = read_process_about(process)
        bases = {base for base, agent, *_ in about.providers if agent == step.agent}
        if step.app in (NOT_SAID, about.app):
            names |= {agent: None for base, agent, *_ in about.providers if base in bases}
    return tuple(names)


def describe_ways(processes: Iterable[ProcessRow], step: StepRow) -> str:
    """Describe for which Agents a waiting request may go. Empty: its Agent is the only one that does its step."""
    providers = list_providers(processes, step)
    if not providers:
        return ""
    if may_move(step):
        return f"it may go to {' or '.join(providers)}"
    if step.kind is StepKind.COMPENSATION:
        return f"it goes to no other Agent: {step.agent} did the step that it undoes"
    return f"it goes to no other Agent: {step.agent} took it before, and the step is not interchangeable"


def describe_lack_of_room(processes: Iterable[ProcessRow], agent: str, now: Instant, app: str = NOT_SAID) -> str:
    """Describe that no process alive has room for requests of an Agent. Empty: one has, or none has reported."""
    hosted = survey_hosts(processes, now, app).get(agent)
    if hosted is None or hosted.has_room:
        return ""
    return f"no process that hosts Agent {agent} has room: {format_count(hosted.places, 'place')} taken, or kept for more urgent ones"


def describe_spent_retry_budget(hosts: Iterable[ProcessRow], agent: str) -> str:
    """Describe that the retry budget keeps later attempts of an Agent in the store. Empty: a process may take one.

    Canaries need no budget: ask ``describe_wait_behind_breaker`` first.

    Args:
        hosts: the processes alive that could take such an attempt.
    """
    reports = [(process, found) for process in hosts if (found := read_reports(process).get(agent)) is not None]
    held = [(process, report.held) for process, report in reports if report.held and report.held.leaves_attempts]
    if not held or any(report.free and not (report.held and report.held.leaves_attempts) for _, report in reports):
        return ""
    names = ", ".join(format_process(process) for process, _ in held[:NAMES_SHOWN_MAX])
    return f"the retry budget of Agent {agent} is spent at {names}: {_format_budget(agent, held[0][1])}"


def describe_held_tries(process: ProcessRow, agent: str) -> str:
    """Describe that attempts of an Agent at a process wait for its retry budget. Empty: none does."""
    report = read_reports(process).get(agent)
    if report is None or report.held is None or not report.held.tries:
        return ""
    one = report.held.tries == 1
    waiting = f"{format_count(report.held.tries, 'attempt')} of Agent {agent} there {'waits' if one else 'wait'}"
    return f"{waiting} for its retry budget before the next try: {_format_budget(agent, report.held)}"


def _format_budget(agent: str, held: HeldRetries) -> str:
    return (
        f"at most {held.share:.0%} of its calls in a process may be retries, with a burst of {BURST:g} and {PER_SECOND:g} more"
        f" each second; waiting spends no attempt and no try; see why its calls fail: arriero agent show {shell_word(agent)}"
    )


def describe_wait_behind_breaker(step: StepRow, breakers: Sequence[BreakerRow], now: Instant) -> str:
    """Describe why a due request is not taken although Agents have capacity. Empty: no breaker keeps it from that."""
    of_agent = [row for row in breakers if row.agent == step.agent]
    row = find_whole(of_agent, step) or find_breaker(of_agent, step)
    see = f"; see: arriero agent show {shell_word(step.agent)}"
    if row is not None and row.paused_at is not None:
        since = format_instant_and_age(row.paused_at, now)
        return f'Agent {row.label} is paused since {since} by {row.paused_by}: "{row.pause_reason}"{see}'
    if row is None or not row.is_outage:
        return ""
    behind = (
        "; its last attempt failed in the outage, so requests that have not failed go first" * step.failed_in_outage
    )
    return f"Agent {row.label} gets no calls {_format_outage(row, now)}; waiting spends no attempt{behind}{see}"


def _format_outage(row: BreakerRow, now: Instant) -> str:
    since = row.opened_at or row.changed_at
    by = f" by {row.opened_by}" if row.opened_by else ""
    return f"since {format_instant_and_age(since, now)}{by}: {row.reason}; {_format_next_call(row, now)}"


def _format_next_call(row: BreakerRow, now: Instant) -> str:
    if row.state is BreakerState.HALF_OPEN:
        return f"canaries find out if it is healthy again ({row.succeeded} answered, {row.granted} sent of a wave of {row.wave})"
    if row.probe_at is None:
        return "no call is made until an operator closes it"
    if row.probe_at <= now:
        return "the next request that is taken is its canary"
    return f"the next canary goes {format_relative(row.probe_at, now)}"


def diagnose_breakers(
    breakers: Iterable[BreakerRow], requests: Iterable[Requests], now: Instant
) -> tuple[list[Finding], frozenset[str]]:
    """Diagnose the breakers that are not closed, and the Agents that are paused.

    Args:
        requests: open requests of each Agent.
    Returns: findings, and the Agents whose outage they report.
    """
    waiting = {one.agent: one.due + one.later for one in requests}
    found: list[Finding] = []
    down: set[str] = set()
    for row in breakers:
        wait = (
            f"{format_count(waiting.get(row.agent, 0), 'request')} of {'all its targets' if row.target else 'it'} wait"
        )
        if row.paused_at is not None:
            since = format_instant_and_age(row.paused_at, now)
            says = f'Agent {row.label} is paused since {since} by {row.paused_by}: "{row.pause_reason}"; {wait}'
            target = f" --target {shell_word(row.target)}" if row.target else ""
            remedy = f"arriero agent resume {shell_word(row.agent)}{target} --reason TEXT"
            found.append(Finding("care" if waiting.get(row.agent) else "information", "agents", says, remedy))
        if row.is_outage:
            says = f"Agent {row.label} gets no calls {_format_outage(row, now)}; {wait} and spend no attempt"
            is_recovering = row.state is BreakerState.HALF_OPEN and row.ramp_from is not None
            remedy = f"see what is wrong with the service; arriero agent show {shell_word(row.agent)}"
            found.append(Finding("information" if is_recovering else "care", "breaker", says, remedy))
            down.add(row.agent)
    if len(found) > NAMES_SHOWN_MAX:
        more = Finding(
            "care",
            "breaker",
            f"no calls go to {format_count(len(found) - NAMES_SHOWN_MAX, 'more Agent')} or targets",
            "arriero agent list",
        )
        found = [*found[:NAMES_SHOWN_MAX], more]
    return found, frozenset(down)
