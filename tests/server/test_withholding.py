"""Every answer of every operation to every scope: payloads and reasons are shown to those alone who may read them."""

import asyncio
import hashlib
import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx2
import msgspec
import pytest
from vault import Ask, Vault

from arriero import Leadership
from arriero.client.convoy import ConvoyView
from arriero.client.questions import OpenQuestion
from arriero.client.remote_agents import RemoteRequest
from arriero.client.task_inputs import TaskInput
from arriero.client.task_shapes import TaskAnswer
from arriero.client.tasks import TaskSelector
from arriero.events.base import payload_hash
from arriero.model.failures import StepFailure, TaskFailure
from arriero.server import calls
from arriero.server.application import ApiServer
from arriero.server.openapi import build_openapi
from arriero.server.routes.tasks import HistoryEntry
from arriero.server.routing import GatedRoute

ALONE = ("submit", "read", "read-payloads", "operate", "agent:bank-shop", "replies:shop-desk")
PAIRS = [(one, other) for one, other in itertools.combinations(ALONE, 2) if {one, other} & {"read", "operate"}]
WALKED = [*ALONE, *map(",".join, PAIRS), ",".join(ALONE), "admin"]
# An Agent outside of Python gets the arguments of its own requests: it could not work without them.
OF_AGENTS = "POST /v1/agents/{agent}/requests:take"
REPLIES = importlib.import_module("arriero.server.routes.replies")  # the package has the group under this name


