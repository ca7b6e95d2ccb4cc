"""arriero in more than one process: two that share the work, Agents in another one, and one that is killed."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arriero_app import all_accepted, app, finish, marked, marks, warm_up
from common import Assignment, Marks, assignment, recovered, throughput


async def w1x2(tasks: int, url: str) -> dict[str, float]:
    """Throughput of two processes that run everything, each of which submits half."""
    async with another(url, "half", tasks // 2) as other:
        await warm_up()
        await told(other)  # it is warm, too
        other.stdin.write(b"go\n")  # type: ignore[union-attr]  # it is a pipe
        started_at = time.perf_counter()
        await finish(tasks - tasks // 2)
        await told(other)
        return throughput(tasks, started_at, time.perf_counter())


async def w9(tasks: int, url: str) -> dict[str, float]:
    """Throughput with all Agents in another process, reached through the store alone."""
    async with another(url, "agents", 0) as other:
        await told(other)
        await warm_up()
        started_at = time.perf_counter()
        await finish(tasks)
        return throughput(tasks, started_at, time.perf_counter())


def w4(asked: Assignment) -> dict[str, float]:
    """Time to the end of all tasks after a process that had them all in flight was killed at a third of their steps."""
    return recovered(asked, [sys.executable, __file__])


@asynccontextmanager
async def another(url: str, part: str, tasks: int, *, program: str = __file__) -> AsyncIterator[Process]:
    """Another process, of this program or another one, which ends with the block."""
    command = (sys.executable, program, part, os.curdir, str(tasks))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=os.environ | {"BENCH_STORE_URL": url}
    )
    try:
        yield process
    finally:
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        await process.wait()


async def told(other: Process) -> None:
    """Wait for the other process to say that it is so far. Raises SystemExit - it ended instead."""
    if not await other.stdout.readline():  # type: ignore[union-attr]  # it is a pipe
        raise SystemExit("the other process ended")


async def half(asked: Assignment) -> None:
    async with app.running(store=asked.url):
        await warm_up()
        print("warm", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await finish(asked.tasks)
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def agents(asked: Assignment) -> None:
    async with app.running(store=asked.url, roles=["agents"]):
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def begin(asked: Assignment) -> None:
    """Have all tasks in flight, then let them go; to be killed."""
    marks.append(Marks(asked.folder))
    async with app.running(store=asked.url):
        await asyncio.gather(*(app.submit(marked(index), task_id=f"task-{index}") for index in range(asked.tasks)))
        all_accepted.set()
        await asyncio.Event().wait()


async def resume(asked: Assignment) -> None:
    """Go on where the killed one stood, until all have ended; says how many are lost."""
    marks.append(Marks(asked.folder))
    all_accepted.set()
    async with app.running(store=asked.url):
        for index in range(asked.tasks):
            await app.task(f"task-{index}", marked).result()
        print("done", flush=True)


PARTS = {"half": half, "agents": agents, "begin": begin, "resume": resume}

if __name__ == "__main__":
    asked = assignment()
    asyncio.run(PARTS[asked.work](asked))
