"""Which processes are alive, and what they say they run: what tells whether anybody could do what waits."""

from collections.abc import Iterable

from ..model import Instant, ProcessRow
from . import wording
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

    def running_workflow(self, workflow: str) -> list[ProcessRow]:
        """Processes alive that say they have the workflow's code."""
        return [process for process in self.with_role("scheduler") if has_workflow(process, workflow)]

    def hosting(self, agent: str) -> list[ProcessRow]:
        """Processes alive that host at least one step of an Agent."""
        return [p for p in self.with_role("agents") if any(of == agent for of, _ in about_of(p).steps)]

    def hosting_step(self, agent: str, step: str) -> list[ProcessRow]:
        """Processes alive that host a step of an Agent."""
        return [p for p in self.with_role("agents") if (agent, step) in about_of(p).steps]


def has_workflow(process: ProcessRow, workflow: str) -> bool:
    """Whether a process says that it has the code of a task's workflow.

    Of single steps some processes name none, whatever code they have: those may have it.
    """
    about = about_of(process)
    if workflow in about.workflows:
        return True
    return workflow.startswith(STEP_PREFIX) and not any(name.startswith(STEP_PREFIX) for name in about.workflows)


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
