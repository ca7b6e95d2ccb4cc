"""Runs workflow code, and records whose code runs for the report of a blocked event loop."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from ..commands import Submit
from ..core.task_run import RunnableCode, TaskRun
from ..model import Loaded, TaskRow

logger = logging.getLogger("arriero")
T = TypeVar("T")

# Whose code runs just now, by the event loop that it keeps waiting.
code_running: dict[asyncio.AbstractEventLoop | None, TaskRow | Submit] = {}


def run_code(task: TaskRow | Submit, run: Callable[[], T]) -> T:
    """Let a workflow's code run; meanwhile nothing else goes on on this event loop."""
    loop = asyncio._get_running_loop()
    code_running[loop] = task
    try:
        return run()
    finally:
        del code_running[loop]


def start_run(loaded: Loaded, code: RunnableCode | None) -> TaskRun:
    """A task with its code brought to where its record ends."""
    run = run_code(loaded.task, lambda: TaskRun(loaded, code))
    log_error(run)
    return run


def log_error(run: TaskRun) -> None:
    """Log an error of ours, or of the code's, by which a run is newly broken."""
    if run.error is not None:
        logger.error("task %s could not be driven", run.task.task_id, exc_info=run.error)
        run.error = None
