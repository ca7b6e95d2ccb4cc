"""Measure what a store full of finished tasks costs: `python bench/growth.py`; every operation without and with them.

Two databases of one PostgreSQL server take their turns in one run: one has only live tasks, the other the same and a
million finished ones with their steps and history. The server does not wait for the disk (fsync off): what it waits
there does not grow, and would hide what does.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import click
import msgspec
import psycopg

sys.path.insert(0, str(Path(__file__).parent / "sides"))  # also when it is imported, by the tests
from filling import fill

from arriero.model import StepKind, StepRow, TaskRow
from arriero.model.answers import Applied, Claimed, Dispatch, Submitted, Taken
from arriero.model.commands import Advance, AnyCommand, Claim, FreeTask, Recover, Report, Submit, Take
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import Ending, GaveUp, Hold, Keep, NewStep, Process, Reported, Succeeded
from arriero.model.policies import Retry, StepPolicy, Supervision, TaskPolicy
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server

T = TypeVar("T")
AGENT, NAMES, WORKFLOW = "payments", ("charge", "reserve", "ship"), "fulfil"
LEASE_SECONDS = 600.0
DAY_SECONDS = 86_400.0
BATCH = 50  # tasks of one round
ASLEEP = 200  # tasks in the background that wait for a day to come
HELD_ELSEWHERE = 100  # tasks in the background that another process holds, each with a running step
EXPIRING, LOST, FAILING, WITH_READER = 5, 5, 1, 10  # of a round's tasks
STEP_POLICY = msgspec.json.encode(StepPolicy(3600.0, None, Retry(), Supervision())).decode()
TASK_POLICY = msgspec.json.encode(TaskPolicy(None, Supervision())).decode()
DONE = Succeeded('"' + "r" * 198 + '"')
LATE = GaveUp(StepFailure("expired", "no report in time", "expired"), True)
QUEUE = "orders"
RATIO_MAX = 3  # medians of milliseconds on a busy machine are up to twice each other by chance

Measure = Callable[[str, Awaitable[T]], Awaitable[T]]


def submission(task_id: str, **changes: Any) -> Submit:
    """A task with 200 bytes of arguments."""
    fields: dict[str, Any] = {
        "actor": "client",
        "task_id": task_id,
        "workflow": WORKFLOW,
        "arguments": json.dumps({"order": "o" * 186}),
        "body_hash": "0" * 32,
        "policy": TASK_POLICY,
        "priority": 5,
        "delay": 0.0,
        "complete_within": 7200.0,
        "seed": 7,
    }
    return Submit(**(fields | changes))


def new_step(name: str, *, take: bool = False, complete_within: float = 3600.0) -> NewStep:
    """A request for the one Agent."""
    return NewStep(
        kind=StepKind.STEP,
        name=name,
        key="#1",
        agent=AGENT,
        arguments=json.dumps({"order": "o" * 186}),
        policy=STEP_POLICY,
        idempotency_key=f"key-of-{name}",
        compensation=STEP_POLICY,
        complete_within=complete_within,
        wait_within=3600.0,
        take=take,
    )


class Life:
    """Rounds of the life of tasks on one store: from the submission to the end, with everything asked in between."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.process_no = 0
        self.rounds = 0
        self._elsewhere = 0
        self._term = 0
        self._ended: list[int] = []

    async def begin(self) -> None:
        """Processes, and the tasks in the background."""
        self.process_no = await self.store.register("here", LEASE_SECONDS)
        self._elsewhere = await self.store.register("elsewhere", LEASE_SECONDS)
        self._term = (await self.store.acquire_lease(SUPERVISOR_LEASE, self.process_no, "leader", LEASE_SECONDS)).term
        asleep = [submission(f"asleep-{number}", delay=30 * DAY_SECONDS) for number in range(ASLEEP)]
        await self.store.submit(asleep)
        await self.store.submit([submission(f"elsewhere-{number}") for number in range(HELD_ELSEWHERE)])
        held = await self._claim(self._elsewhere, HELD_ELSEWHERE)
        assert len(held) == HELD_ELSEWHERE
        await self._apply([self.advance(task, opened=[new_step("charge", take=True)]) for task in held])

    async def round(self, measure: Measure[Any], joining: psycopg.Connection[Any]) -> None:
        """One round. ``joining``: a connection of the caller's, whose transactions are rolled back."""
        store, here = self.store, self.process_no
        self.rounds += 1
        names = [f"task-{self.rounds}-{number}" for number in range(BATCH)]
        batch = [submission(name, reply_to=QUEUE if n < WITH_READER else None) for n, name in enumerate(names)]
        submitted = await measure(f"submit {BATCH}", store.submit(batch))
        assert all(isinstance(answer, Submitted) and answer.created for answer in submitted)
        await measure("submit joined", self._submit_joined(joining))
        assert (await measure("due", store.due((WORKFLOW,), (AGENT,)))).tasks
        await self._lose_some(measure)
        tasks = {task.task_no: task for task in await measure(f"claim {BATCH}", self._claim(here, BATCH))}
        assert len(tasks) == BATCH

        await measure(f"open {3 * BATCH} steps", self._open(tasks))
        assert (await store.due((WORKFLOW,), (AGENT,))).steps
        taken = await measure(f"take {3 * BATCH - EXPIRING}", self._take(3 * BATCH))
        assert len(taken) == 3 * BATCH - EXPIRING
        held = await measure(f"load held {BATCH}", store.load_held(here, BATCH))
        assert len(held) == BATCH
        renewal = await measure("renew", store.renew(here, LEASE_SECONDS))
        assert renewal.renewed
        assert self._elsewhere in {other.process_no for other in renewal.others}
        assert await measure("renew lease", store.renew_lease(SUPERVISOR_LEASE, here, self._term, LEASE_SECONDS))

        expired = (await measure("load overdue", store.load_overdue(100, 60.0, 2.0))).expired
        assert len(expired) == EXPIRING
        recovered = await measure(f"recover {EXPIRING}", self._apply(map(self._recover, expired)))
        reported = [self._report(dispatch.step) for dispatch in taken[:BATCH]]
        recorded = await measure(f"report {BATCH}", self._apply(reported))
        self._keep(tasks, recovered + recorded)
        assert await measure("load news", store.load_news(here))

        delivered = [step for dispatch in taken[BATCH:] if (step := dispatch.step)]
        await measure(f"deliver {len(delivered)}", self._deliver(tasks, delivered))
        waiting = list(tasks) + self._ended[-200:]
        assert len(await measure(f"ended of {BATCH + 200}", store.load_ended(waiting))) == len(self._ended[-200:])
        await measure(f"end {BATCH}", self._end(tasks))
        self._ended += tasks
        found = await measure("find", store.find(names[0]))
        assert found is not None
        assert await measure("list 100", store.list_tasks(after=min(tasks) - 1, limit=100))
        statuses = await measure("load statuses", store.load_statuses(QUEUE, 100))
        assert statuses
        await measure("acknowledge", store.acknowledge([(status.queue, status.no) for status in statuses]))
        assert len(await measure("take alerts", store.take_alerts(100, LEASE_SECONDS))) == FAILING

    async def _submit_joined(self, joining: psycopg.Connection[Any]) -> None:
        with joining.transaction(force_rollback=True):
            answer = self.store.submit_joined(submission(f"joined-{self.rounds}"), joining)
            assert isinstance(answer, Submitted)

    async def _lose_some(self, measure: Measure[Any]) -> None:
        """A process claims some tasks and is lost: they are freed."""
        lost = await self.store.register(f"lost-{self.rounds}", LEASE_SECONDS)
        held = await self._claim(lost, LOST)
        await measure("retire", self.store.retire(lost, by="here", known_dead=True))
        freeing = [
            FreeTask(
                actor="here",
                task_no=task.task_no,
                fence=task.fence,
                steps=(),
                lost_by=lost,
                stuck_since=None,
                charged=False,
                hold=None,
            )
            for task in held
        ]
        await measure(f"free {LOST}", self._apply(freeing))

    async def _claim(self, process_no: int, limit: int) -> list[TaskRow]:
        claim = Claim(actor="p", process_no=process_no, workflows=(WORKFLOW,), limit=limit, probation=True)
        (answer,) = await self.store.apply([claim])
        assert isinstance(answer, Claimed)
        return [loaded.task for loaded in answer.tasks]

    async def _take(self, limit: int) -> Sequence[Dispatch]:
        take = Take(actor="p", process_no=self.process_no, room=((AGENT, limit),), names=NAMES, probation=None)
        (answer,) = await self.store.apply([take])
        assert isinstance(answer, Taken)
        return answer.dispatches

    async def _apply(self, commands: Iterable[AnyCommand]) -> list[Applied]:
        answers = await self.store.apply(list(commands))
        applied = [answer for answer in answers if isinstance(answer, Applied)]
        assert len(applied) == len(answers), answers
        return applied

    def _keep(self, tasks: dict[int, TaskRow], answers: Iterable[Applied]) -> None:
        tasks.update((answer.task.task_no, answer.task) for answer in answers)

    async def _open(self, tasks: dict[int, TaskRow]) -> None:
        expiring = set(list(tasks)[:EXPIRING])
        opened = {
            number: [
                new_step("charge"),
                new_step("reserve"),
                new_step("ship", take=number in expiring, complete_within=0.0 if number in expiring else 3600.0),
            ]
            for number in tasks
        }
        advances = [self.advance(task, opened=opened[number]) for number, task in tasks.items()]
        self._keep(tasks, await self._apply(advances))
        for answer in await self._reload(tasks):
            tasks[answer.task_no] = answer

    async def _reload(self, tasks: dict[int, TaskRow]) -> list[TaskRow]:
        return [loaded.task for loaded in await self.store.load_held(self.process_no, len(tasks))]

    async def _deliver(self, tasks: dict[int, TaskRow], steps: Sequence[StepRow]) -> None:
        reports: dict[int, list[Reported]] = {}
        for step in steps:
            reports.setdefault(step.task_no, []).append(_reported(step))
        advances = [self.advance(tasks[number], delivered=given) for number, given in reports.items()]
        self._keep(tasks, await self._apply(advances))

    async def _end(self, tasks: dict[int, TaskRow]) -> None:
        failure = TaskFailure("step", "charge: declined", "charge", "declined")
        endings: dict[int, Ending] = {number: Process(output='"done"') for number in tasks}
        endings.update((number, Hold(failure)) for number in list(tasks)[-FAILING:])
        await self._apply([self.advance(task, ending=endings[number]) for number, task in tasks.items()])

    def advance(
        self,
        task: TaskRow,
        delivered: Sequence[Reported] = (),
        opened: Sequence[NewStep] = (),
        ending: Ending | None = None,
    ) -> Advance:
        """A command of the task's holder, from the task as it was read."""
        assert task.locked_by is not None
        return Advance(
            actor="p",
            task_no=task.task_no,
            process_no=task.locked_by,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            unseen_since=task.unseen_since,
            delivered=tuple(delivered),
            opened=tuple(opened),
            ending=ending or Keep(),
        )

    def _report(self, step: StepRow) -> Report:
        return Report(actor="agent", process_no=self._elsewhere, report=_reported(step))

    def _recover(self, step: StepRow) -> Recover:
        return Recover(
            actor="leader", step_no=step.step_no, fence=step.fence, starved=False, term=self._term, outcome=LATE
        )


