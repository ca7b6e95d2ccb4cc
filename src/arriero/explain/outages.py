"""Diagnoses Agents: a service that is down, a task that fails again and again, requests that nobody takes.

"Is it one task, or everything?" is answered for each Agent from what its attempts did lately. Thresholds keep what is
normal from looking like an outage: an attempt that failed once and is tried again needs nobody.

    outage     nothing has succeeded since two or more tasks began to fail: ``OUTAGE_ATTEMPTS_SURE`` failed attempts, or
               ``OUTAGE_ATTEMPTS_MIN`` that lie ``OUTAGE_SECONDS_MIN`` back. A permanent failure is the answer of a
               service that works, so only ``REFUSED_TASKS_MIN`` of them without one success are an outage.
    failing    something succeeds, but ``FAILING_SHARE_MIN`` of the last minutes' attempts, ``FAILING_ATTEMPTS_MIN`` at
               least, failed, and the last one of ``OUTAGE_TASKS_MIN`` tasks or more did: it is not over.
    repeating  a step failed ``REPEATED_MIN`` times in a row and is tried again.
    starved    a request waits for longer than ``WAIT_SECONDS_MAX`` and no Agent takes it.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

import msgspec

from ..inspection.attempts import AttemptEnd, AttemptSurvey, Requests, Retrying
from ..model import Instant, later, seconds_between
from ..model.failures import StepFailure
from ..model.processes import SET_PUBLIC_URL, ProcessRow
from ..text.escaping import shell_word
from ..text.format import (
    format_count,
    format_count_with_verb,
    format_duration,
    format_failure_with_line,
    format_instant_and_age,
    format_relative,
)
from .agents import describe_lack_of_room, describe_spent_retry_budget
from .doctor import NAMES_SHOWN_MAX, WAIT_SECONDS_MAX, Finding
from .liveness import LiveProcesses
from .requests import describe_lack_of_url, describe_wait_for_programs, find_step_without_url, is_pulled

WINDOW_SECONDS = 300.0  # long enough to see several attempts of one step: they come a minute apart at most
OUTAGE_TASKS_MIN = 2  # one task that fails may be ill itself
OUTAGE_ATTEMPTS_MIN = 3
OUTAGE_SECONDS_MIN = 10.0  # a service that restarts is away for less
OUTAGE_ATTEMPTS_SURE = 10  # that this many in a row are bad luck is out of the question, however soon they came
REFUSED_TASKS_MIN = 10
FAILING_ATTEMPTS_MIN = 10
FAILING_SHARE_MIN = 0.5
REPEATED_MIN = 3  # one failure is normal, and two in a row happen daily where much is continuing
TASKS_NAMED_MAX = 5
REASONS_TOLD_MAX = 3
REASON_LENGTH_MAX = 120

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8,}\b|\d+")


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Recent attempts of one Agent.

    Args:
        window_from: since when the numbers of the last minutes count.
        retrying: its steps that are tried again; ``is_cut``: there are more of them, ``later`` in all not yet due.
        succeeded, failed: attempts in the window; ``failed`` without permanent failures, which are answers.
        unhelped: tasks whose last attempt in the window failed without an answer, or that are tried again.
        asked: tasks of which an attempt ended in the window, or that are tried again.
        down: those that failed since nothing succeeds any longer, empty while something does; ``refused`` those of them
            whose last failure is permanent.
        attempts_down: failed attempts of those.
        since: when the first of those failed; None: longer ago than anybody looked. ``is_exact``: not earlier either.
        last: of each task that failed in the window or is tried again its last failure.
    """

    agent: str
    window_from: Instant
    retrying: tuple[Retrying, ...]
    is_cut: bool
    later: int
    succeeded: int
    failed: int
    unhelped: frozenset[int]
    asked: frozenset[int]
    down: frozenset[int]
    refused: frozenset[int]
    attempts_down: int
    since: Instant | None
    is_exact: bool
    last: dict[int, StepFailure]


