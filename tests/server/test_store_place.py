"""No refusal and no failure tells a caller where the store of the server is."""

import inspect
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from vault import Ask, Vault

from arriero import StoreError

PLACE = "sesame-folder"
ADMIN = {"Authorization": "Bearer admin"}


class Answers:
    """Answers to every operation of a server, and those that name the folder of its store."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.leaks: list[str] = []

    async def ask(self, http: httpx2.AsyncClient, ask: Ask, path: str) -> None:
        method = ask.operation.split(" ")[0]
        given: dict[str, Any] = {"json": ask.body}
        headers = {**ADMIN, **{name: value for name, value in ask.headers.items() if name != "Prefer"}}  # no wait
        if isinstance(ask.body, bytes):
            given, headers = {"content": ask.body}, {**headers, "Content-Type": "application/x-ndjson"}
        answer = await http.request(method, path, headers=headers, **given)
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        if PLACE in answer.text and not (
            answer.is_success and "/doctor" in path
        ):  # the doctor is for who looks after the store
            self.leaks.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")


def name_nothing(ask: Ask) -> str:
    """The path of an operation on what is not there."""
    return re.sub(r"\{[^}]*\}", "no-such-thing", ask.operation.split(" ", 1)[1])


async def test_no_answer_names_the_place_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / PLACE
    folder.mkdir()
    vault = Vault("shop", f"sqlite:///{folder / 'shop.db'}")
    async with vault.running():
        await vault.plant()
        await vault.plant_for("0")
        found = Answers()
        async with httpx2.AsyncClient(transport=vault.transport(), base_url="http://localhost") as http:
            asks = list(vault.list_requests("0", await vault.take_for(http, ADMIN)))
            streams = {ask.operation for ask in asks if ask.operation.endswith("/events")}
            for ask in asks:
                if ask.operation not in streams:
                    await found.ask(http, ask, name_nothing(ask))
            assert found.statuses[404] > 20
            store = vault.app.session.store

            def fail(*arguments: Any, **options: Any) -> Any:
                raise StoreError(f"store {store.url}: disk I/O error at {folder}")

            for name, _ in inspect.getmembers(type(store), inspect.iscoroutinefunction):
                if not name.startswith("_") and name not in ("close", "renew", "find_tokens"):
                    monkeypatch.setattr(store, name, fail)
            for ask in asks:
                if ask.operation not in streams:
                    await found.ask(http, ask, ask.path)
            monkeypatch.undo()
    assert found.leaks == []
    assert found.statuses[503] > 20
    assert f"disk I/O error at {folder}" in caplog.text  # who runs the server reads it
