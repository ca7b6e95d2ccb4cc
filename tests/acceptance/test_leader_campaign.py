"""Three Supervisors in processes of their own, killed and frozen while steps expire: one leads at a time, or harms nobody.

CI runs it for some seconds; ``ARRIERO_CAMPAIGN_SECONDS`` sets another length (`make torture`).
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from postgres_servers import database, emptied
from processes import Process, check, end_of
from waiting import HangLimit

from arriero import Agent, App, Attempt, Retry, Supervision, workflow
from arriero.client.leases import LeaderView
from arriero.runtime.settings import Settings
from arriero.store.postgres.store import PostgresStore

pytestmark = pytest.mark.acceptance
CAMPAIGN_SECONDS = float(os.environ.get("ARRIERO_CAMPAIGN_SECONDS", "8"))
SUPERVISORS = 3
OPEN_TASKS = 12  # at any time: each expires twice
LEADER_SECONDS = 1.2
SUPERVISE_SECONDS = 0.2
FREEZES = (1.2, 2.5)  # of the lease: always longer than it
LOSSES = ("leader killed", "leader frozen", "another killed")
WAIT_SECONDS_MAX = 60.0  # for anything here; a hint that it hangs, not a measure
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")},
    "ARRIERO_LEADER_SECONDS": str(LEADER_SECONDS),
    "ARRIERO_SUPERVISE_SECONDS": str(SUPERVISE_SECONDS),
    "ARRIERO_LEASE_SECONDS": "1",
}

slow = Agent("slow", max_in_flight=100, breaker=None, retry_budget=None)


@slow.step(complete_within=0.15, supervision=Supervision(attempts=1_000), retry=Retry(tries=1, delay=0.05))
async def hang_twice(attempt: Attempt, n: int) -> int:
    if attempt.number < 3:
        await asyncio.Event().wait()
    return n


@workflow
async def patient(n: int) -> int:
    return await hang_twice(n)


class Supervisors:
    """Processes of ``arriero supervise``; one that is killed is replaced."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._log = (folder / "supervisors.log").open("wb")
        self.running = [self._start() for _ in range(SUPERVISORS)]

    def _start(self) -> Process:
        command = [sys.executable, "-X", "faulthandler", "-m", "arriero", "supervise", "--store", self._url]
        return subprocess.Popen(
            command, cwd=self._folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def find(self, instance: str) -> Process | None:
        """The process that the store knows by a name; see ``Ports.new_instance``."""
        return next((one for one in self.running if instance.split("-")[-2:-1] == [str(one.pid)]), None)

    def kill(self, victim: Process) -> None:
        """With SIGKILL, and start another."""
        self.running.remove(victim)
        victim.kill()
        assert end_of(victim)[0] == -signal.SIGKILL, self.log
        self.running.append(self._start())

    def stop(self) -> None:
        """All of them, once they are ready; each ends with 0."""
        for one in self.running:
            assert one.stdout is not None
            assert one.stdout.readline().startswith("arriero: ready"), self.log  # before, the signal ends it
            one.terminate()
        assert [end_of(one)[0] for one in self.running] == [0] * SUPERVISORS, self.log

    def close(self) -> None:
        for one in self.running:
            one.kill()
            one.communicate()
        self._log.close()

    @property
    def log(self) -> str:
        return (self._folder / "supervisors.log").read_text()[-5_000:]


class Campaign:
    """Loses the leader, or another Supervisor, again and again.

    Args:
        app: asks who leads.
    """

    def __init__(self, app: App, supervisors: Supervisors, chance: random.Random) -> None:
        self._app = app
        self._supervisors = supervisors
        self._chance = chance
        self.losses: Counter[str] = Counter()
        self.gaps: dict[str, list[float]] = {kind: [] for kind in LOSSES}  # seconds until another one led

    async def run(self, until: float) -> None:
        """Until an instant of the monotonic clock, and until each kind of loss has happened."""
        while time.monotonic() < until or len(self.losses) < len(LOSSES):
            for kind in self._chance.sample(LOSSES, len(LOSSES)):
                leader = await self.wait_for_term(above=0)
                await asyncio.sleep(self._chance.uniform(0.0, 0.5))  # anywhere in a pass
                await self._lose(kind, leader)
                self.losses[kind] += 1

    async def _lose(self, kind: str, leader: LeaderView) -> None:
        running, victim = self._supervisors.running, self._supervisors.find(leader.process)
        if kind == "another killed" or victim is None:
            self._supervisors.kill(self._chance.choice([one for one in running if one is not victim]))
            return
        lost_at = time.monotonic()
        if kind == "leader killed":
            self._supervisors.kill(victim)
            await self.wait_for_term(above=leader.term)
            self.gaps[kind].append(time.monotonic() - lost_at)
            return
        victim.send_signal(signal.SIGSTOP)
        try:
            await self.wait_for_term(above=leader.term)
            self.gaps[kind].append(time.monotonic() - lost_at)
            frozen_until = lost_at + LEADER_SECONDS * self._chance.uniform(*FREEZES)
            await asyncio.sleep(max(0.0, frozen_until - time.monotonic()))
        finally:
            victim.send_signal(signal.SIGCONT)

    async def wait_for_term(self, *, above: int) -> LeaderView:
        """Wait until a process leads under a later term."""
        limit = HangLimit("another leader")
        while not limit.is_over():
            view = await self._app.leader()
            if view is not None and view.term > above:
                return view
            await asyncio.sleep(0.01)
        raise AssertionError(f"nobody leads: {self._supervisors.log}")


class Load:
    """Tasks whose steps expire, so many open at any time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.ended = 0
        self.stopping = False

    async def run(self) -> None:
        """Until ``stopping``, and all of them have ended."""
        await asyncio.gather(*(self._submit_again_and_again() for _ in range(OPEN_TASKS)))

    async def _submit_again_and_again(self) -> None:
        while not self.stopping:
            n = self.ended
            assert await (await self._app.submit(patient(n))).result(timeout=WAIT_SECONDS_MAX) == n
            self.ended += 1


@asynccontextmanager
async def campaign_on(url: str, folder: Path, seed: int) -> AsyncIterator[tuple[Campaign, Load]]:
    app = App("campaign", agents=[slow], workflows=[patient], store=url)
    app.session.settings = Settings(
        lease_seconds=WAIT_SECONDS_MAX, leader_seconds=LEADER_SECONDS, supervise_seconds=0.1
    )
    supervisors = Supervisors(url, folder)
    try:
        async with app.running(roles=["scheduler", "agents"]):
            load, campaign = Load(app), Campaign(app, supervisors, random.Random(seed))
            loading = asyncio.create_task(load.run())
            yield campaign, load
            load.stopping = True
            await loading
        supervisors.stop()
    except BaseException as error:
        error.add_note(f"seed {seed}: {supervisors.log}")
        raise
    finally:
        supervisors.close()


async def test_leaders_killed_and_frozen_under_load_lead_one_after_the_other_and_recover_nothing_twice(
    tmp_path: Path,
) -> None:
    url, seed = emptied(database()), random.randrange(1_000_000)
    async with campaign_on(url, tmp_path, seed) as (campaign, load):
        await campaign.run(time.monotonic() + CAMPAIGN_SECONDS)
    store = PostgresStore(url)
    await store.open()
    try:
        await check(store)  # type: ignore[arg-type]  # all that it asks of a store
        events: list[tuple[int, dict[str, Any]]] = [
            (row.task_no, event) async for row in store.history() for event in msgspec.json.decode(row.events)
        ]
        refused, _ = await store.count_refused_terms()
    finally:
        await store.close()
    terms = [event["term"] for _, event in events if event["type"] == "lease.granted"]
    assert terms == list(range(1, len(terms) + 1)), "a term that repeats, falls or is left out"
    assert len(terms) > campaign.losses["leader killed"] + campaign.losses["leader frozen"]
    recovered = Counter(
        (task, event["step"], event["fence"]) for task, event in events if event["type"] == "step.expired"
    )
    assert set(recovered.values()) == {1}
    assert len(recovered) >= 2 * load.ended > 0
    killed, frozen = (max(campaign.gaps[kind]) for kind in ("leader killed", "leader frozen"))  # said, not judged
    sys.stderr.write(
        f"{dict(campaign.losses)}, {len(terms)} terms, {load.ended} tasks, {len(recovered)} recoveries, {refused} refused"
        f" writes of former leaders; longest gap {killed:.2f} s after a kill, {frozen:.2f} s after a freeze\n"
    )