def failure_kind(failure: StepFailure) -> tuple[str, str, str]:
    """Return what failures of one kind share: cause and code; without a code, the message without its varying parts."""
    message = "" if failure.code else _VARYING.sub("#", failure.message)
    return failure.cause, failure.code, message


def format_short_failure(failure: StepFailure) -> str:
    """Format a failure in one line of bounded length."""
    text = " ".join(format_failure_with_line(failure).split())
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 3]}..."


def diagnose_attempts(
    survey: AttemptSurvey, processes: Iterable[ProcessRow], *, down: Container[str] = ()
) -> list[Finding]:
    """Diagnose the attempts of each Agent.

    Args:
        processes: those not retired.
        down: Agents whose breaker reports their outage already. They are left out.
    Returns: for each Agent the gravest thing only; then one finding that says what was looked at.
    """
    found = [_diagnose_agent(health, survey.now) for health in measure_agents(survey) if health.agent not in down]
    shown = sorted((one for one in found if one is not None), key=lambda one: one.level != "care")
    findings = shown[:NAMES_SHOWN_MAX]
    if len(shown) > NAMES_SHOWN_MAX:
        level = shown[NAMES_SHOWN_MAX].level
        findings.append(
            Finding(level, "attempts", f"failed attempts of {format_count(len(shown) - NAMES_SHOWN_MAX, 'more Agent')}")
        )
    running = LiveProcesses(processes, survey.now)
    waiting = [one for one in survey.requests if one.agent not in down]
    return [*findings, _report_window(survey), *_check_requests(waiting, survey.now, running)]


def window_start(survey: AttemptSurvey) -> Instant:
    """Return the start of the time that is counted: later where the store has too many commits to look further."""
    start = later(survey.now, -WINDOW_SECONDS)
    return start if survey.ends_from is None else max(start, survey.ends_from)


def measure_agents(survey: AttemptSurvey) -> list[AgentHealth]:
    """Measure the attempts of each Agent, sorted by its name."""
    retrying: dict[str, list[Retrying]] = {}
    ends: dict[str, list[AttemptEnd]] = {}
    for step in survey.retrying:
        retrying.setdefault(step.agent, []).append(step)
    for end in survey.ends:
        ends.setdefault(end.agent, []).append(end)
    requests = {one.agent: one for one in survey.requests}
    agents = sorted({*retrying, *ends})
    return [
        _measure_agent(survey, agent, retrying.get(agent, []), ends.get(agent, []), requests.get(agent))
        for agent in agents
    ]


def _measure_agent(
    survey: AttemptSurvey, agent: str, retrying: list[Retrying], ends: list[AttemptEnd], requests: Requests | None
) -> AgentHealth:
    window_from = window_start(survey)
    in_window = [end for end in ends if end.at >= window_from]
    trying = {step.task_no for step in retrying}
    run = _list_last_failures(ends)
    has_succeeded = len(run) < len(ends)
    in_run = {end.task_no for end in run if end.at >= window_from or end.task_no in trying}
    down = frozenset(in_run if has_succeeded else in_run | trying)
    concerned = [end for end in run if end.task_no in down]
    seen = {end.task_no for end in concerned}
    unseen = [step for step in retrying if step.task_no in down - seen]  # they failed before what was looked at
    last = {step.task_no: step.failure for step in retrying}
    last |= {end.task_no: end.failure for end in (*concerned, *in_window) if end.failure is not None}
    waiting = sum(step.next_at is not None and step.next_at > survey.now for step in retrying)
    in_all = max(waiting, 0 if requests is None else requests.later)
    return AgentHealth(
        agent=agent,
        window_from=window_from,
        retrying=tuple(retrying),
        is_cut=in_all > waiting,
        later=in_all,
        succeeded=sum(end.failure is None for end in in_window),
        failed=sum(end.failure is not None and not _is_answer(end.failure) for end in in_window),
        unhelped=frozenset(trying | _list_tasks_without_answer(in_window)),
        asked=frozenset(trying | {end.task_no for end in in_window}),
        down=down,
        refused=frozenset(task_no for task_no in down if _is_answer(last[task_no])),
        attempts_down=len(concerned) + sum(step.failure_count for step in unseen),
        since=None if unseen else min((end.at for end in concerned), default=None),
        is_exact=has_succeeded or survey.ends_from is None,
        last=last,
    )


