"""The ceiling: what PostgreSQL, its driver and the interpreter allow, with nothing of an engine around them.

The same 8 durable transitions a task as on SQLite (``ceiling_sqlite.py``), one transition of every task in flight in each
commit, each a set-based statement in one round trip with its COMMIT. No claim, guard, history or types; one thread. The
way ``fused`` is the same as there, too: four commits, two statements in each, in one round trip.
"""

import json
import time
from collections.abc import Callable, Sequence

import psycopg
from common import PAYLOAD, WARM_UP_TASKS, assignment, deliver, durability_of, latency, throughput

Drive = Callable[[psycopg.Connection, Sequence[int]], None]

IN_FLIGHT = 256
STEPS = 3

SCHEMA = """
CREATE TABLE task (task_no bigint PRIMARY KEY, state text NOT NULL, input text NOT NULL, output text);
CREATE TABLE step (
    task_no bigint NOT NULL, position integer NOT NULL, state text NOT NULL, argument text NOT NULL, result text,
    PRIMARY KEY (task_no, position));
"""
GIVEN = "json_to_recordset(%s::json) AS given (task_no bigint, position integer, payload text)"
CREATE = f"INSERT INTO task SELECT task_no, 'processing', payload FROM {GIVEN}"
INTEND = f"INSERT INTO step SELECT task_no, position, 'running', payload FROM {GIVEN}"
REPORT = (
    f"UPDATE step SET state = 'completed', result = given.payload FROM {GIVEN}"
    " WHERE step.task_no = given.task_no AND step.position = given.position AND state = 'running'"
)
END = (
    f"UPDATE task SET state = 'processed', output = given.payload FROM {GIVEN}"
    " WHERE task.task_no = given.task_no AND state = 'processing'"
)


def main() -> None:
    asked = assignment()
    connection = psycopg.connect(asked.url, autocommit=True)
    connection.execute(SCHEMA)
    drive = fused if asked.way == "fused" else apart
    drive(connection, range(WARM_UP_TASKS))
    started_at = time.perf_counter()
    tasks = range(WARM_UP_TASKS, WARM_UP_TASKS + asked.tasks)
    if asked.work == "w1":
        for first in range(tasks.start, tasks.stop, IN_FLIGHT):
            drive(connection, range(first, min(first + IN_FLIGHT, tasks.stop)))
        figures = throughput(asked.tasks, started_at, time.perf_counter())
    else:
        figures = latency([seconds_of(drive, connection, task_no) for task_no in tasks])
    check(connection, tasks.stop)
    deliver(figures, durability_of(asked) | {"in_flight": str(IN_FLIGHT)})


def apart(connection: psycopg.Connection, task_nos: Sequence[int]) -> None:
    """Take these tasks from their creation to their end: eight commits, a transition of each task in every one."""
    connection.execute(CREATE, of_tasks(task_nos))
    for position in range(STEPS):
        connection.execute(INTEND, of_steps(task_nos, position))
        connection.execute(REPORT, of_steps(task_nos, position))
    connection.execute(END, of_tasks(task_nos))


def fused(connection: psycopg.Connection, task_nos: Sequence[int]) -> None:
    """The same in four commits."""
    commit(connection, (CREATE, of_tasks(task_nos)), (INTEND, of_steps(task_nos, 0)))
    for position in range(1, STEPS):
        last, this = of_steps(task_nos, position - 1), of_steps(task_nos, position)
        commit(connection, (REPORT, last), (INTEND, this))
    commit(connection, (REPORT, of_steps(task_nos, STEPS - 1)), (END, of_tasks(task_nos)))


def of_tasks(task_nos: Sequence[int]) -> list[str]:
    return [json.dumps([{"task_no": task_no, "payload": PAYLOAD} for task_no in task_nos])]


def of_steps(task_nos: Sequence[int], position: int) -> list[str]:
    return [json.dumps([{"task_no": task_no, "position": position, "payload": PAYLOAD} for task_no in task_nos])]


def commit(connection: psycopg.Connection, *writes: tuple[str, list[str]]) -> None:
    with connection.pipeline():
        connection.execute("BEGIN")
        for statement, rows in writes:
            connection.execute(statement, rows)
        connection.execute("COMMIT")


def seconds_of(drive: Drive, connection: psycopg.Connection, task_no: int) -> float:
    started_at = time.perf_counter()
    drive(connection, (task_no,))
    return time.perf_counter() - started_at


def check(connection: psycopg.Connection, tasks: int) -> None:
    """Refuse to report on work that was not done."""
    (ended,) = connection.execute("SELECT count(*) FROM task WHERE state = 'processed'").fetchone() or (0,)
    (completed,) = connection.execute("SELECT count(*) FROM step WHERE state = 'completed'").fetchone() or (0,)
    connection.close()
    if (ended, completed) != (tasks, tasks * STEPS):
        raise SystemExit(f"{ended} of {tasks} tasks ended, {completed} steps completed")


if __name__ == "__main__":
    main()
