"""Where failures came from, as ``arriero task show`` and ``explain`` print it."""

import click

from ..core.tracing import place_told, traceback_lines
from ..model import Trace
from .output import print_text
from .shapes import ShownTask


def print_trace(trace: Trace, *, indent: int) -> None:
    """The lines that an exception passed; nothing for an empty one."""
    for line in traceback_lines(trace):
        depth = len(line) - len(line.lstrip())
        print_text(line.strip(), first=" " * (indent + depth), hanging=indent + depth + 2)


def print_traces(task: ShownTask) -> None:
    """Of each failure of a task, and of the task's own, where in the code it was."""
    failed = {f"step {step.ordinal}, {step.label}": step.failure for step in task.steps}
    traces = {name: failure.trace for name, failure in failed.items() if failure is not None and failure.trace}
    if task.failure is not None and task.failure.trace and task.failure.trace not in traces.values():
        traces = {"the task": task.failure.trace, **traces}
    for name, trace in traces.items():
        told = place_told(trace)
        click.echo()
        print_text(f"where {name} failed{'; ' if told else ''}{told}", hanging=2)
        print_trace(trace, indent=2)