def _list_last_failures(ends: Sequence[AttemptEnd]) -> list[AttemptEnd]:
    """Return the failures since the last success."""
    last = max((at for at, end in enumerate(ends) if end.failure is None), default=-1)
    return list(ends[last + 1 :])


def _list_tasks_without_answer(ends: Sequence[AttemptEnd]) -> set[int]:
    """List the tasks whose last attempt failed without an answer."""
    last = {end.task_no: end.failure for end in ends}
    return {task_no for task_no, failure in last.items() if failure is not None and not _is_answer(failure)}


def _is_answer(failure: StepFailure) -> bool:
    return failure.cause == "permanent"


# --- judgement
def is_outage(health: AgentHealth, now: Instant) -> bool:
    """Returns True if nothing of this Agent succeeds, beyond what chance or a restart explains."""
    unanswered = health.down - health.refused
    if len(health.refused) >= REFUSED_TASKS_MIN:
        return True
    if len(unanswered) < OUTAGE_TASKS_MIN or health.attempts_down < OUTAGE_ATTEMPTS_MIN:
        return False
    is_sure = health.attempts_down >= OUTAGE_ATTEMPTS_SURE
    return is_sure or health.since is None or seconds_between(health.since, now) >= OUTAGE_SECONDS_MIN


def is_failing(health: AgentHealth) -> bool:
    """Returns True if most attempts of the last minutes failed, and some tasks still have no other answer."""
    ended = health.succeeded + health.failed
    is_over = len(health.unhelped) < OUTAGE_TASKS_MIN
    return not is_over and health.failed >= FAILING_ATTEMPTS_MIN and health.failed >= FAILING_SHARE_MIN * ended


def find_repeating_steps(health: AgentHealth) -> list[Retrying]:
    """Find steps that failed several times in a row and are tried again, those with the most failures first."""
    found = [step for step in health.retrying if step.failure_count >= REPEATED_MIN]
    return sorted(found, key=lambda step: (-step.failure_count, step.task_no))


def _diagnose_agent(health: AgentHealth, now: Instant) -> Finding | None:
    if is_outage(health, now):
        return _report_outage(health, now)
    if is_failing(health):
        return _report_failing(health, now)
    if steps := find_repeating_steps(health):
        return _report_repeating(health, steps, now)
    return _report_retries(health, now) if health.retrying else None


def _report_outage(health: AgentHealth, now: Instant) -> Finding:
    tasks = format_count(len(health.down), "task")
    who = f"at least {tasks}, all that asked it," if health.is_cut else f"all {tasks} that asked it"
    why = summarize_failures(health.last[task_no] for task_no in sorted(health.down))
    says = (
        f"Agent {health.agent}: {who} failed {_format_start(health, now)}: {why}; {_format_attempts(health.attempts_down)} failed and"
        f" nothing succeeded{_format_next_attempts(health, now)}"
    )
    return Finding("care", "outage", says, _suggest_remedy(health.agent, _find_example(health.retrying)))


def _report_failing(health: AgentHealth, now: Instant) -> Finding:
    ended = health.succeeded + health.failed
    why = summarize_failures(health.last[task_no] for task_no in sorted(health.unhelped))
    tasks = f"{len(health.unhelped):,} of {_format_tasks(len(health.asked), health)} have no other answer"
    says = (
        f"Agent {health.agent}: {health.failed:,} of {_format_attempts(ended)} failed {_format_window(health, now)}, and {tasks}: {why};"
        f" {health.succeeded:,} succeeded{_format_next_attempts(health, now)}"
    )
    return Finding("care", "failing", says, _suggest_remedy(health.agent, _find_example(health.retrying)))


