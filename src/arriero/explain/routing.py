"""Sentences for people about routing: the Agents that may get a waiting request, and whether they have room."""

from collections.abc import Iterable

from ..core.lease import read_process_about
from ..core.routing import may_move, survey_hosts
from ..model import NOT_SAID, Instant, StepKind, StepRow
from ..processes import ProcessRow
from ..text.format import format_count


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
    return f"no process that hosts Agent {agent} has room: {format_count(hosted.places, 'place')} taken"
