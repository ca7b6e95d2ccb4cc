"""Live processes and the code that each can run."""

import shlex
from collections.abc import Iterable, Sequence

from ..core.apps import may_run
from ..core.lease import is_alive, read_process_about
from ..model import NOT_SAID, STEP_PREFIX, Instant, TaskRow
from ..model.processes import FIRST_VERSION, ProcessRow, has_version, name_version
from ..text.format import shorten_process_name


class LiveProcesses:
    """The processes that are alive, with the code they say they run."""

    def __init__(self, processes: Iterable[ProcessRow], now: Instant) -> None:
        self.rows = {process.process_no: process for process in processes}
        self.now = now
        self.alive = [process for process in self.rows.values() if process.lease_until > now and not process.retired]

    def list_with_role(self, role: str) -> list[ProcessRow]:
        """List the processes alive that play a role."""
        return [process for process in self.alive if is_alive(process, role, self.now)]

    def list_schedulers(self, app: str) -> list[ProcessRow]:
        """List the processes alive that take up tasks which carry the name ``app``. One that drains takes up none."""
        return [process for process in self.list_with_role("scheduler") if _begins_work_for(process, app)]

    def list_with_workflow(self, workflow: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """List the processes alive that say they have the workflow's code, and run tasks of the App."""
        return [process for process in self.list_schedulers(app) if has_workflow(process, workflow)]

    def list_with_code(self, task: TaskRow) -> list[ProcessRow]:
        """List the processes alive that say they have the workflow's code in the version that continues the task."""
        found = self.list_with_workflow(task.workflow, task.app)
        return [process for process in found if has_version(read_process_about(process).versions, task)]

    def list_hosts(self, agent: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """List the processes alive that host at least one step of an Agent, for the App. One that drains takes no request."""
        found = [process for process in self.alive if _begins_work_for(process, app)]
        return [process for process in found if any(of == agent for of, _ in read_process_about(process).steps)]

    def list_hosts_of_step(self, agent: str, step: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """List the processes alive that begin attempts of a step of an Agent, for the App."""
        hosts = self.list_hosts(agent, app)
        return [process for process in hosts if (agent, step) in read_process_about(process).list_begun()]

    def list_hosts_without_url(self, agent: str, step: str, app: str = NOT_SAID) -> list[ProcessRow]:
        """List the processes alive that would begin attempts of a step, and lack only a URL for its callbacks."""
        hosts = self.list_hosts(agent, app)
        return [process for process in hosts if (agent, step) in read_process_about(process).without_url]

    def choose_app_to_name(self, app: str) -> str:
        """Return the App's name if a process of another App is alive; else empty."""
        return app if _other_apps(self.alive, app) else NOT_SAID

    def list_other_apps_with(self, workflow: str, app: str) -> list[str]:
        """List the Apps of another name that are alive and have a workflow of the name."""
        return _other_apps(self.list_with_workflow(workflow), app)

    def list_other_apps_hosting(self, agent: str, step: str, app: str) -> list[str]:
        """List the Apps of another name that are alive and have a step of the name."""
        return _other_apps(self.list_hosts_of_step(agent, step), app)


def _begins_work_for(process: ProcessRow, app: str) -> bool:
    """Returns True if a process begins work of an App; one of a release that named no App runs all it has the code of."""
    about = read_process_about(process)
    return not about.leaving and (NOT_SAID in (app, about.app) or may_run(about.app, app))


def _other_apps(processes: Iterable[ProcessRow], app: str) -> list[str]:
    return sorted({read_process_about(process).app for process in processes} - {app, NOT_SAID})


def has_workflow(process: ProcessRow, workflow: str) -> bool:
    """Returns True if a process says that it has the code of a task's workflow.

    Of single steps some processes name none, whatever code they have: those may have it.
    """
    about = read_process_about(process)
    if workflow in about.workflows:
        return True
    return workflow.startswith(STEP_PREFIX) and not any(name.startswith(STEP_PREFIX) for name in about.workflows)


def format_of_app(app: str) -> str:
    """Format `` of App 'shop'``, to follow a task; empty where its App is not named."""
    return f" of App {app!r}" if app else ""


def format_by_app(app: str) -> str:
    """Format `` by App 'shop'``, to follow a request; empty where its App is not named."""
    return f" by App {app!r}" if app else ""


def format_has_code(app: str) -> str:
    """Describe the code that no live process has, to follow "no process alive"."""
    return f"of App {app!r} has its code" if app else "has its code"


def suggest_assignment(app: str, others: Sequence[str]) -> str:
    """Suggest ``store assign`` where only Apps of other names have the code of App ``app``; empty: none has it."""
    if not app or not others:
        return ""
    names = " and ".join(f"App {other!r}" for other in others)
    command = f"arriero store assign --from {shlex.quote(app)} --to {shlex.quote(others[0])} --reason WHY"
    return (
        f"start App {app!r} here; {names} {'has' if len(others) == 1 else 'have'} code of that name: if they are one system,"
        f" give both one name, App({others[0]!r}, ...), and run `{command}`"
    )


def describe_missing_version(task: TaskRow, others: Sequence[ProcessRow]) -> str:
    """Describe that no process alive has the version of the code that continues a task, and the next command.

    Args:
        others: processes alive with the code in other versions.
    """
    version, newest = task.code_version or FIRST_VERSION, read_process_about(others[-1]).versions.get(task.workflow, ())
    to = shlex.quote(name_version(newest[0] if newest else FIRST_VERSION, (version,)))
    command = f"arriero task pin {shlex.quote(task.task_id)} --to {to} --reason TEXT"
    return (
        f"no process alive has code version {version} of {format_code_name(task.workflow)}: start one that has it, or let another"
        f" version continue it: `{command}`; `arriero versions` lists what is there"
    )


def describe_process(process: ProcessRow) -> str:
    """Describe what a process says it runs."""
    about = read_process_about(process)
    parts = [f"App {about.app}" if about.app else "an App of an older release"]
    if about.workflows:
        parts.append(f"workflows {', '.join(about.workflows)}")
    if about.steps:
        parts.append(f"Agents {', '.join(sorted({agent for agent, _ in about.steps}))}")
    if about.roles:
        parts.append(f"roles {', '.join(about.roles)}")
    if about.leaving:
        parts.append("it drains and begins nothing")
    return f"{format_process(process)} ({'; '.join(parts)})"


def format_process(process: ProcessRow) -> str:
    """Format a process by its number in the store, its host and its number there."""
    return f"process {process.process_no} ({shorten_process_name(process.instance)})"


def format_code_name(workflow: str) -> str:
    """Format the code of a task: ``workflow order``, or ``step charge`` for a task of one step."""
    kind = "step" if workflow.startswith(STEP_PREFIX) else "workflow"
    return f"{kind} {workflow.removeprefix(STEP_PREFIX)}"