def _report_repeating(health: AgentHealth, steps: list[Retrying], now: Instant) -> Finding:
    tasks = list(dict.fromkeys(step.task_no for step in steps))
    first = {step.task_no: step for step in reversed(steps)}  # of each task the step with the most failures
    told = [_format_repeated_failure(first[task_no], now) for task_no in tasks[:TASKS_NAMED_MAX]]
    more = f"; and {len(tasks) - len(told):,} more" if len(tasks) > len(told) else ""
    fail = "fails" if len(tasks) == 1 else "fail"
    if len(health.asked) == 1:
        which = f"the only task that asked it {_format_window(health, now)} fails again and again"
    else:
        which = f"{len(tasks):,} of {_format_tasks(len(health.asked), health)} {fail} again and again"
    others = f"; {_format_attempts(health.succeeded)} succeeded {_format_window(health, now)}"
    says = f"Agent {health.agent}: {which}: {'; '.join(told)}{more}{others}"
    return Finding("care", "repeating", says, _suggest_remedy(health.agent, first[tasks[0]]))


def _format_repeated_failure(step: Retrying, now: Instant) -> str:
    return (
        f"{step.task_id} (step {step.step} failed {format_count(step.failure_count, 'time')} in a row, last with"
        f" {format_short_failure(step.failure)}; {format_next_attempt(step, now)})"
    )


def format_next_attempt(step: Retrying, now: Instant) -> str:
    """Format ``attempt 4 in 20 s``, or that it runs, is due, or waits until the task is resumed."""
    if step.is_running:
        return f"attempt {step.attempt} runs now"
    if step.next_at is None:
        return f"attempt {step.attempt} waits until the task is resumed"
    if step.next_at <= now:
        return f"attempt {step.attempt} is due"
    return f"attempt {step.attempt} {format_relative(step.next_at, now)}"


def _report_retries(health: AgentHealth, now: Instant) -> Finding:
    tasks = len({step.task_no for step in health.retrying})
    says = (
        f"Agent {health.agent}: {tasks:,} of {_format_tasks(len(health.asked), health)} failed less than {REPEATED_MIN} times"
        f" and {'is' if tasks == 1 else 'are'} tried again; {_format_attempts(health.succeeded)} succeeded"
        f" {_format_window(health, now)}"
    )
    return Finding("fine", "attempts", says)


