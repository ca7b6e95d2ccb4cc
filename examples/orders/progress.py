"""Reads from the state store how far the tasks are: cheap enough to ask several times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .orders_table import without_partner
from .places import Place
from .turns import Life

ENDED = ("processed", "compensated", "held")
STATE = "CASE state WHEN 'error' THEN 'held' ELSE state END"  # tables keep the word of release 0.4
HELD_TASKS = "SELECT instance, task_no, lost_count FROM {task} JOIN {process} ON process_no = locked_by"
HELD_STEPS = (
    "SELECT instance, task.task_no, task.lost_count FROM {step} AS step"
    " JOIN {process} AS process ON process.process_no = step.locked_by JOIN {task} AS task ON task.task_no = step.task_no"
    " WHERE step.state = 'running'"
)


@dataclass(frozen=True)
class Counts:
    """How many tasks are in each state, and what their steps are doing."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    steps_running: int = 0
    steps_done: int = 0
    retries: int = 0
    undos: int = 0

    @property
    def ended(self) -> int:
        return sum(self.tasks.get(state, 0) for state in ENDED)


def task_counts(place: Place) -> Counts:
    """The counts of this moment. Raises: NotReadable."""
    with place.reading() as connection:
        asked = f"SELECT {STATE}, count(*) FROM {{task}} GROUP BY state".format(**place.tables)
        tasks = {state: count for state, count in connection.execute(asked).fetchall()}
        asked = (
            "SELECT kind, state, count(*), sum(failure_count) FROM {step} WHERE kind <> 'timer' GROUP BY kind, state"
        ).format(**place.tables)
        steps = connection.execute(asked).fetchall()
    failed = sum(count for _, state, count, _ in steps if state == "failed")
    return Counts(
        tasks=tasks,
        steps_running=sum(count for _, state, count, _ in steps if state == "running"),
        steps_done=sum(count for _, state, count, _ in steps if state == "completed"),
        # The last attempt of a step that was given up is a failure that nothing followed.
        retries=max(0, sum(failures for *_, failures in steps) - failed),
        undos=sum(count for kind, state, count, _ in steps if (kind, state) == ("compensation", "completed")),
    )


@dataclass(frozen=True)
class Held:
    """A process in the store, and what depends on it."""

    instance: str
    steps_running: int
    tasks: Mapping[int, int]
    """The tasks that it holds or attempts, with how many processes each of them has lost already."""


def held(place: Place) -> list[Held]:
    """What each process holds that holds anything. Raises: NotReadable."""
    with place.reading() as connection:
        tasks = connection.execute(HELD_TASKS.format(**place.tables)).fetchall()
        steps = connection.execute(HELD_STEPS.format(**place.tables)).fetchall()
    return [
        Held(
            instance=instance,
            steps_running=sum(1 for holder, *_ in steps if holder == instance),
            tasks={task_no: lost for holder, task_no, lost in [*tasks, *steps] if holder == instance},
        )
        for instance in {holder for holder, *_ in [*tasks, *steps]}
    ]


def task_lives(place: Place) -> dict[str, Life]:
    """What became of each task, by its id. Raises: NotReadable."""
    with place.reading() as connection:
        asked = f"SELECT task_id, {STATE}, started_at, ended_at, turn FROM {{task}}".format(**place.tables)
        return {
            task_id: Life(state, started_at, ended_at, is_set_aside=turn == "set_aside")
            for task_id, state, started_at, ended_at, turn in connection.execute(asked).fetchall()
        }


def unpaired(place: Place) -> tuple[list[str], list[str]]:
    """Orders of the shop's table without a task, and tasks without an order. Raises: NotReadable."""
    with place.reading() as connection:
        return without_partner(connection, place)
