"""Tokens as credentials: what passes, how soon a revocation works, and what tokens that were never made cost."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from store_world import TestClock

from arriero import App
from arriero.client.tokens import Tokens, draw_token
from arriero.core.tokens import format_token, parse_token
from arriero.errors import StoreError
from arriero.model.tokens import TokenRow
from arriero.server.authentication import LOOKUPS_MAX, REMEMBERED_SECONDS, TokenAuthenticator
from arriero.server.problems import Problem
from arriero.store.memory.store import MemoryStore


class CountedStore(MemoryStore):
    """Counts queries and writes about tokens; ``gone``: it does not answer; ``hold``: an answer waits for it."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(clock)
        self.queries: list[int] = []
        self.uses = 0
        self.gone = False
        self.hold: asyncio.Event | None = None

    async def find_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        self.queries.append(len(token_ids))
        if self.gone:
            raise StoreError("gone")
        if self.hold is not None:
            await self.hold.wait()
        return await super().find_tokens(token_ids)

    async def note_token_used(self, token_id: str, at: Any) -> None:
        self.uses += 1
        await super().note_token_used(token_id, at)


class StepClock:
    """A process's clock that the test moves, with the store's."""

    def __init__(self) -> None:
        self.store = TestClock()
        self.at = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += seconds
        self.store.move(seconds)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Gate:
    """A TokenAuthenticator on a store and a clock of the test's."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.store = CountedStore(self.clock.store)
        session: Any = SimpleNamespace(store=self.store, ports=SimpleNamespace(clock=self.clock))
        self.tokens = Tokens(session)
        self.authenticator = TokenAuthenticator(session)

    async def create(self, *scopes: str, expires_in: float | None = None) -> str:
        created = await self.tokens.create("ci", scopes=scopes or ["read"], by="ana", expires_in=expires_in)
        return created.token

    async def enter(self, token: str) -> str:
        """The caller's name, or why nobody entered."""
        return await self.enter_with([f"Bearer {token}"])

    async def enter_with(self, values: Sequence[str]) -> str:
        headers = [(b"authorization", value.encode("latin-1", "replace")) for value in values]
        try:
            caller = await self.authenticator.authenticate(Request({"type": "http", "headers": headers}))
        except Problem as problem:
            assert problem.kind.status in (401, 429)
            return problem.detail
        return caller.name


async def test_the_holder_of_a_valid_token_enters_under_its_name() -> None:
    gate = Gate()
    assert await gate.enter(await gate.create()) == "ci"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    gate = Gate()
    assert await gate.enter_with([f"{scheme} {await gate.create()}"]) == "ci"


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Basic TOKEN"],
        ["TOKEN"],
        ["Bearer TOKEN", "Bearer TOKEN"],
        ["Bearer TOKEN", "Basic abc"],
        ["Bearer TOKEN,Bearer TOKEN"],
        ["Bearer TOKENx"],
        ["Bearer " + "a" * 10_000],
        ["Bearer té"],
        ["Bearer arriero_0011_secret"],
    ],
)
async def test_no_other_header_lets_anybody_enter_or_costs_a_query(values: list[str]) -> None:
    gate = Gate()
    token = await gate.create()
    assert await gate.enter_with([value.replace("TOKEN", token) for value in values]) != "ci"
    assert gate.store.queries == []


async def test_the_right_id_with_another_secret_is_as_unknown_as_another_id() -> None:
    gate = Gate()
    parts, mine = draw_token(), parse_token(await gate.create())
    assert mine is not None
    forged = format_token(type(parts)(mine.token_id, parts.secret))
    assert await gate.enter(forged) == "the token is unknown"
    assert await gate.enter(format_token(parts)) == "the token is unknown"


async def test_a_revocation_works_when_what_is_remembered_is_half_a_second_old() -> None:
    gate = Gate()
    token = await gate.create()
    assert await gate.enter(token) == "ci"
    (view,) = await gate.tokens.list()
    await gate.store.revoke_token(view.id, "bob", "lost")  # by another process
    gate.clock.move(REMEMBERED_SECONDS - 0.01)
    assert await gate.enter(token) == "ci"
    gate.clock.move(0.01)
    assert await gate.enter(token) == "the token is revoked"
    assert REMEMBERED_SECONDS <= 0.5


async def test_a_query_that_takes_long_does_not_prolong_what_is_remembered() -> None:
    gate = Gate()
    token = await gate.create()
    gate.store.hold = asyncio.Event()
    entering = asyncio.create_task(gate.enter(token))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.clock.move(REMEMBERED_SECONDS)
    gate.store.hold.set()
    assert await entering == "ci"
    await gate.enter(token)
    assert len(gate.store.queries) == 2  # the answer was as old as its question


async def test_a_token_expires_by_the_store_s_clock_although_it_is_remembered() -> None:
    gate = Gate()
    token = await gate.create(expires_in=10.0)
    gate.clock.move(9.9)
    assert await gate.enter(token) == "ci"
    gate.clock.move(0.1)
    assert await gate.enter(token) == "the token is expired"
    assert len(gate.store.queries) == 1


async def test_a_valid_token_costs_two_queries_a_second_at_most() -> None:
    gate = Gate()
    token = await gate.create()
    for _ in range(100):
        await gate.enter(token)
        gate.clock.move(0.01)
    assert len(gate.store.queries) == 2
    assert gate.clock.slept == []


async def test_tokens_that_were_never_made_share_a_query_and_are_not_remembered() -> None:
    gate = Gate()
    good = await gate.create()
    tokens = [format_token(draw_token()) for _ in range(300)]
    answers = await asyncio.gather(*(gate.enter(token) for token in tokens), gate.enter(good))
    assert answers == ["the token is unknown"] * 300 + ["ci"]
    assert sum(gate.store.queries) == 301
    assert len(gate.store.queries) <= 2
    assert gate.clock.slept[0] == 0.05
    assert list(gate.authenticator._remembered) == [parse_token(good).token_id]  # type: ignore[union-attr]


async def test_more_unknown_tokens_than_one_query_takes_are_told_to_come_later() -> None:
    gate = Gate()
    gate.store.hold = asyncio.Event()
    flood = [asyncio.create_task(gate.enter(format_token(draw_token()))) for _ in range(2 * LOOKUPS_MAX + 50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.store.hold.set()
    answers = await asyncio.gather(*flood)
    assert answers.count("too many tokens that are not known here are sent") >= 50
    assert max(gate.store.queries) <= LOOKUPS_MAX


async def test_a_store_that_is_gone_is_an_error_of_the_store_and_lets_nobody_enter() -> None:
    gate = Gate()
    token = await gate.create()
    assert await gate.enter(token) == "ci"
    gate.store.gone = True
    gate.clock.move(REMEMBERED_SECONDS)
    with pytest.raises(StoreError):
        await gate.enter(token)
    gate.store.gone = False
    assert await gate.enter(token) == "ci"


async def test_the_last_use_is_written_once_a_minute() -> None:
    gate = Gate()
    token = await gate.create()
    for _ in range(121):
        await gate.enter(token)
        gate.clock.move(1)
    assert gate.store.uses == 3
    (view,) = await gate.tokens.list()
    assert view.last_used_at is not None


async def test_the_tokens_of_an_app_that_is_open_are_managed_without_an_event_loop_too() -> None:
    async with App("shop", store="memory://") as app:
        created = await app.tokens.create("ci", scopes=["read"], by="ana")
        assert created.token not in repr(created)
        revoked = await app.tokens.revoke(created.about.id, by="bob", reason="lost")
        assert [view.state for view in await app.tokens.list()] == [revoked.state] == ["revoked"]