# --- words
def summarize_failures(failures: Iterable[StepFailure]) -> str:
    """Summarize the last failure of each task: ``transient: connection refused``.

    Of several kinds the most frequent first, each with its number of tasks.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for failure in failures:
        kind = failure_kind(failure)
        counts[kind] += 1
        examples[kind] = format_short_failure(failure)
    if len(examples) == 1:
        return examples.popitem()[1]
    most = counts.most_common(REASONS_TOLD_MAX)
    told = [f"{examples[kind]} ({format_count(count, 'task')})" for kind, count in most]
    rest = len(examples) - len(told)
    return "; ".join(told) + (f"; and {format_count(rest, 'other reason')}" if rest else "")


def _format_attempts(count: int) -> str:
    return format_count(count, "attempt")


def _format_tasks(count: int, health: AgentHealth) -> str:
    return f"{'at least ' if health.is_cut else ''}{format_count(count, 'task')}"


def _format_window(health: AgentHealth, now: Instant) -> str:
    return f"in the last {format_duration(seconds_between(health.window_from, now))}"


def _format_start(health: AgentHealth, now: Instant) -> str:
    if health.since is None:
        return f"{_format_window(health, now)} and before"
    earlier = "" if health.is_exact else " or earlier"
    return f"since {format_instant_and_age(health.since, now)}{earlier}"


def _format_next_attempts(health: AgentHealth, now: Instant) -> str:
    """Count the tasks that wait for their next attempt, and say when the first one comes."""
    waiting = [step for step in health.retrying if not step.is_running]
    if not waiting:
        return ""
    count = len({step.task_no for step in waiting})
    waits = f"{format_count(count, 'task')} {'waits for its' if count == 1 else 'wait for their'} next attempt"
    if health.is_cut:
        waits = f"{format_count(health.later, 'request')} wait for their next attempt"
    times = [step.next_at for step in waiting if step.next_at is not None]
    return f"; {waits}{_format_first(min(times), now)}" if times else f"; {waits}"


def _format_first(at: Instant, now: Instant) -> str:
    return ", the first due now" if at <= now else f", the first {format_relative(at, now)}"


def _find_example(steps: Iterable[Retrying]) -> Retrying | None:
    return max(steps, key=lambda step: (step.failure_count, -step.task_no), default=None)


def _suggest_remedy(agent: str, example: Retrying | None) -> str:
    listed = f"arriero task list --agent {shell_word(agent)}"
    if example is None:
        return f"see whether its service answers; {listed}"
    dashes = "-- " if example.task_id.startswith("-") else ""
    return f"see whether its service answers; {listed}, then arriero task explain {dashes}{shell_word(example.task_id)}"


def _report_window(survey: AttemptSurvey) -> Finding:
    window_from = window_start(survey)
    ends = [end for end in survey.ends if end.at >= window_from]
    failed = sum(end.failure is not None for end in ends)
    span = format_duration(seconds_between(window_from, survey.now))
    counted = f"{_format_attempts(len(ends) - failed)} succeeded, {failed:,} failed"
    says = f"in the last {span} {counted}" if ends else f"no attempt ended in the last {span}"
    return Finding("fine", "attempts", says)


# --- requests that nobody takes
def _check_requests(requests: Sequence[Requests], now: Instant, running: LiveProcesses) -> list[Finding]:
    due = [one for one in requests if one.due and one.oldest_at is not None]
    long = [one for one in due if _is_waiting_long(one, now)]
    if long:
        return [_describe_untaken_requests(one, now, running) for one in long[:NAMES_SHOWN_MAX]]
    if not due:
        return [Finding("fine", "starved", "no request is due and untaken by any Agent")]
    count = format_count_with_verb(sum(one.due for one in due), "request")
    oldest = min(one.oldest_at for one in due if one.oldest_at is not None)
    says = f"{count} due and untaken by any Agent, the oldest since {format_instant_and_age(oldest, now)}"
    return [Finding("fine", "starved", says)]


def _is_waiting_long(one: Requests, now: Instant) -> bool:
    return one.oldest_at is not None and seconds_between(one.oldest_at, now) > WAIT_SECONDS_MAX


def _describe_untaken_requests(one: Requests, now: Instant, running: LiveProcesses) -> Finding:
    assert one.oldest_at is not None
    says = f"Agent {one.agent}: {format_count_with_verb(one.due, 'request')} due and untaken, the oldest since"
    says += f" {format_instant_and_age(one.oldest_at, now)}"
    listed = f"arriero task list --agent {shell_word(one.agent)}"
    if step := find_step_without_url(running, one.agent):
        says += f"; step {step}: {describe_lack_of_url(running, one.agent, step)}"
        return Finding("care", "starved", says, f"{SET_PUBLIC_URL}; {listed}")
    if is_pulled(
        running, one.agent
    ):  # its programs decide how many they carry out: max_in_flight and --agents are not remedy
        says += f"; {describe_wait_for_programs(running, one.agent)}"
        return Finding("care", "starved", says, f"see to the programs that carry it out, or run more of them; {listed}")
    hosts = running.list_hosts(one.agent)
    if not hosts:
        remedy = f"no process alive hosts it: run its App, and name it where --agents is given; {listed}"
        return Finding("care", "starved", says, remedy)
    if spent := describe_spent_retry_budget(hosts, one.agent):
        remedy = f"repair the service, or raise Agent({one.agent!r}, retry_budget=...); {listed}, then arriero task explain ID"
        return Finding("care", "starved", f"{says}; {spent}", remedy)
    if full := describe_lack_of_room(running.alive, one.agent, now):
        says += f"; {full}"
    elif one.running:
        says += f"; {_format_attempts(one.running)} of it {'is' if one.running == 1 else 'are'} running, so its places may all be taken"
    else:
        says += "; no attempt of it is running although a process alive hosts it"
    remedy = f"give it more room (Agent(max_in_flight=)) or more processes; {listed}, then arriero task explain ID"
    return Finding("care", "starved", says, remedy)
