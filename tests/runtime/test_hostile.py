"""What a hostile reader found once: each of these took a task, an Agent's place or the process along."""

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from arriero import Agent, App, Attempt, StoreError, Supervision, TaskFailed, testing, workflow
from arriero.model import Loaded
from arriero.model.answers import Answer, Taken
from arriero.model.commands import AnyCommand

ONCE = Supervision(attempts=1)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("by itself")], ids=["sys.exit", "cancelled"])
async def test_a_step_that_ends_the_process_or_cancels_itself_only_fails(error: BaseException) -> None:
    agent = Agent("rude")

    @agent.step(supervision=ONCE, effect_free=True)
    async def leave(attempt: Attempt) -> None:
        raise error

    @agent.step
    async def stay(attempt: Attempt) -> str:
        return "here"

    async with testing.running(App("rude", agents=[agent])) as world:
        began = world.clock.now()
        with pytest.raises(TaskFailed, match=type(error).__name__):
            await (await world.app.submit(leave())).result()
        assert (world.clock.now() - began).total_seconds() < 10  # told at once, not when its time had passed
        assert await (await world.app.submit(stay())).result() == "here"


async def test_a_plain_step_out_of_which_stop_iteration_comes_fails_at_once(tmp_path: Path) -> None:
    agent = Agent("empty")

    @agent.step(supervision=ONCE, effect_free=True, complete_within=600)
    def first(attempt: Attempt) -> int:
        return next(iter([]))

    async with App("empty", agents=[agent]).running(store=f"sqlite:///{tmp_path}/a.db") as app:
        with pytest.raises(TaskFailed, match="StopIteration"):
            await (await app.submit(first())).result(timeout=60)


async def test_steps_in_as_completed_open_alike_in_every_replay(tmp_path: Path) -> None:
    agent = Agent("many", max_in_flight=100)

    @agent.step
    async def twice(attempt: Attempt, n: int) -> int:
        return 2 * n

    @workflow
    async def race(size: int) -> int:
        total = 0
        for first in asyncio.as_completed([twice(n) for n in range(size)]):
            total += await first
        await hold(size)
        return total

    let_go = asyncio.Event()

    @agent.step(complete_within=600)
    async def hold(attempt: Attempt, size: int) -> None:
        await let_go.wait()

    app = App("race", agents=[agent], workflows=[race])
    async with testing.running(app) as world:
        tasks = [await world.app.submit(race(8)) for _ in range(10)]
        await world.clock.advance(1)
        scheduler = world.app.session.node.session.scheduler  # type: ignore[union-attr]  # it runs
        for task_no in list(scheduler.drivers):
            scheduler.reload_soon(task_no, ())  # as a process does that goes on from the record
        await world.clock.advance(1)
        let_go.set()
        assert [await task.result() for task in tasks] == [56] * 10


async def test_garbage_that_is_collected_while_workflow_code_runs_is_not_its_fault() -> None:
    agent = Agent("litter")

    class Litter:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            asyncio.get_running_loop().time()

    @agent.step
    async def drop(attempt: Attempt) -> None:
        for _ in range(50):
            Litter()

    @workflow
    async def allocate() -> int:
        await drop()
        return sum(len([[] for _ in range(1000)]) for _ in range(100))

    gc.collect()
    async with testing.running(App("litter", agents=[agent], workflows=[allocate])) as world:
        assert await (await world.app.submit(allocate())).result() == 100_000
    gc.collect()


@pytest.mark.parametrize("name", ["socket.connect", "subprocess.Popen"])
async def test_blocking_calls_of_workflow_code_are_refused_by_name(name: str) -> None:
    @workflow
    async def blocks() -> None:
        try:
            match name:
                case "socket.connect":
                    socket.create_connection(("127.0.0.1", 9), timeout=1)
                case _:
                    subprocess.run([sys.executable, "-c", "pass"], check=False)
        except Exception:
            pass  # swallowing it does not help

    async with testing.running(App("blocks", workflows=[blocks])) as world:
        with pytest.raises(TaskFailed, match="workflow code called.*move the call into a step"):
            await (await world.app.submit(blocks())).result()


NAMES_ARE_GONE = """
import sys
from arriero.core import workflow_loop
workflow_loop.WorkflowLoop(None, 1)
vars(workflow_loop).update(dict.fromkeys(vars(workflow_loop)))  # as the interpreter does at its end
open(sys.argv[1]).close()
"""


def test_a_file_that_is_opened_at_the_end_of_the_interpreter_meets_no_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "late").touch()
    command = [sys.executable, "-c", NAMES_ARE_GONE, str(tmp_path / "late")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""


async def test_the_result_of_a_task_that_ended_long_ago_is_there_at_once() -> None:
    agent = Agent("quick")

    @agent.step
    async def go(attempt: Attempt) -> int:
        return 1

    async with testing.running(App("quick", agents=[agent])) as world:
        tasks = [await world.app.submit(go()) for _ in range(5)]
        await world.clock.advance(5)
        began = world.clock.now()
        assert [await task.result() for task in tasks] == [1] * 5
        assert world.clock.now() == began


@pytest.mark.parametrize("lost", ["the answer", "the answer, then the look at what is held"])
async def test_a_lost_answer_to_a_take_costs_no_place_and_gives_none_twice(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("one", max_in_flight=1)
    under_way, most = 0, 0

    @agent.step(supervision=ONCE)
    async def go(attempt: Attempt) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(20):
            await asyncio.sleep(0)
        under_way -= 1
        return 1

    async with testing.running(App("one", agents=[agent])) as world:
        store = world._store
        apply, load_held = store.apply, store.load_held
        losses = {"take": 1, "held": 1 if "look" in lost else 0}

        async def losing(batch: Sequence[AnyCommand]) -> list[Answer]:
            answers = await apply(batch)
            if losses["take"] and any(isinstance(answer, Taken) and answer.dispatches for answer in answers):
                losses["take"] = 0
                raise StoreError("the answer was lost")
            return answers

        async def away(process_no: int, limit: int) -> list[Loaded]:
            if losses["held"] and not losses["take"]:
                losses["held"] = 0
                raise StoreError("and the store stays away for a moment")
            return await load_held(process_no, limit)

        monkeypatch.setattr(world.app.session.node.session.committer, "_write", losing)  # type: ignore[union-attr]  # it runs
        monkeypatch.setattr(store, "load_held", away)
        tasks = [await world.app.submit(go()) for _ in range(6)]
        assert [await task.result() for task in tasks] == [1] * 6
        assert (losses, most) == ({"take": 0, "held": 0}, 1)
        agents = world.app.session.node.session.agents  # type: ignore[union-attr]  # it runs
        await world.clock.advance(1)
        assert agents.hosted["one"].used == 0
