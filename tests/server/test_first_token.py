"""The first token of a store, in a file that only its owner can read."""

import os
import stat
from pathlib import Path

import pytest

from arriero.core.tokens import TokenVerdict, judge_token, parse_token
from arriero.errors import InvalidInput, StoreError
from arriero.model.tokens import NewToken, TokenRow
from arriero.server.service import make_first_token
from arriero.store.memory.store import MemoryStore


async def is_valid(store: MemoryStore, path: Path) -> bool:
    parts = parse_token(path.read_text().strip())
    assert parts is not None
    (row,) = await store.find_tokens([parts.token_id])
    return judge_token(row, parts.secret, store.now()) is TokenVerdict.VALID


async def test_the_first_token_is_of_admin_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "arriero.token"
    before = os.umask(0)
    try:
        assert await make_first_token(store, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await is_valid(store, path)
    (row,) = await store.list_tokens()
    assert (row.name, row.scopes) == ("admin", ("admin",))


async def test_nothing_is_made_where_a_token_was_ever_made(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "arriero.token"
    await store.add_token(NewToken(token_id="1", name="ci", digest="d", scopes=("read",), created_by="ana"))
    await store.revoke_token("1", "ana", "lost")
    assert not await make_first_token(store, path)
    assert not path.exists()


async def test_a_start_that_died_before_its_token_was_kept_is_repeated_with_the_same_file(tmp_path: Path) -> None:
    class DyingStore(MemoryStore):
        async def add_token(self, token: NewToken) -> TokenRow:
            raise StoreError("gone")

    path = tmp_path / "arriero.token"
    with pytest.raises(StoreError):
        await make_first_token(DyingStore(), path)
    text, store = path.read_text(), MemoryStore()
    assert await make_first_token(store, path)
    assert path.read_text() == text
    assert await is_valid(store, path)


async def test_a_file_that_others_can_read_or_have_linked_makes_nobody_an_admin(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "arriero.token"
    await make_first_token(MemoryStore(), path)
    link = tmp_path / "link"
    link.symlink_to(path)
    path.chmod(0o640)
    for planted in (path, link):
        with pytest.raises(InvalidInput, match="take it away"):
            await make_first_token(store, planted)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "empty").touch(0o600)
    for planted in (tmp_path / "pipe", tmp_path / "empty", tmp_path):
        with pytest.raises(InvalidInput, match="take it away"):
            await make_first_token(store, planted)
    with pytest.raises(InvalidInput, match="--token-file"):
        await make_first_token(store, tmp_path / "no" / "folder")
    assert await store.list_tokens() == []