class Walk:
    """Requests for every operation, by a holder of some scopes."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.answered: set[str] = set()
        self.leaks: list[str] = []

    async def go(self, turn: str, scopes: str) -> None:
        """Ask for every operation, with a lease of the store held meanwhile."""
        vault = self.vault
        await vault.plant_for(turn)
        async with httpx2.AsyncClient(transport=vault.transport(), base_url="http://localhost") as http:
            admin = {"Authorization": "Bearer admin"}
            taken = await vault.take_for(http, admin)
            token = await http.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}, headers=admin)

            async def work(leadership: Leadership) -> None:
                for ask in vault.list_requests(turn, taken):
                    path = ask.path.replace("TOKEN", token.json()["about"]["id"])
                    await self._ask(http, ask._replace(path=path), scopes)

            await vault.app.mutex("nightly").run_once(work)

    async def _ask(self, http: httpx2.AsyncClient, ask: Ask, scopes: str) -> None:
        headers = {"Authorization": f"Bearer {scopes}", **ask.headers}
        method = ask.operation.split(" ")[0]
        given: dict[str, Any] = {"json": ask.body}
        if isinstance(ask.body, bytes):
            given, headers = {"content": ask.body}, {**headers, "Content-Type": "application/x-ndjson"}
        answer = await asyncio.wait_for(http.request(method, ask.path, headers=headers, **given), 60)
        assert answer.status_code < 500, (ask, scopes, answer.text)
        if answer.is_success:
            self.answered.add(ask.operation)
        held = scopes.split(",")
        for secret, scope in ((self.vault.payload, "read-payloads"), (self.vault.reason, "read")):
            is_own = secret in str(ask.body) or (ask.operation == OF_AGENTS and scope == "read-payloads")
            if secret in answer.text and not {scope, "admin"} & set(held) and not is_own:
                at = answer.text.index(secret)
                self.leaks.append(f"{scopes}: {method} {ask.path}: ...{answer.text[max(0, at - 90) : at + 40]}")


def list_documented(server: ApiServer) -> set[str]:
    document = msgspec.json.decode(msgspec.json.encode(build_openapi(server.routes)))
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


async def test_no_answer_shows_a_payload_or_a_reason_to_who_may_not_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_RESUBMIT", "2")
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 5)  # a stream ends after so many messages
    vault = Vault("shop", f"sqlite:///{tmp_path / 'shop.db'}")
    async with vault.running():
        await vault.plant()
        walk = Walk(vault)
        for turn, scopes in enumerate(WALKED):
            await walk.go(str(turn), scopes)
        assert walk.leaks == []
        assert list_documented(vault.build_server()) - walk.answered == set()


async def test_who_may_read_payloads_and_reasons_reads_them(tmp_path: Path) -> None:
    vault = Vault("shop", f"sqlite:///{tmp_path / 'shop.db'}")
    async with vault.running():
        await vault.plant()
        async with httpx2.AsyncClient(transport=vault.transport(), base_url="http://localhost") as http:
            for scopes, secrets in (("read,read-payloads", {vault.payload, vault.reason}), ("read", {vault.reason})):
                for path in ("/v1/tasks/shop-refused", "/v1/tasks", "/v1/tasks/shop-refused/history?limit=200"):
                    text = (await http.get(path, headers={"Authorization": f"Bearer {scopes}"})).text
                    assert {one for one in (vault.payload, vault.reason) if one in text} == secrets, (scopes, path)


KEYS = {"idempotency_key", "key", "key_before", "key_after"}  # made of numbers and names alone


def list_hashes(node: Any) -> Iterator[str]:
    """List the members of plain JSON that are hashes and no keys of steps, by their values."""
    if isinstance(node, dict):
        yield from list_hashes([one for name, one in node.items() if name not in KEYS])
    elif isinstance(node, list):
        for one in node:
            yield from list_hashes(one)
    elif isinstance(node, str) and re.fullmatch(r"[0-9a-f]{16}([0-9a-f]{16})?", node):
        yield node


async def test_a_history_without_payloads_has_no_hash_by_which_a_payload_could_be_guessed(tmp_path: Path) -> None:
    vault = Vault("shop", f"sqlite:///{tmp_path / 'shop.db'}")
    async with vault.running():
        await vault.plant()
        async with httpx2.AsyncClient(transport=vault.transport(), base_url="http://localhost") as http:
            hashes = {}
            for scopes in ("read", "read,read-payloads"):
                headers = {"Authorization": f"Bearer {scopes}"}
                pages = [
                    (await http.get(f"/v1/tasks/shop-{what}/history?limit=200", headers=headers)).json()
                    for what in ("sold", "refused", "retried", "by-hand", "edited", "called")
                ]
                hashes[scopes] = {
                    one for page in pages for entry in page["entries"] for one in list_hashes(entry["events"])
                }
    arguments = msgspec.json.encode({"order": f"{vault.payload}: order"}).decode()
    body = hashlib.blake2b(arguments.encode(), digest_size=16).hexdigest()
    assert {body, payload_hash(arguments)} <= hashes["read,read-payloads"]
    assert hashes["read"] == set()


# Members of a free type that hold neither a payload nor a reason.
PLAIN = {
    (TaskAnswer, "policy"),
    (TaskInput, "form"),  # the type of a value, as the code declares it
    (ConvoyView, "policy"),
    (ConvoyView, "own_policy"),
    (OpenQuestion, "form"),
    (TaskSelector, "tags"),
}
EVENT_MEMBERS = {(HistoryEntry, "events"), (REPLIES.ReplyMessage, "event")}


def list_answer_types() -> set[type[msgspec.Struct]]:
    """List the types of all answers, with those of their members."""
    vault = Vault("shop", "memory://")
    found: set[type[msgspec.Struct]] = set()
    waiting: list[Any] = [
        route.operation.answer for route in vault.build_server().routes if isinstance(route, GatedRoute)
    ]
    while waiting:
        one = waiting.pop()
        waiting += get_args(one)
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in found:
            found.add(one)
            waiting += get_type_hints(one).values()
    return found


def is_free(declared: Any) -> bool:
    """Whether a member may hold any JSON value."""
    parts = {declared, *get_args(declared)}
    return Any in parts or msgspec.Raw in parts or any(part is not declared and is_free(part) for part in parts)


def test_each_member_that_may_hold_any_value_is_withheld_or_is_known_to_hold_no_payload() -> None:
    found = list_answer_types()
    assert {StepFailure, TaskFailure} <= found
    known = PLAIN | EVENT_MEMBERS
    for one in found - {RemoteRequest}:  # it goes to the Agent alone
        withheld = set(calls.list_members(calls.PAYLOADS, one))
        for name, declared in get_type_hints(one).items():
            is_known = any((base, name) in known for base in one.__mro__)
            assert not is_free(declared) or name in withheld or is_known, (one, name)
