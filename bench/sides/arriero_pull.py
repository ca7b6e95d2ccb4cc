"""An Agent outside of Python that pulls: steps a second through one gateway, and how long one that polls alone waits.

The gateway is a process of `arriero run` with the role http, the program another one, and this process submits. The Scheduler is
the gateway's, or this process's. Where the program polls alone, the submission goes to the process with the Scheduler.
"""

import asyncio
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

from arriero_masses import beside
from common import PAYLOAD, WARM_UP_TASKS
from pull_app import app, once, three
from pull_program import Caller

from arriero.store import open_store

STEPS = 3  # of a task, one after the other
BATCH = 100  # requests in one take
REPORTERS = 16  # connections that report
PAUSE_SECONDS = 0.05  # between two tasks where the program polls alone: it must wait already
ALONE = 200  # tasks of that
PROGRAM = Path(__file__).with_name("pull_program.py")


async def pull(tasks: int, url: str) -> dict[str, float]:
    """The figures, with the Scheduler in the gateway and apart from it, each on a store of its own."""
    together = await measure(tasks, url, ["scheduler", "supervisor", "http"], None)
    apart = await measure(tasks, beside(url, 1), ["http"], ["scheduler", "supervisor"])
    return together | {f"{name}, apart": figure for name, figure in apart.items()}


async def measure(tasks: int, url: str, of_gateway: list[str], of_this: list[str] | None) -> dict[str, float]:
    """The figures of one place of the Scheduler. ``of_this``: roles; None: this process only submits."""
    async with gateway(url, of_gateway) as (port, token), opened(url, of_this):
        async with program(port, token, BATCH, REPORTERS) as outside:
            await finish(outside, WARM_UP_TASKS)
            started_at = time.perf_counter()
            await finish(outside, tasks)
            seconds = time.perf_counter() - started_at
        async with program(port, token, 1, 0) as outside:
            submit = partial(submit_over_http, Caller(port, token)) if of_this is None else submit_here
            waits = [await deliver_one(outside, submit) for _ in range(ALONE)]
    delivered, reported = zip(*waits[ALONE // 10 :], strict=True)  # the first ones warm up
    return {"steps": tasks * STEPS / seconds, "deliver": median(delivered) * 1_000, "report": median(reported) * 1_000}


async def finish(outside: Process, tasks: int) -> None:
    """Submit as fast as possible; until the last report is recorded. Nobody asks for results, which would be load, too."""
    assert outside.stdout is not None
    submitting = asyncio.gather(*(app.submit(three(PAYLOAD)) for _ in range(tasks)))
    for _ in range(tasks * STEPS):
        if not await outside.stdout.readline():
            raise SystemExit("the program ended")
    await submitting


async def deliver_one(outside: Process, submit: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Submit one task while the program waits. Returns: from there until the program has it, from there to the report's answer."""
    await asyncio.sleep(PAUSE_SECONDS)
    submitted_at = time.monotonic()
    await submit()
    assert outside.stdout is not None
    _, taken_at, reported_at = (await outside.stdout.readline()).split()
    return float(taken_at) - submitted_at, float(reported_at) - float(taken_at)


async def submit_here() -> None:
    await app.submit(once(PAYLOAD))


async def submit_over_http(caller: Caller) -> None:
    body = {"workflow": "once", "arguments": {"payload": PAYLOAD}}
    await asyncio.to_thread(caller.post, "/v1/tasks", body)


@asynccontextmanager
async def opened(url: str, roles: list[str] | None) -> AsyncIterator[None]:
    """This process with the App, which runs roles of it, or only submits."""
    if roles is not None:
        async with app.running(store=url, roles=roles):
            yield
        return
    await app.session.open(open_store(url))
    try:
        yield
    finally:
        await app.session.close()


@asynccontextmanager
async def gateway(url: str, roles: list[str]) -> AsyncIterator[tuple[int, str]]:
    """A process that gives requests out. Yields: its port, and a token."""
    environment = os.environ | {"ARRIERO_HTTP_REQUESTS_PER_SECOND_MAX": "1000000"}
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder, "token")
        command = [sys.executable, "-m", "arriero", "run", "pull_app:app", "--store", url, "--roles", ",".join(roles)]
        command += ["--port", "0", "--token-file", str(token_file)]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=Path(__file__).parent, stdout=PIPE, env=environment
        )
        assert process.stdout is not None
        try:
            said = ""
            while (found := re.search(r"ready:.*127\.0\.0\.1:(\d+)", said)) is None:
                if not (said := (await process.stdout.readline()).decode()):
                    raise SystemExit("the gateway ended")
            yield int(found[1]), token_file.read_text().strip()  # noqa: ASYNC240  # once, a few bytes
        finally:
            process.terminate()
            await process.communicate()


@asynccontextmanager
async def program(port: int, token: str, limit: int, reporters: int) -> AsyncIterator[Process]:
    """The program of the Agent, which ends with the block."""
    command = (sys.executable, str(PROGRAM), str(port), token, str(limit), str(reporters))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
