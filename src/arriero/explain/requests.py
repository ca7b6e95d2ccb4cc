"""Requests that wait for a program outside of Python: whether a process could give them out, and whether a program asks."""

from ..core.lease import read_process_about
from ..core.routing import read_reports
from ..model import NOT_SAID, Instant, seconds_between
from ..model.processes import ProcessRow
from ..text.format import format_instant_and_age
from .liveness import LiveProcesses, format_process

START_GATEWAY = "run a process with the role http: arriero serve MODULE:APP"
START_PROGRAM = "start the program that asks for its requests; see docs/how-to/agents-in-any-language.md"
NOBODY_ASKS = "and none has asked"
PROCESSES_TOLD_MAX = 3
ASKS_SECONDS_MAX = 60.0  # between two questions of a program that does not wait for requests but comes again


def is_pulled(running: LiveProcesses, agent: str) -> bool:
    """Returns True if a process alive says that programs outside of Python ask for the requests of an Agent."""
    return any(agent in read_process_about(process).pulled for process in running.alive)


def describe_wait_for_program(running: LiveProcesses, agent: str, step: str, app: str = NOT_SAID) -> str:
    """Describe for whom a request of such an Agent waits. Empty: the Agent's steps are Python code."""
    if not is_pulled(running, agent):
        return ""
    return _describe_wait(running, agent, running.list_hosts_of_step(agent, step, app))


def describe_lack_of_url(running: LiveProcesses, agent: str, step: str, app: str = NOT_SAID) -> str:
    """Describe which processes do not begin a step because its callbacks need a URL. Empty: another one does, or none is there."""
    lacking = running.list_hosts_without_url(agent, step, app)
    if not lacking or running.list_hosts_of_step(agent, step, app):
        return ""
    names = ", ".join(map(format_process, lacking[:PROCESSES_TOLD_MAX]))
    return f"its callback needs a URL, and no public_url is set for {names}"


def find_step_without_url(running: LiveProcesses, agent: str) -> str:
    """Find a step of an Agent that no process alive begins because its callbacks need a URL. Empty: there is none."""
    abouts = map(read_process_about, running.list_hosts(agent))
    steps = sorted({step for about in abouts for of, step in about.without_url if of == agent})
    return next((step for step in steps if describe_lack_of_url(running, agent, step)), "")


def describe_wait_for_programs(running: LiveProcesses, agent: str) -> str:
    """Describe for whom all requests of such an Agent wait."""
    return _describe_wait(running, agent, running.list_hosts(agent))


def _describe_wait(running: LiveProcesses, agent: str, hosts: list[ProcessRow]) -> str:
    if not hosts:
        return f"it waits for a program outside of Python, and no process alive gives requests out; {START_GATEWAY}"
    names = ", ".join(map(format_process, hosts[:PROCESSES_TOLD_MAX]))
    reports = [found for process in hosts if (found := read_reports(process).get(agent)) is not None]
    if any(report.free > 0 for report in reports):
        return f"a program that asks for requests of Agent {agent} at {names} gets it at any moment"
    if any(report.places > 0 for report in reports):
        return f"the programs of Agent {agent} are at work, and none asks for more at {names}"
    asked_at = max((report.asked_at for report in reports), default=Instant(0))
    if asked_at and seconds_between(asked_at, running.now) <= ASKS_SECONDS_MAX:
        asked = format_instant_and_age(asked_at, running.now)
        return f"programs ask for requests of Agent {agent} at {names} now and then, the last time at {asked}"
    since = f"since {format_instant_and_age(asked_at, running.now)}" if asked_at else "since it started"
    return f"it waits for a program outside of Python, {NOBODY_ASKS} for requests of Agent {agent} at {names} {since}"