def _reported(step: StepRow) -> Reported:
    return Reported(step_no=step.step_no, fence=step.fence, outcome=DONE, delivered_at=step.opened_at)


# --- measuring
class Timer:
    """Seconds of each operation, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    async def __call__(self, name: str, work: Awaitable[T]) -> T:
        begun = time.perf_counter()
        answer = await work
        self.seconds.setdefault(name, []).append(time.perf_counter() - begun)
        return answer


async def untimed(_name: str, work: Awaitable[T]) -> T:
    """A measure for rounds that warm up."""
    return await work


async def measured(urls: Sequence[str], finished: Sequence[int], rounds: int, warm_up: int) -> list[Timer]:
    """Let the databases take their turns, a round each."""
    lives, timers = [], [Timer() for _ in urls]
    for url, tasks in zip(urls, finished, strict=True):
        store = PostgresStore(f"{url}?listen=off")
        await store.open()
        life = Life(store)
        await life.begin()
        with psycopg.connect(url) as joining:
            await life.round(untimed, joining)
        if tasks:
            begun = time.perf_counter()
            await asyncio.to_thread(fill, url, tasks)
            print(f"{tasks:,} finished tasks made in {time.perf_counter() - begun:.0f} s", flush=True)
        lives.append(life)
    for number in range(warm_up + rounds):
        for url, life, timer in zip(urls, lives, timers, strict=True):
            with psycopg.connect(url) as joining:
                await life.round(timer if number >= warm_up else untimed, joining)
    for life in lives:
        await life.store.close()
    return timers


def rows_of(empty: Timer, full: Timer) -> list[dict[str, str | float]]:
    """Medians in milliseconds, and full to empty."""
    rows: list[dict[str, str | float]] = []
    for name, seconds in empty.seconds.items():
        without, grown = median(seconds) * 1000, median(full.seconds[name]) * 1000
        rows.append({"operation": name, "empty_ms": without, "full_ms": grown, "ratio": grown / without})
    return rows


@click.command()
@click.option("--tasks", default=1_000_000, show_default=True, type=click.IntRange(min=1), help="Finished ones.")
@click.option("--rounds", default=60, show_default=True, type=click.IntRange(min=1), help="Turns of each database.")
@click.option("--version", default=16, show_default=True, help="Of PostgreSQL.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the rows here.")
def main(tasks: int, rounds: int, version: int, json_file: Path | None) -> None:
    """Print each operation's time with and without finished tasks. Exits 1 if an operation takes three times as long."""
    with Server.start(version, durable=False, settings={"shared_buffers": "512MB", "max_wal_size": "8GB"}) as server:
        urls = [server.create_database("empty"), server.create_database("full")]
        timers = asyncio.run(measured(urls, (0, tasks), rounds, warm_up=5))
    rows = rows_of(*timers)
    print(f"{'operation':<22}{'0 finished':>14}{f'{tasks:,} finished':>22}{'ratio':>8}")
    for row in rows:
        print(f"{row['operation']:<22}{row['empty_ms']:>11.2f} ms{row['full_ms']:>19.2f} ms{row['ratio']:>8.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps({"tasks": tasks, "rounds": rounds, "rows": rows}, indent=2) + "\n")
    sys.exit(1 if any(float(row["ratio"]) > RATIO_MAX for row in rows) else 0)


if __name__ == "__main__":
    main()
