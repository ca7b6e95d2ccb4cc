"""Sentences for people about limits of Agents: reasons why a request waits, and findings of the doctor."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..core.lease import read_process_about
from ..core.limits import build_book, find_limits
from ..core.stand_ins import LIMITS_UNKNOWN
from ..escaping import shell_word
from ..inspection.attempts import Requests
from ..limits import LimitPolicy, LimitsInUse, read_limits
from ..model import Instant, StepRow
from ..processes import ProcessRow
from ..text.format import format_count, format_relative
from .doctor import Finding
from .liveness import format_process

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
    """A limit, as a policy or as people see it."""

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
