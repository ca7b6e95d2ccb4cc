"""Descriptions of shared rows that cannot be read: what waits for one, and the next command. For alerts and the doctor."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..escaping import one_line, shell_word
from .lease import SUPERVISORS

_CORRECT = "correct that column, or delete the row"


class DescribedRow(NamedTuple):
    """A shared row in words: what it is, what waits for it, and what to do."""

    what: str
    waits: str
    remedy: str


def describe_shared_row(name: str) -> DescribedRow:
    """Describe a shared row by its name (``store.readable.name_row``)."""
    table, _, text = name.partition(" ")
    try:
        key = msgspec.json.decode(text, type=list[str | int])
    except msgspec.DecodeError:
        return DescribedRow(f"row {one_line(name)}", "", _CORRECT)
    return _describe(table, key, DescribedRow(f"row {one_line(name)}", "", _CORRECT))


def _describe(table: str, key: Sequence[Any], other: DescribedRow) -> DescribedRow:
    """``other``: of a table that nothing is said of here."""
    match table, [one_line(str(part)) for part in key]:
        case "breaker", [app, agent, target]:
            of = f" --target {shell_word(target)}" if target else ""
            of += f" --app {shell_word(app)}" if app else ""
            what = f"the breaker of Agent {agent}{f'[{target}]' if target else ''} of App {app}"
            return DescribedRow(what, "its requests wait", f"arriero agent close {shell_word(agent)}{of} --reason TEXT")
        case "agent_limits", [app, agent]:
            restart = f"correct that column, or restart a process of App {app}: it declares the limits again"
            return DescribedRow(f"the limits of Agent {agent} of App {app}", "requests of the Agent wait", restart)
        case "rate", [app, agent, limit, value]:
            whose = f", key {value}," if value else ""
            what = f"the calls of limit {limit}{whose} of Agent {agent} of App {app}"
            return DescribedRow(what, "its requests wait until the calls no longer count", _CORRECT)
        case "lease", [lease] if lease == SUPERVISORS:
            return DescribedRow("the Supervisors' lease", "the next Supervisor writes it again", "")
        case "lease", [lease]:
            remedy = f"arriero lease break {shell_word(lease)} --at-once --reason TEXT, once its holder is surely dead"
            return DescribedRow(f"lease {lease}", "it is not granted", remedy)
        case "convoy" | "convoy_tail", [number]:
            return DescribedRow(f"convoy number {number}", "its tasks and submissions wait", "correct that column")
        case "ledger", [number]:
            return DescribedRow(f"ledger number {number}", "its tasks are not let go", "correct that column")
        case "process", [number]:
            return DescribedRow(f"process number {number}", "nothing waits", "restart it if it is alive")
        case "token", [token]:
            return DescribedRow(f"token {token}", "it is refused", "make another one: arriero token create")
        case "agent_metrics", [app, *_]:
            return DescribedRow(f"counts of the calls of App {app}", "nothing waits; they count as no call", _CORRECT)
        case "schedule", [app, schedule]:
            remove = f"arriero schedule remove {shell_word(schedule)} --app {shell_word(app)} --reason TEXT"
            remedy = f"install its time zone or the release that wrote it, declare it again, or: {remove}"
            return DescribedRow(f"schedule {schedule} of App {app}", "its runs wait", remedy)
        case _:
            return other
