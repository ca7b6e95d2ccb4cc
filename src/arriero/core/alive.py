"""Which processes are alive, and what they say they run: what tells whether anybody could do what waits."""

import shlex
from collections.abc import Iterable, Sequence

from ..model import Instant, ProcessRow
from . import wording
from .apps import NOT_SAID, may_run
from .lease import about_of, is_alive

STEP_PREFIX = "step:"  # of the workflow name of a task of one step


class Running:
    """What processes are alive, and what they say they run."""

    def __init__(self, processes: Iterable[ProcessRow], now: Instant) -> None:
        self.rows = {process.process_no: process for process in processes}
        self.now = now
        self.alive = [process for process in self.rows.values() if process.lease_until > now and not process.retired]

    def with_role(self, role: str) -> list[ProcessRow]:
        """Processes alive that play a role."""
        return [process for process in self.alive if is_alive(process, role, self.now)]

    def scheduling(self, app: str) -> list[ProcessRow]:
        """Processes alive that take up tasks which carry the name ``app``."""
        return [process for process in self.with_role("scheduler") if _is_for(process, app)]

    def running_workflow(self, workflow: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """Processes alive that say they have the workflow's code, and run tasks of the App."""
        return [process for process in self.scheduling(app) if has_workflow(process, workflow)]

    def hosting(self, agent: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """Processes alive that host at least one step of an Agent, for the App."""
        found = [process for process in self.with_role("agents") if _is_for(process, app)]
        return [process for process in found if any(of == agent for of, _ in about_of(process).steps)]

    def hosting_step(self, agent: str, step: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """Processes alive that host a step of an Agent, for the App."""
        return [process for process in self.hosting(agent, app) if (agent, step) in about_of(process).steps]

    def told_app(self, app: str) -> str:
        """The name, where a process of another App is alive; else empty: nobody takes it for another."""
        return app if _other_apps(self.alive, app) else NOT_SAID

    def other_apps_with(self, workflow: str, app: str) -> list[str]:
        """Apps of another name that are alive and have a workflow of the name."""
        return _other_apps(self.running_workflow(workflow), app)

    def other_apps_hosting(self, agent: str, step: str, app: str) -> list[str]:
        """Apps of another name that are alive and have a step of the name."""
        return _other_apps(self.hosting_step(agent, step), app)


def _is_for(process: ProcessRow, app: str) -> bool:
    """A process of a release that named no App runs whatever it has the code of."""
    of = about_of(process).app
    return NOT_SAID in (app, of) or may_run(of, app)


def _other_apps(processes: Iterable[ProcessRow], app: str) -> list[str]:
    return sorted({about_of(process).app for process in processes} - {app, NOT_SAID})


def has_workflow(process: ProcessRow, workflow: str) -> bool:
    """Whether a process says that it has the code of a task's workflow.

    Of single steps some processes name none, whatever code they have: those may have it.
    """
    about = about_of(process)
    if workflow in about.workflows:
        return True
    return workflow.startswith(STEP_PREFIX) and not any(name.startswith(STEP_PREFIX) for name in about.workflows)


def of_app(app: str) -> str:
    """As it goes on after what a task is; empty where its App is not said."""
    return f" of App {app!r}" if app else ""


def by_app(app: str) -> str:
    """As it goes on after what is asked for."""
    return f" by App {app!r}" if app else ""


def has_code(app: str) -> str:
    """What a process would have to have; as it goes on after "no process alive"."""
    return f"of App {app!r} has its code" if app else "has its code"


def told_of_others(app: str, others: Sequence[str]) -> str:
    """The remedy where Apps of another name have the code that App ``app`` has none of here; empty: there are none."""
    if not app or not others:
        return ""
    names = " and ".join(f"App {other!r}" for other in others)
    command = f"arriero store assign --from {shlex.quote(app)} --app {shlex.quote(others[0])} --reason WHY"
    return (
        f"start App {app!r} here; {names} {'has' if len(others) == 1 else 'have'} code of that name: if they are one system,"
        f" give both one name, App({others[0]!r}, ...), and run `{command}`"
    )


def runs(process: ProcessRow) -> str:
    """What a process says it runs, in a few words."""
    about = about_of(process)
    parts = [f"App {about.app}" if about.app else "an App of an older release"]
    if about.workflows:
        parts.append(f"workflows {', '.join(about.workflows)}")
    if about.steps:
        parts.append(f"Agents {', '.join(sorted({agent for agent, _ in about.steps}))}")
    if about.roles:
        parts.append(f"roles {', '.join(about.roles)}")
    return f"{process_named(process)} ({'; '.join(parts)})"


def process_named(process: ProcessRow) -> str:
    """A process as people find it: its host and its number there, and its number here."""
    return f"process {process.process_no} ({wording.shortened(process.instance)})"


def code_named(workflow: str) -> str:
    """What a task runs, as people speak of it: ``workflow order``, or ``step charge`` for a task of one step."""
    kind = "step" if workflow.startswith(STEP_PREFIX) else "workflow"
    return f"{kind} {workflow.removeprefix(STEP_PREFIX)}"
