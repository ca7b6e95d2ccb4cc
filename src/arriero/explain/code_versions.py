"""Versions of code: which has how many tasks, whether a process with it is alive, and findings about both."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ..core.lease import is_alive, read_process_about
from ..model import Instant, TaskState
from ..model.instants import as_datetime
from ..model.processes import FIRST_ALONE, FIRST_VERSION, ProcessAbout, ProcessRow, name_version, read_code_version
from ..store.contract import VersionCount
from ..text.escaping import shell_word
from ..text.format import format_count
from .doctor import Finding

OF_STATE = {
    TaskState.PENDING: "pending",
    TaskState.PROCESSING: "processing",
    TaskState.COMPENSATING: "compensating",
    TaskState.HELD: "held",
}


class CodeVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the code of a workflow.

    Attributes:
        workflow: its name; ``step:NAME`` for tasks of one step. ``app``: the App's name.
        version: like ``2``, or ``2@blue`` of a deployment; empty: of tasks that no version has begun.
        processes: how many processes alive have it and run a Scheduler; of tasks that no version has begun, how many may begin them.
        begins: how many of them begin new tasks with it.
        pending, processing, compensating, held: numbers of tasks in these states; an undo needs no version.
        oldest: when the oldest of the tasks was submitted; None: there is none.
    """

    workflow: str
    app: str
    version: str
    processes: int
    begins: int
    pending: int = 0
    processing: int = 0
    compensating: int = 0
    held: int = 0
    oldest: datetime | None = None

    @property
    def in_need(self) -> int:
        """The number of tasks that only this version can continue."""
        return self.pending + self.processing + self.held


def build_code_versions(
    counts: Iterable[VersionCount], processes: Iterable[ProcessRow], now: Instant
) -> list[CodeVersionView]:
    """Build the views of all versions from the tasks and the processes of a store. A process of no named App is of any."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}

    def find(app: str, workflow: str, version: str) -> dict[str, Any]:
        return found.setdefault((app, workflow, version), {"processes": 0, "begins": 0})

    for count in counts:
        version = (count.code_version or FIRST_VERSION) if count.has_begun else ""
        fields = find(count.app, count.workflow, version)
        state = OF_STATE[count.state]
        fields[state] = fields.get(state, 0) + count.tasks
        fields["oldest"] = min(fields.get("oldest", count.oldest_at), count.oldest_at)
    for process in processes:
        if not is_alive(process, "scheduler", now):
            continue
        about = read_process_about(process)
        for workflow in about.workflows:
            versions = about.versions.get(workflow, FIRST_ALONE)
            for version in versions:
                fields = find(about.app, workflow, version)
                fields["processes"] += 1
                fields["begins"] += version == versions[0] and not about.leaving
            if (about.app, workflow, "") in found:
                found[about.app, workflow, ""]["processes"] += 1
    return [_build_view(*key, found[key]) for key in sorted(found, key=_find_order)]


def _find_order(key: tuple[str, str, str]) -> tuple[object, ...]:
    app, workflow, version = key
    return (app, workflow, version != "", read_code_version(version), version)


def _build_view(app: str, workflow: str, version: str, fields: dict[str, Any]) -> CodeVersionView:
    oldest = fields.pop("oldest", None)
    return CodeVersionView(
        app=app, workflow=workflow, version=version, oldest=None if oldest is None else as_datetime(oldest), **fields
    )


NAMED_MAX = 20  # versions that the doctor names


def diagnose_code_versions(
    counts: Iterable[VersionCount], processes: Iterable[ProcessRow], now: Instant
) -> list[Finding]:
    """Judge the versions of a store: one with tasks and without a process needs care, and one that no task needs is information."""
    alive = [process for process in processes if is_alive(process, "scheduler", now)]
    views = build_code_versions(counts, alive, now)
    needed = {(view.app, view.workflow, view.version) for view in views if view.in_need}
    found = [
        _describe_lack(view, views) for view in views if view.version and view.in_need and not view.processes and alive
    ]
    abouts = [read_process_about(process) for process in alive]
    return [*found[:NAMED_MAX], *_find_unneeded(abouts, needed), *_find_empty_deployments(abouts, needed)]


def _describe_lack(view: CodeVersionView, views: list[CodeVersionView]) -> Finding:
    others = [one.version for one in views if (one.app, one.workflow) == (view.app, view.workflow) and one.begins]
    says = (
        f"{format_count(view.in_need, 'open task')} of workflow {view.workflow}{_of_app(view.app)} can only be continued by code"
        f" version {view.version}, and no process alive has it"
    )
    if not others:
        return Finding("care", "versions", says, "start a process that has it: arriero run MODULE:APP")
    known = {one.version for one in views if (one.app, one.workflow) == (view.app, view.workflow)}
    words = ["--workflow", shell_word(view.workflow), "--code-version", shell_word(name_version(view.version, known))]
    command = f"arriero task pin {' '.join(words)} --to {shell_word(name_version(others[-1], known))} --reason TEXT"
    return Finding("care", "versions", says, f"start a process that has it, or move the tasks: {command}")


def _find_unneeded(abouts: list[ProcessAbout], needed: set[tuple[str, str, str]]) -> list[Finding]:
    """Find replaced versions that no open task has. ``needed``: App, workflow and version of tasks."""
    numbers = {(app, workflow, read_code_version(version)[0]) for app, workflow, version in needed}
    had = {
        (about.app, workflow, read_code_version(version)[0])
        for about in abouts
        for workflow, versions in about.versions.items()
        for version in versions
        if read_code_version(version)[0] < read_code_version(versions[0])[0]
    }
    return [
        Finding(
            "information",
            "versions",
            f"no open task needs version {number} of workflow {workflow}{_of_app(app)} any longer",
            "remove its code and the replaces= that names it",
        )
        for app, workflow, number in sorted(had - numbers)[:NAMED_MAX]
    ]


def _find_empty_deployments(abouts: list[ProcessAbout], needed: set[tuple[str, str, str]]) -> list[Finding]:
    """Find deployments without tasks beside which a later one runs. ``abouts``: of processes alive, in the order of their starts."""
    tasks = {(app, read_code_version(version)[1]) for app, _, version in needed}
    seen: dict[str, list[str]] = {}
    for about in abouts:
        names = {read_code_version(version)[1] for versions in about.versions.values() for version in versions} - {""}
        seen.setdefault(about.app, []).extend(name for name in sorted(names) if name not in seen.get(about.app, ()))
    return [
        Finding(
            "information",
            "versions",
            f"no open task belongs to deployment {name}{_of_app(app)} any longer, and a later one runs",
            "stop its processes",
        )
        for app, names in sorted(seen.items())
        for name in names[:-1]
        if (app, name) not in tasks
    ]


def _of_app(app: str) -> str:
    return f" of App {app!r}" if app else ""
