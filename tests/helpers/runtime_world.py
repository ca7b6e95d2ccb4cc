"""What the tests of the runtime share: quick settings, several Apps on one file, and questions to the record."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from arriero import App, Workflow, testing
from arriero.audit.check import History, find_convoy_differences, find_differences
from arriero.audit.payload_record import PayloadRecord, find_record_differences
from arriero.declare.steps import Agent
from arriero.model.commands import AnyCommand
from arriero.runtime.node import NodeSession
from arriero.runtime.settings import Settings
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore
from arriero.testing import World

T = TypeVar("T")
CONVOYS_MAX = 10_000
SECONDS_MAX = 60.0  # until a test gives up; never waited out by a test that passes

# Short enough for a test, long enough for a busy machine.
QUICK = Settings(
    lease_seconds=1.2,
    poll_seconds=0.02,
    supervise_seconds=0.05,
    supervise_seconds_max=0.2,
    leader_seconds=1.2,
    linger_seconds=0.3,
)


class Machine:
    """One state store in a file, and Apps that open it as processes of their own would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def app(
        self,
        agents: Iterable[Agent] = (),
        workflows: Iterable[Workflow[..., Any]] = (),
        *,
        settings: Settings = QUICK,
    ) -> App:
        """An App on this store, as one process would have it."""
        app = App("machine", agents=agents, workflows=workflows, store=self.url)
        app.session.settings = settings
        return app

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The history's events of these types, in order; of a task's, with its ``task``."""
        store = SqliteStore(str(self.path))
        await store.open()
        try:
            return [event async for event in _events(store) if event["type"] in kinds or not kinds]
        finally:
            await store.close()

    async def event(self, event_type: str, /, **fields: Any) -> dict[str, Any]:
        """Wait until an event of this type, with these fields, is in the history."""

        async def look() -> dict[str, Any] | None:
            found = [e for e in await self.events(event_type) if fields.items() <= e.items()]
            return found[0] if found else None

        return await eventually(look)

    async def check(self, *, complete: bool = True) -> None:
        """The history is clean, and the state tables say the same as its fold."""
        store = SqliteStore(str(self.path))
        await store.open()
        try:
            history = History()
            async for row in store.history():
                history.add(row)
            assert history.end(complete=complete) == []
            for number, fold in history.tasks.items():
                loaded = await store.load(number)
                assert loaded is not None
                assert find_differences(fold, loaded) == []
                record = PayloadRecord(tuple(await store.edits(number)), tuple(await store.late_answers(number)))
                assert find_record_differences(record, [row async for row in store.history(number)]) == []
            for one in (
                *await store.list_convoys(limit=CONVOYS_MAX),
                *await store.list_convoys("idle", limit=CONVOYS_MAX),
            ):
                assert find_convoy_differences(history, one.convoy) == []
        finally:
            await store.close()


async def _events(store: StateStore) -> Any:
    async for row in store.history():
        for event in msgspec.json.decode(row.events):
            yield {"task": row.task_id, **event}


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Ask again and again until the answer is one."""
    async with asyncio.timeout(SECONDS_MAX):
        while (found := await look()) is None:
            await asyncio.sleep(0.005)
        return found


async def until(question: Callable[[], object]) -> None:
    """Wait until something in this process is so."""

    async def look() -> bool | None:
        return True if question() else None

    await eventually(look)


async def within(waiting: Awaitable[T]) -> T:
    """Wait, but not for ever."""
    return await asyncio.wait_for(waiting, SECONDS_MAX)


def session_of(app: App) -> NodeSession:
    """The running session of an App."""
    assert app.session.node is not None
    assert app.session.node.session is not None
    return app.session.node.session


# --- a world on the virtual clock
Write = Callable[[Sequence[AnyCommand]], Any]


def session_in(world: World) -> Any:
    """The running session of a world's App."""
    return session_of(world.app)


def around_commits(world: World, monkeypatch: pytest.MonkeyPatch, around: Callable[[Write, Any], Any]) -> None:
    """Put a function between the committer and the store: it is given the write and the batch."""
    committer = session_in(world).committer
    write = committer._write
    monkeypatch.setattr(committer, "_write", lambda batch: around(write, batch))


@asynccontextmanager
async def running_with_probes(app: App) -> AsyncIterator[World]:
    """Run an App in a world of a test that calls the Agents' own probes."""
    async with testing.running(app) as world:
        for agent in app.agents:
            if agent.declared_probe is not None:
                world.replace_probe(agent, agent.declared_probe.function)
        yield world
