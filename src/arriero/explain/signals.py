"""Findings about signals whose values the code of their tasks could not read."""

from collections.abc import Sequence

from ..model import Instant, SignalRow
from ..model.signals import read_reply, split_wait_name
from ..store.readable import faults_of, format_faults, legible
from ..text.escaping import shell_argument
from ..text.format import format_count, format_instant_and_age
from .doctor import NAMES_SHOWN_MAX, Finding

_VERBS = {"signal": "send", "request": "request", "callback": "complete-callback"}


def diagnose_signals(found: Sequence[tuple[str, SignalRow]], now: Instant, *, more: bool) -> list[Finding]:
    """Judge the signals of open tasks that were set aside: their waits continue, until another value is sent.

    Args:
        found: ids of the tasks and the signals, the latest first.
        more: there are others.
    """
    findings = [_describe_set_aside(task_id, signal, now) for task_id, signal in found[:NAMES_SHOWN_MAX]]
    if left := len(found) - len(findings):
        least = "at least " if more else ""
        says = f"{least}{format_count(left, 'more signal')} set aside"
        findings.append(
            Finding("care", "signals", says, "arriero task signals ID, of `arriero task list --state processing`")
        )
    return findings


def _describe_set_aside(task_id: str, as_it_stands: SignalRow, now: Instant) -> Finding:
    signal, faults = legible(as_it_stands), faults_of(as_it_stands)
    kind, name = split_wait_name(signal.name.partition("#")[0]) or ("signal", signal.name)
    why = format_faults(faults) or ("" if signal.reply is None else read_reply(signal.reply).refused or "")
    sent = format_instant_and_age(signal.sent_at, now)
    says = f"{kind} {name} to task {task_id}, number {signal.number}, sent at {sent}, is set aside: {why}"
    verb, task = _VERBS.get(kind), shell_argument(task_id)
    remedy = f"arriero task signals {task} shows it"
    if verb:
        remedy = f"send a value that fits: arriero task {verb} {task} {shell_argument(name)} JSON; {remedy}"
    return Finding("care", "signals", says, remedy)
