"""The options that name many tasks at once: the same for looking at them and for acting on them."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from .. import codec
from ..client.tasks import compute_since
from ..errors import InvalidInput
from ..model import Instant, TaskState, later
from ..store.task_filter import TaskFilter
from ..text.format import format_seconds
from .options import parse_duration, parse_duration_or_instant

_NAMES = ("workflow", "agent", "step", "ledger")  # checked as ids


class TaskSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a person selects; None: any.

    ``older_than``: seconds since their submission at least. ``since``: seconds at most, or when at the earliest.
    """

    state: str | None = None
    workflow: str | None = None
    agent: str | None = None
    step: str | None = None
    older_than: float | None = None
    since: float | datetime | None = None
    code: str | None = None
    text: str | None = None
    paused: bool | None = None
    ledger: str | None = None

    def __post_init__(self) -> None:
        """Refuse an empty name, which an unset variable of a shell gives: it would select any task."""
        for name in _NAMES:
            if (value := getattr(self, name)) is not None:
                codec.check_id(value, name)
        for name in ("code", "text"):
            if getattr(self, name) == "":
                raise InvalidInput(f"--{name} is empty; leave it out, or say what to look for")

    def __str__(self) -> str:
        """The options that were given; empty for none."""
        paused = {None: None, True: "--paused", False: "--not-paused"}[self.paused]
        older_than = None if self.older_than is None else f"--older-than {format_seconds(self.older_than)}"
        since = None if self.since is None else f"--since {_format_since(self.since)}"
        names = ("state", "workflow", "agent", "step", "ledger", "code", "text")
        texts = [f"--{name} {value}" for name in names if (value := getattr(self, name)) is not None]
        return " ".join([*texts, *filter(None, (older_than, since, paused))])

    def filter(self, now: Instant) -> TaskFilter:
        """Build the filter that the store gets, by its clock."""
        return TaskFilter(
            state=None if self.state is None else TaskState(self.state),
            workflow=self.workflow,
            agent=self.agent,
            step=self.step,
            submitted_before=None if self.older_than is None else later(now, -self.older_than),
            submitted_since=compute_since(self.since, now),
            code=self.code,
            text=self.text,
            paused=self.paused,
            ledger=self.ledger,
        )


def _format_since(since: float | datetime) -> str:
    return f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if isinstance(since, datetime) else format_seconds(since)


_OPTIONS = (
    click.option("--state", type=click.Choice([str(state) for state in TaskState]), help="Only tasks in this state."),
    click.option("--workflow", metavar="NAME", help="Only tasks of this workflow; step:NAME for tasks of one step."),
    click.option("--agent", metavar="NAME", help="Only tasks that stand at a step of this Agent, or failed by one."),
    click.option("--step", metavar="NAME", help="Only tasks that stand at this step, or failed by it."),
    click.option(
        "--older-than", metavar="DURATION", type=parse_duration, help="Only tasks submitted so long ago, like 2h."
    ),
    click.option(
        "--since",
        metavar="WHEN",
        type=parse_duration_or_instant,
        help="Only tasks submitted since then: a duration like 2h, or an instant like 2026-11-20T14:15Z.",
    ),
    click.option("--ledger", metavar="ID", help="Only tasks that came with this ledger."),
    click.option("--code", metavar="CODE", help="Only tasks whose failure has exactly this code."),
    click.option("--text", metavar="TEXT", help="Only tasks whose failure says this somewhere."),
    click.option("--paused/--not-paused", default=None, help="Only tasks that are, or are not, paused."),
)


def filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select tasks; the function gets them as one ``which``."""

    @functools.wraps(function)
    def run(*arguments: Any, **given: Any) -> None:
        which = TaskSelection(**{name: given.pop(name) for name in TaskSelection.__struct_fields__})
        function(*arguments, which=which, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
