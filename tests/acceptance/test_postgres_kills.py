"""Processes, back ends and the postmaster killed under load, in any order: every task ends, nothing acknowledged is lost.

The SIGKILL of a back end makes the server end all its sessions and recover from its log; a postmaster that is killed is
started again on the same data. So connections are lost in the middle of whatever they were doing.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import count
from pathlib import Path

import caravan
import procession
import pytest
from postgres_servers import USUAL, describe_missing
from processes import Process, check, check_told, end_of
from test_convoy_kills import held_in_order
from waiting import wait_until_async

from arriero import App, OutcomeUnknown, StoreError, TaskFailed
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server, installations

pytestmark = pytest.mark.acceptance
NODES = 3
LANES = 3  # submissions on their way at once
AHEAD = 4  # tasks of one key that have not ended
WAIT_SECONDS_MAX = 60.0  # for anything here; a hint that it hangs, not a measure
KILLS = ("node", "back end", "node", "back end", "postmaster")  # in an order that the seed decides
BETWEEN = 8  # submissions acknowledged between two kills, so that each finds work under way
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}


class Nodes:
    """Processes that run a program's App on a server's database; one that is killed is replaced."""

    def __init__(self, url: str, folder: Path, program: str) -> None:
        places = os.pathsep.join([str(Path(caravan.__file__).parent), ENVIRONMENT.get("PYTHONPATH", "")])
        self._environment = {**ENVIRONMENT, "ARRIERO_STORE": url, "PYTHONPATH": places}
        self._folder = folder
        self._program = program
        self._log = (folder / "nodes.log").open("wb")
        self.running = [self._started() for _ in range(NODES)]

    def _started(self) -> Process:
        """It keeps the book of its effects in its working directory."""
        command = [sys.executable, "-X", "faulthandler", "-m", "arriero", "run", self._program]
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def wait_ready(self) -> None:
        for node in self.running:
            self._wait_ready(node)

    def _wait_ready(self, node: Process) -> None:
        assert node.stdout is not None
        assert "ready" in node.stdout.readline(), self.log

    def kill_one(self, chance: random.Random) -> None:
        """And start another in its place."""
        killed = self.running.pop(chance.randrange(NODES))
        killed.kill()
        assert end_of(killed)[0] == -signal.SIGKILL, self.log
        self.running.append(self._started())
        self._wait_ready(self.running[-1])

    def drain(self) -> None:
        """All of them; each ends with 0."""
        for node in self.running:
            node.terminate()
        assert [end_of(node)[0] for node in self.running] == [0] * NODES, self.log

    def close(self) -> None:
        for node in self.running:
            node.kill()
            node.communicate()
        self._log.close()

    @property
    def log(self) -> str:
        return (self._folder / "nodes.log").read_text()[-5_000:]


class Client:
    """Submits in some lanes at once, each task again under its id until it is acknowledged."""

    program = ""

    def __init__(self, app: App) -> None:
        self._app = app
        self.acknowledged: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        """Until ``stopping``; rounds that were begun are brought to their end."""
        numbers = count()
        await asyncio.gather(*(self._lane(numbers) for _ in range(LANES)))

    async def _lane(self, numbers: Iterator[int]) -> None:
        raise NotImplementedError

    async def _until_acknowledged(self, name: str, call: object, **options: object) -> None:
        while True:
            try:
                await self._app.submit(call, task_id=name, **options)  # type: ignore[arg-type]
            except (OutcomeUnknown, StoreError):
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.append(name)
                return

    async def _until_ended(self, name: str) -> None:
        while True:
            with contextlib.suppress(TaskFailed):
                try:
                    await self._app.task(name).result()
                except StoreError:
                    await asyncio.sleep(0.05)
                    continue
            return


class OfCaravan(Client):
    """Round after round of the caravan."""

    program = "caravan:caravan"

    async def _lane(self, numbers: Iterator[int]) -> None:
        while not self.stopping:
            made = caravan.calls_of(next(numbers))
            for name, call in made.items():
                await self._until_acknowledged(name, call, reply_to=caravan.QUEUE)
            await asyncio.gather(*(self._until_ended(name) for name in made))


class OfProcession(Client):
    """Each lane has a key of its own and is always some tasks ahead of what has ended."""

    program = "procession:procession"

    async def _lane(self, numbers: Iterator[int]) -> None:
        key = f"k{next(numbers)}"
        for number in count(1):
            if self.stopping:
                break
            name = procession.task_id_of(key, number)
            await self._until_acknowledged(name, procession.walk(key, number), convoy=key)
            if number > AHEAD:
                await self._until_ended(procession.task_id_of(key, number - AHEAD))
        for before in range(max(1, number - AHEAD), number):
            await self._until_ended(procession.task_id_of(key, before))


async def wait_for_more(client: Client) -> None:
    """Until so many more are acknowledged."""
    wanted = len(client.acknowledged) + BETWEEN
    await wait_until_async(lambda: len(client.acknowledged) >= wanted, f"{BETWEEN} submissions")


def kill_back_end(server: Server, chance: random.Random) -> bool:
    """Kill one of those that serve a client. False: none does, as while the server recovers from the kill before."""
    back_ends = server.back_ends()
    with contextlib.suppress(ProcessLookupError):  # it has ended since
        if back_ends:
            os.kill(chance.choice(back_ends), signal.SIGKILL)
            return True
    return False


async def kill(victim: str, server: Server, nodes: Nodes, chance: random.Random) -> None:
    match victim:
        case "node":
            await asyncio.to_thread(nodes.kill_one, chance)
        case "back end":  # any of those that serve a client; the server recovers by itself
            await wait_until_async(lambda: kill_back_end(server, chance), "a back end")
        case "postmaster":
            server.kill_postmaster()
            await asyncio.to_thread(server.restart)


async def held_after_losses(store: PostgresStore, folder: Path) -> list[str]:
    """Every task ended as it should, or is held since its processes died too often; of those nothing was done twice."""
    standing = caravan.standing(folder / "book.db")
    held = []
    for task in await store.list_tasks(limit=100_000):
        state, effects = caravan.EXPECTED[task.task_id.partition("-")[0]]
        found = standing.get(task.task_id, [])
        if task.failure is not None and '"code":"lost"' in task.failure:
            held.append(task.task_id)
            assert len(found) == len(set(found)), f"{task.task_id} did one thing twice: {found}"
        else:
            assert (task.state, found) == (state, effects), f"{task.task_id} is {task.state}: {task.failure}"
    return held


async def killed_in_turn(
    server: Server, url: str, folder: Path, chance: random.Random, program: App, kind: type[Client]
) -> list[str]:
    """Submit, kill in the order that chance decides, wait until every task has ended. Returns: what was acknowledged."""
    nodes = Nodes(url, folder, kind.program)
    try:
        await asyncio.to_thread(nodes.wait_ready)
        async with App(program.name, agents=program.agents, workflows=program.workflows) as app:
            client = kind(app)
            submitting = asyncio.create_task(client.run())
            for victim in chance.sample(KILLS, len(KILLS)):
                await wait_for_more(client)
                await kill(victim, server, nodes, chance)
            await wait_for_more(client)
            client.stopping = True
            await asyncio.wait_for(submitting, WAIT_SECONDS_MAX)
        await asyncio.to_thread(nodes.drain)
    except BaseException as error:
        error.add_note(nodes.log)
        raise
    finally:
        nodes.close()
    return client.acknowledged


Looks = Callable[[PostgresStore, Path], Awaitable[Collection[str]]]


async def standing_after_losses(store: PostgresStore, folder: Path) -> Collection[str]:
    held = await held_after_losses(store, folder)
    await check_told(store, caravan.QUEUE)  # type: ignore[arg-type]
    return held


async def in_order_after_losses(store: PostgresStore, folder: Path) -> Collection[str]:
    return await held_in_order(store, folder / "steps.db")


@pytest.mark.parametrize(
    ("program", "kind", "looks"),
    [
        (caravan.caravan, OfCaravan, standing_after_losses),
        (procession.procession, OfProcession, in_order_after_losses),
    ],
    ids=["caravan", "convoys"],
)
async def test_processes_back_ends_and_postmaster_killed_under_load_lose_nothing_that_was_acknowledged(
    program: App, kind: type[Client], looks: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if USUAL not in installations():
        pytest.skip(describe_missing(USUAL))
    seed = random.randrange(1_000_000)
    with Server.start(USUAL) as server:
        url = server.create_database("caravan")
        monkeypatch.setenv("ARRIERO_STORE", url)
        store = PostgresStore(url)
        await store.open()
        try:
            acknowledged = await killed_in_turn(server, url, tmp_path, random.Random(seed), program, kind)
            tasks = await store.list_tasks(limit=100_000)
            assert sorted(acknowledged) == sorted(task.task_id for task in tasks)
            # Two processes are killed; a task is held after three losses, so another must have lost its lease meanwhile.
            held = await looks(store, tmp_path)
            assert len(held) <= 1, held
            await check(store)  # type: ignore[arg-type]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            await store.close()
