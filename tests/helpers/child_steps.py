"""Steps that run in child processes: those must be able to import them. ``main`` is run by a program of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arriero import (
    Agent,
    App,
    Attempt,
    Callback,
    Permanent,
    Retry,
    Supervision,
    Transient,
    callback,
    current_attempt,
    workflow,
)

ONCE: dict[str, Any] = {"run_in": "process", "retry": Retry(tries=1)}
TWICE = Supervision(attempts=2)
child = Agent("child")


@dataclass(frozen=True)
class Parcel:
    id: str
    grams: int


@child.resource
def scales() -> Iterator[str]:
    yield "scales"


@child.step(complete_within=20, **ONCE)
def weigh(attempt: Attempt, parcel: Parcel) -> Parcel:
    attempt.checkpoint_sync({"weighed": parcel.id})
    remaining = attempt.extend_sync(60)
    assert 50 < remaining <= 60
    return Parcel(f"{parcel.id}, {attempt.checkpointed['weighed']}, {attempt.idempotency_key}", os.getpid())


@child.step(complete_within=20, **ONCE)
def read_url(done: Callback[str]) -> str:
    return done.url


@child.step(complete_within=60, **ONCE)
def report_pages(attempt: Attempt, pages: int) -> int:
    for page in range(pages):
        attempt.publish({"page": page})
    return pages


@child.step(complete_within=20, supervision=Supervision(attempts=1), **ONCE)
def fail(attempt: Attempt, how: str) -> int:
    if how == "permanent":
        raise Permanent("too heavy", code="heavy", details={"grams": 9}, public="It is too heavy.")
    if how == "transient":
        raise Transient("busy", code="busy", retry_after=0.0)
    if how == "unknown":
        raise ValueError("no idea")
    if how == "resource":
        scales()
    os._exit(3)


@child.step(complete_within=1.5, supervision=Supervision(attempts=9, complete_within_factor=3), **ONCE)
def hang(attempt: Attempt, folder: str) -> int:
    if (Path(folder) / "pid").exists():  # an attempt whose child began too late to write it does not count
        return attempt.number
    (Path(folder) / "pid.new").write_text(str(os.getpid()))
    (Path(folder) / "pid.new").rename(Path(folder) / "pid")
    while True:  # as code that holds the interpreter's lock and looks at nothing
        time.sleep(0)


@child.step(complete_within=600, supervision=TWICE, **ONCE)
def hang_long(attempt: Attempt, folder: str) -> int:
    return hang.function(attempt, folder)


@child.step(complete_within=60, **ONCE)
def wait_for_news(attempt: Attempt, folder: str) -> list[int]:
    """Answers with the exit codes of a program that it started and of a process that it forked, after both got SIGTERM."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    forked = os.fork()
    while not forked:
        time.sleep(1)
    (Path(folder) / "pid.new").write_text(str(os.getpid()))
    (Path(folder) / "pid.new").rename(Path(folder) / "pid")
    while not (Path(folder) / "news").exists():
        time.sleep(0.01)
    program.terminate()
    os.kill(forked, signal.SIGTERM)
    return [program.wait(), os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])]


def find_key() -> str:
    return current_attempt().idempotency_key


@child.step(complete_within=20, **ONCE)
def find_key_below(prefix: str) -> str:
    return prefix + find_key()


@workflow
async def wait_until_news(folder: str) -> list[int]:
    return await wait_for_news(folder)


@workflow
async def weigh_one(parcel: Parcel) -> Parcel:
    return await weigh(parcel)


@workflow
async def fail_one(how: str) -> int:
    return await fail(how)


@workflow
async def hang_once(folder: str) -> int:
    return await hang(folder)


@workflow
async def hang_for_long(folder: str) -> int:
    return await hang_long(folder)


@workflow
async def read_url_in_child() -> str:
    return await read_url(callback(str))


WORKFLOWS = (read_url_in_child, weigh_one, fail_one, hang_once, hang_for_long, wait_until_news)


async def main(folder: str, is_long: bool) -> None:
    app = App("machine", agents=[child], workflows=WORKFLOWS, store=f"sqlite:///{folder}/of_program.db")
    async with app.running():
        await (await app.submit((hang_for_long if is_long else hang_once)(folder))).result()
