"""A token that is restricted to an App while the App is renamed, over HTTP and on the command line."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from postgres_servers import server, worker

from arriero import App, workflow
from arriero.cli.main import commands
from arriero.core.apps import follow_renames
from arriero.core.tokens import build_row, list_left_behind, revoke_token
from arriero.explain.doctor_server import diagnose_tokens
from arriero.model import Instant, later
from arriero.model.tokens import NewToken, Reach, TokenRow
from arriero.server.application import build_application
from arriero.server.authentication import TokenAuthenticator

NOON = Instant(1_700_000_000_000_000)
STORES = ["sqlite", "postgres"]
WHY = {"reason": "it has another name"}
RENAME = {**WHY, "from_app": "old-shop", "app": "shop"}


@workflow
async def fulfil() -> None:
    return


class Servers:
    """Servers of several Apps on one store, and clients of the command line."""

    def __init__(self, url: str, apps: dict[str, App]) -> None:
        self.url = url
        self.apps = apps
        self._transports = {
            name: httpx2.ASGITransport(app=build_application(app, TokenAuthenticator(app.session)))
            for name, app in apps.items()
        }

    async def ask(self, server_of: str, token: str, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        transport = self._transports[server_of]
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            return await http.request(method, path, **options)

    async def type(self, line: str) -> Result:
        """Type a command as it is printed."""
        words = shlex.split(line)
        assert words.pop(0) == "arriero"
        return await asyncio.to_thread(CliRunner().invoke, commands, [*words, "--store", self.url])

    async def list_seen(self, server_of: str, token: str) -> list[str]:
        answer = (await self.ask(server_of, token, "GET", "/v1/tasks")).raise_for_status()
        return [task["id"] for task in answer.json()["tasks"]]


@asynccontextmanager
async def servers(kind: str, tmp_path: Path, name: str = "") -> AsyncIterator[Servers]:
    """Servers of an App under its old and new name, and of another one; each App but the new one has a task."""
    url = (
        f"sqlite:///{tmp_path / 'three.db'}"
        if kind == "sqlite"
        else server(16).create_database(f"renamed_{name}_" + worker())
    )
    apps = {name: App(name, workflows=[fulfil], store=url) for name in ("old-shop", "shop", "travel")}
    async with AsyncExitStack() as stack:
        for app in apps.values():
            await stack.enter_async_context(app)
            if app.name != "shop":
                await app.submit(fulfil(), task_id=f"{app.name}-task")
        yield Servers(url, apps)


async def make(world: Servers, *scopes: str, **options: Any) -> str:
    return (await world.apps["shop"].tokens.create("partner", scopes=scopes, by="ana", **options)).token


@pytest.mark.parametrize("kind", STORES)
async def test_a_rename_names_the_tokens_that_it_leaves_behind_and_shows_them_nothing_of_another_app(
    kind: str, tmp_path: Path
) -> None:
    async with servers(kind, tmp_path, "rename") as world:
        admin = await make(world, "admin")
        partner = await make(world, "read", "submit", apps=["old-shop"], workflows=["fulfil"])
        for one in world.apps:
            assert await world.list_seen(one, partner) == ["old-shop-task"]
        tried = (
            await world.ask("shop", admin, "POST", "/v1/tasks:assign-app", json={**RENAME, "dry_run": True})
        ).json()
        done = (await world.ask("shop", admin, "POST", "/v1/tasks:assign-app", json=RENAME)).json()
        assert tried["tokens"] == done["tokens"]
        operator, reader = await make(world, "operate"), await make(world, "read")
        answer = await world.ask("shop", operator, "POST", "/v1/tasks:assign-app", json={**RENAME, "dry_run": True})
        assert "tokens" not in answer.json()
        shown = await world.ask("shop", reader, "GET", "/v1/doctor")
        assert "partner" not in shown.text
        assert "a token needs a look" in shown.text
        (left,) = done["tokens"]
        assert (left["name"], left["apps"]) == ("partner", ["old-shop"])
        for one in world.apps:
            assert await world.list_seen(one, partner) == []
            for task in ("old-shop-task", "travel-task"):
                assert (await world.ask(one, partner, "GET", f"/v1/tasks/{task}")).status_code == 404
        create, revoke = left["remedy"].split("; give it to its holder, then: ")
        made = await world.type(create)
        assert made.exit_code == 0, made.stderr
        replaced = made.stdout.strip()
        for one in world.apps:
            assert await world.list_seen(one, replaced) == ["old-shop-task"]
            assert (await world.ask(one, replaced, "GET", "/v1/tasks/old-shop-task")).json()["app"] == "shop"
            assert (await world.ask(one, replaced, "GET", "/v1/tasks/travel-task")).status_code == 404
        refused = await world.ask("travel", replaced, "POST", "/v1/tasks", json={"workflow": "fulfil", "arguments": {}})
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown-workflow")
        assert (await world.type(revoke)).exit_code == 0
        again = (await world.ask("shop", admin, "POST", "/v1/tasks:assign-app", json=RENAME)).json()
        assert again["workflows"] == {}
        assert "tokens" not in again


@pytest.mark.parametrize("kind", STORES)
async def test_the_doctor_names_a_token_of_a_renamed_app_until_it_is_revoked(kind: str, tmp_path: Path) -> None:
    async with servers(kind, tmp_path, "doctor") as world:
        admin = await make(world, "admin")
        await make(world, "read", apps=["old-shop", "travel"])

        async def diagnose() -> list[dict[str, Any]]:
            over_http = (await world.ask("shop", admin, "GET", "/v1/doctor")).json()["findings"]
            typed = json.loads((await world.type("arriero doctor --json")).stdout)["findings"]
            found = [
                [one for one in every if one["about"] == "tokens" and one["level"] == "care"]
                for every in (over_http, typed)
            ]
            assert found[0] == found[1]
            return found[0]

        assert await diagnose() == []
        assert (await world.ask("shop", admin, "POST", "/v1/tasks:assign-app", json=RENAME)).is_success
        (finding,) = await diagnose()
        assert "of partner is restricted to App 'old-shop', which is now App 'shop'" in finding["says"]
        assert finding["remedy"].startswith(
            "arriero token create --scope read --app-name shop --app-name travel partner; "
        )
        assert (await world.type(finding["remedy"].split("then: ")[1])).exit_code == 0
        assert await diagnose() == []


async def test_the_command_line_names_the_tokens_and_an_assigned_part_of_an_app_keeps_its_old_name(
    tmp_path: Path,
) -> None:
    async with servers("sqlite", tmp_path) as world:
        await make(world, "read", apps=["old-shop"], expires_in=3_600, open_tasks_max=7)
        await make(world, "read", apps=["old-shop"], workflows=["other"])
        await make(world, "read", apps=["travel"])
        await make(world, "read", apps=["old-shop", "shop"])
        said = await world.type("arriero store assign --from old-shop --to shop --workflow fulfil --reason part --yes")
        assert said.exit_code == 0, said.stderr
        count, token, remedy = said.stdout.splitlines()
        assert count == "1 task is of App 'shop': 1 of fulfil"
        assert token.endswith(" of partner is restricted to App old-shop: it does not reach them")
        assert remedy.startswith(
            "    arriero token create --scope read --app-name old-shop --app-name shop --open-tasks-max 7 --expires-in 3"
        )


# --- rules
def token(*apps: str, name: str = "partner") -> TokenRow:
    new = NewToken(token_id="0011", name=name, digest="d", scopes=("read",), created_by="ana", reach=Reach(apps))
    return build_row(new, NOON)


def test_a_name_leads_to_the_last_one_also_after_a_rename_back() -> None:
    assert follow_renames([("a", "b"), ("b", "c")]) == {"a": "c", "b": "c"}
    assert follow_renames([("a", "b"), ("b", "a")]) == {"b": "a"}
    assert follow_renames([("a", "b"), ("x", "a")]) == {"x": "a"}, "the old name is another App's by now"


def test_valid_tokens_that_name_the_old_name_alone_are_left_behind() -> None:
    names = {"old": "new"}
    assert list_left_behind([token("old"), token("old", "other")], names, NOON) == [token("old"), token("old", "other")]
    others = [token(), token("new"), token("old", "new"), revoke_token(token("old"), NOON, "ana", "lost")]
    assert list_left_behind(others, names, NOON) == []


def test_more_tokens_than_the_doctor_shows_are_counted_and_odd_names_are_quoted() -> None:
    rows = [token("old", name="-a b") for _ in range(30)]
    *named, more, _ = diagnose_tokens(rows, later(NOON, 1), serves=True, names={"old": "ne'w"})
    assert f"{30 - len(named)} more tokens restricted to an App that was renamed" in more.says
    assert named[0].remedy.startswith("""arriero token create --scope read --app-name 'ne'"'"'w' -- '-a b'; """)
