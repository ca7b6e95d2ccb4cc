"""Tokens of the HTTP API, in every store."""

from store_world import World

from arriero.audit.check import check
from arriero.events import read_events
from arriero.events.store import TokenCreated, TokenRevoked
from arriero.model.tokens import NewToken, Reach, TokenRow


def new_token(token_id: str = "0011", **changes: object) -> NewToken:
    fields: dict[str, object] = {
        "token_id": token_id,
        "name": "deploy, Zürich",
        "digest": "d" * 64,
        "scopes": ("agent:*", "read"),
        "created_by": "ana",
        "expires_in": 60.0,
    }
    return NewToken(**(fields | changes))  # type: ignore[arg-type]


async def told(world: World) -> list[object]:
    rows = [row async for row in world.store.history(0)]
    return [
        (row.actor, event)
        for row in rows
        for event in read_events(row.events)
        if isinstance(event, TokenCreated | TokenRevoked)
    ]


async def test_a_token_that_is_added_twice_is_there_once_and_told_once(world: World) -> None:
    now = world.store.now()
    added = await world.store.add_token(new_token())
    assert added.created_at >= now
    assert added.expires_at == added.created_at + 60_000_000
    again = await world.store.add_token(new_token(name="another", created_by="bob"))
    assert again == added
    assert await world.store.list_tokens() == [added]
    event = TokenCreated("0011", "deploy, Zürich", ("agent:*", "read"), added.expires_at)
    assert await told(world) == [("ana", event)]


async def test_the_apps_and_workflows_that_a_token_is_restricted_to_are_kept_with_it(world: World) -> None:
    reach = Reach(apps=("shop", "Zürich"), workflows=("step:pay",))
    added = await world.store.add_token(new_token(reach=reach))
    assert Reach(added.apps, added.workflows) == reach
    assert await world.store.find_tokens(["0011"]) == [added]
    revoked = await world.store.revoke_token("0011", "ana", "lost")
    assert revoked is not None
    assert Reach(revoked.apps, revoked.workflows) == reach
    (created, *_) = await told(world)
    assert created == ("ana", TokenCreated("0011", "deploy, Zürich", added.scopes, added.expires_at, *reach_of(added)))


def reach_of(row: TokenRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return row.apps, row.workflows


async def test_tokens_are_found_by_their_ids(world: World) -> None:
    rows = [await world.store.add_token(new_token(one, expires_in=None)) for one in ("1", "2", "3")]
    assert await world.store.list_tokens() == rows
    found = await world.store.find_tokens(["3", "no such", "1", "'; DROP TABLE token"])
    assert sorted(found, key=lambda row: row.token_id) == [rows[0], rows[2]]
    assert await world.store.find_tokens([]) == []


async def test_a_token_is_revoked_once_and_its_first_reason_stays(world: World) -> None:
    await world.store.add_token(new_token())
    revoked = await world.store.revoke_token("0011", "bob", "laptop lost")
    assert isinstance(revoked, TokenRow)
    assert (revoked.revoked_by, revoked.revoked_reason) == ("bob", "laptop lost")
    assert revoked.revoked_at is not None
    assert await world.store.revoke_token("0011", "eve", "again") == revoked
    assert await world.store.list_tokens() == [revoked]
    assert (await told(world))[1:] == [("bob", TokenRevoked("0011", "deploy, Zürich", "laptop lost"))]


async def test_a_token_that_is_not_there_is_revoked_by_nobody(world: World) -> None:
    assert await world.store.revoke_token("0011", "bob", "no reason") is None
    assert await told(world) == []


async def test_the_last_use_of_a_token_is_written_once_a_minute(world: World) -> None:
    added = await world.store.add_token(new_token())
    at = added.created_at

    async def note(seconds: int) -> int | None:
        await world.store.note_token_used("0011", type(at)(at + seconds * 1_000_000))
        (row,) = await world.store.list_tokens()
        return None if row.last_used_at is None else (row.last_used_at - at) // 1_000_000

    assert [await note(seconds) for seconds in (5, 64, 65, 20, 125)] == [5, 5, 65, 65, 125]
    await world.store.note_token_used("no such", at)


async def test_the_history_with_tokens_violates_nothing(world: World) -> None:
    await world.store.add_token(new_token())
    await world.store.revoke_token("0011", "bob", "laptop lost")
    assert check([row async for row in world.store.history()]) == []
