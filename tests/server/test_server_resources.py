"""Convoys, ledgers, schedules, leases, Agents, alerts and the diagnosis over HTTP: the same words as everywhere."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from server_shop import ShopWorld, bearer, open_shop

from arriero import Leadership
from arriero.cli.main import commands

WHY = {"reason": "it was checked"}
LAMP = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}


async def _ask(world: ShopWorld, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
    answer = await world.http.request(method, path, json=body, **options)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


# --- convoys
async def _submit_convoy(world: ShopWorld, count: int, key: str = "ana") -> None:
    tasks = [{**LAMP, "id": f"{key}-{number}", "convoy": key} for number in range(count)]
    await _ask(world, "POST", "/v1/tasks:submit", {"tasks": tasks})


async def test_a_convoy_is_parked_and_released_and_the_name_of_the_token_signs() -> None:
    async with open_shop() as world:
        await _submit_convoy(world, 3)
        parked = await _ask(world, "POST", "/v1/convoys/ana:park", WHY)
        assert parked["convoy"]["state"] == "parked"
        refused = await _ask(world, "POST", "/v1/convoys/ana:park", WHY, 409)
        assert refused["code"] == "verb-refused"
        await _ask(world, "POST", "/v1/convoys/ana:move-to-head", {**WHY, "task_id": "ana-2"})
        released = await _ask(world, "POST", "/v1/convoys/ana:release", WHY)
        assert released["convoy"]["open_task"] in ("ana-0", "ana-2")
        set_own = await _ask(world, "POST", "/v1/convoys/ana:set", {**WHY, "head": "park", "gap_within": 60.0})
        assert set_own["convoy"]["own_policy"] == {"head": "park", "gap_within": 60.0}
        unset = await _ask(world, "POST", "/v1/convoys/ana:set", {**WHY, "head": None})
        assert unset["convoy"]["own_policy"] == {"gap_within": 60.0}
        wrong = await _ask(world, "POST", "/v1/convoys/ana:set", {**WHY, "head": "jump"}, 422)
        assert wrong["detail"] == "head is 'jump'; it must be 'wait', 'skip' or 'park', or None"
        await _ask(world, "POST", "/v1/convoys/ana:skip", {**WHY, "seen": "other"}, 409)
        for key in ("%00", "x" * 256):  # no key, so it is refused as it is where a convoy is shown
            await _ask(world, "POST", f"/v1/convoys/{key}:park", WHY, 422)
            await _ask(world, "GET", f"/v1/convoys/{key}", status=422)


async def test_convoys_come_in_pages_and_an_unknown_one_is_told() -> None:
    async with open_shop() as world:
        for key in ("a", "b", "c"):
            await _submit_convoy(world, 1, key)
        first = await _ask(world, "GET", "/v1/convoys?limit=2")
        rest = await _ask(world, "GET", f"/v1/convoys?limit=2&cursor={first['next']}")
        assert [view["key"] for view in first["convoys"] + rest["convoys"]] == ["a", "b", "c"]
        assert rest["next"] is None
        assert (await _ask(world, "GET", "/v1/convoys?state=moving", status=422))["code"] == "invalid-request"
        assert (await _ask(world, "GET", "/v1/convoys/zoe", status=404))["code"] == "unknown-name"


# --- ledgers
async def test_the_same_ledger_twice_changes_nothing_and_another_one_under_its_id_is_refused() -> None:
    async with open_shop() as world:
        entries = [{**LAMP, "convoy": key, "priority": 8} for key in ("a", "b", "a")]
        first = await _ask(world, "PUT", "/v1/ledgers/payroll", {"entries": entries})
        assert first == {"accepted": 3, "duplicates": 0, "set_aside": []}
        again = await _ask(world, "PUT", "/v1/ledgers/payroll", {"entries": entries})
        assert again == {"accepted": 0, "duplicates": 3, "set_aside": []}
        other = await _ask(world, "PUT", "/v1/ledgers/payroll", {"entries": entries[:2]}, 422)
        assert "another content" in other["detail"]
        assert (await _ask(world, "GET", "/v1/ledgers/payroll"))["accepted"] == 3
        assert {task["priority"] for task in (await _ask(world, "GET", "/v1/tasks"))["tasks"]} == {8}
        assert (await _ask(world, "GET", "/v1/ledgers?state=all"))["ledgers"][0]["ledger"] == "payroll"
        assert (await _ask(world, "GET", "/v1/ledgers/none", status=404))["code"] == "unknown-name"
        assert await world.app.tasks().count() == 3


async def test_a_ledger_may_come_line_by_line_and_one_bad_line_refuses_all_of_it() -> None:
    async with open_shop() as world:
        good = [json.dumps({**LAMP, "convoy": f"key-{number % 7}"}) for number in range(50)]
        ndjson = {"Content-Type": "application/x-ndjson"}

        async def parts() -> Any:
            text = "\n".join([*good, ""]).encode()
            for start in range(0, len(text), 100):  # lines are cut anywhere
                yield text[start : start + 100]

        answer = await world.http.post("/v1/ledgers/stream:stream", content=parts(), headers=ndjson)
        assert answer.json() == {"accepted": 50, "duplicates": 0, "set_aside": []}
        bad = "\n".join([*good[:3], '{"workflow": "fulfil", "arguments": {"order": 5}}', "no json", *good[3:5]])
        refused = await world.http.post("/v1/ledgers/bad:stream", content=bad, headers=ndjson)
        assert refused.status_code == 422
        assert "line 4" in refused.json()["detail"]
        aside = await world.http.post("/v1/ledgers/aside:stream?bad=set_aside", content=bad, headers=ndjson)
        assert aside.json()["accepted"] == 5
        assert [line.split(":")[0] for line in aside.json()["set_aside"]] == ["line 4", "line 5"]
        other = await world.http.post("/v1/ledgers/json:stream", content=bad, headers={"Content-Type": "text/csv"})
        assert other.status_code == 415


async def test_the_tasks_of_a_ledger_are_selected_as_one_and_their_end_may_be_waited_for() -> None:
    async with open_shop() as world:
        entries = [{**LAMP, "id": name} for name in ("a", "b")]
        await _ask(world, "PUT", "/v1/ledgers/payroll", {"entries": entries})
        await _ask(world, "POST", "/v1/tasks", {**LAMP, "id": "alone"}, 201)
        listed = await _ask(world, "GET", "/v1/tasks?ledger=payroll&limit=1")
        assert [task["id"] for task in listed["tasks"]] == ["a"]
        more = await _ask(world, "GET", f"/v1/tasks?ledger=payroll&limit=1&cursor={listed['next']}")
        assert ([task["id"] for task in more["tasks"]], more["next"]) == (["b"], None)
        newest = await _ask(world, "GET", "/v1/tasks?ledger=payroll&state=pending&order=newest")
        assert [task["id"] for task in newest["tasks"]] == ["b", "a"]
        assert (await _ask(world, "GET", "/v1/tasks?ledger=none"))["tasks"] == []
        shown = await _ask(world, "GET", "/v1/ledgers/payroll?wait=0.05")
        assert (shown["tasks"], shown["ended"], shown["ended_at"]) == ({"pending": 2}, False, None)
        cancelled = await _ask(world, "POST", "/v1/tasks:cancel", {**WHY, "filter": {"ledger": "payroll"}})
        assert cancelled["done"] == ["a", "b"]
        async with world.app.running():
            shown = await _ask(world, "GET", "/v1/ledgers/payroll?wait=60")
        assert (shown["tasks"], shown["purged"], shown["ended"]) == ({"compensated": 2}, 0, True)
        assert shown["ended_at"] is not None
        (line,) = (await _ask(world, "GET", "/v1/ledgers?state=all"))["ledgers"]
        assert (line["ended"], "tasks" in line) == (True, False)
        assert (await _ask(world, "GET", "/v1/ledgers/none?wait=60", status=404))["code"] == "unknown-name"
        assert (await _ask(world, "GET", "/v1/ledgers/payroll?wait=61", status=422))["code"] == "invalid-request"


async def test_a_request_that_waits_for_a_ledger_is_answered_when_its_tasks_end() -> None:
    async with open_shop(running=True) as world:
        await _ask(world, "PUT", "/v1/ledgers/payroll", {"entries": [{**LAMP, "id": name} for name in ("a", "b")]})
        shown = await _ask(world, "GET", "/v1/ledgers/payroll?wait=60")
        assert (shown["tasks"], shown["ended"]) == ({"processed": 2}, True)


# --- schedules
async def test_who_may_operate_but_not_submit_submits_nothing_by_a_schedule() -> None:
    async with open_shop() as world:
        body = {**WHY, **LAMP, "name": "nightly", "cron": "0 3 * * *"}
        past = {**WHY, "start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
        await _ask(world, "POST", "/v1/schedules", body)
        by_schedule = [("", {**body, "name": "other"}), ("/nightly:run-now", WHY), ("/nightly:backfill", past)]
        for scope, missing in (("operate", "submit"), ("submit", "operate")):
            for path, asked in by_schedule:
                answer = await _ask(world, "POST", f"/v1/schedules{path}", asked, 403, headers=bearer(scope))
                assert (answer["code"], answer["scope"]) == ("forbidden", missing)
        assert len((await _ask(world, "GET", "/v1/schedules"))["schedules"]) == 1
        assert (await _ask(world, "GET", "/v1/tasks"))["tasks"] == []


async def test_a_schedule_is_added_paused_resumed_run_and_removed() -> None:
    async with open_shop() as world:
        body = {**WHY, **LAMP, "name": "nightly", "cron": "0 3 * * *", "tags": {"tenant": "acme"}}
        added = await _ask(world, "POST", "/v1/schedules", body)
        assert (added["schedule"]["declared_by"], added["schedule"]["tags"]) == ("caller-admin", {"tenant": "acme"})
        crowded = {f"tag{n}": "x" for n in range(21)}
        many = await _ask(world, "POST", "/v1/schedules", {**body, "name": "many", "tags": crowded}, 422)
        assert "21 tags; a task has at most 20" in many["detail"]
        assert added["schedule"]["next_runs"]
        other = await _ask(world, "POST", "/v1/schedules", {**body, "cron": "0 4 * * *"}, 422)
        assert "exists with another declaration" in other["detail"]
        local = await _ask(world, "POST", "/v1/schedules", {**body, "name": "local", "timezone": "localtime"}, 422)
        assert "'localtime' is the zone of each machine; give an IANA name" in local["detail"]
        assert (await _ask(world, "POST", "/v1/schedules/nightly:pause", WHY))["schedule"]["state"] == "paused"
        assert (await _ask(world, "POST", "/v1/schedules/nightly:pause", WHY, 409))["code"] == "verb-refused"
        assert (await _ask(world, "POST", "/v1/schedules/nightly:resume", WHY))["schedule"]["state"] == "active"
        (run,) = (await _ask(world, "POST", "/v1/schedules/nightly:run-now", WHY))["runs"]
        assert run["outcome"] == "submitted"
        tagged = (await _ask(world, "GET", "/v1/tasks?tag=tenant=acme"))["tasks"]
        assert [task["id"] for task in tagged] == [run["task_id"]]
        past = {**WHY, "start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z", "dry_run": True}
        planned = (await _ask(world, "POST", "/v1/schedules/nightly:backfill", past))["runs"]
        assert [one["outcome"] for one in planned] == ["planned"] * 2
        naive = await _ask(
            world, "POST", "/v1/schedules/nightly:backfill", {**past, "start": "2026-01-01T00:00:00"}, 422
        )
        assert naive["code"] == "invalid-request"
        hidden = await _ask(world, "GET", "/v1/schedules/nightly", headers=bearer("read"))
        assert (hidden["payloads"], hidden["schedules"][0]["arguments"]) == ("withheld", None)
        await _ask(world, "POST", "/v1/schedules/nightly:remove", WHY)
        assert (await _ask(world, "GET", "/v1/schedules"))["schedules"] == []
        assert (await _ask(world, "GET", "/v1/schedules/nightly", status=404))["code"] == "unknown-name"
        assert (await _ask(world, "POST", "/v1/schedules/nightly:pause", WHY, 404))["code"] == "unknown-name"


# --- leases, leader, Agents, alerts
async def test_a_lease_is_shown_and_broken() -> None:
    async with open_shop(running=True) as world:
        assert (await _ask(world, "GET", "/v1/leader"))["leader"]["term"] >= 1
        assert (await _ask(world, "GET", "/v1/leases/none", status=404))["code"] == "unknown-name"

        async def work(leadership: Leadership) -> None:
            assert (await _ask(world, "GET", "/v1/leases/nightly"))["term"] == leadership.term
            broken = await _ask(world, "POST", "/v1/leases/nightly:break", WHY)
            assert broken["lease"]["broken_by"] == "caller-admin"

        await world.app.mutex("nightly").run_once(work)
        assert "nightly" in [lease["name"] for lease in (await _ask(world, "GET", "/v1/leases"))["leases"]]


async def test_an_agent_is_shown_measured_paused_and_resumed() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        assert [view["agent"] for view in (await _ask(world, "GET", "/v1/agents"))["agents"]] == ["till"]
        paused = await _ask(world, "POST", "/v1/agents/till:pause", WHY)
        assert paused["agent"]["paused_by"] == "caller-admin"
        assert (await _ask(world, "POST", "/v1/agents/till:pause", WHY, 409))["code"] == "verb-refused"
        await _ask(world, "POST", "/v1/agents/till:resume", WHY)
        assert (await _ask(world, "GET", "/v1/agents/till/metrics"))["agents"][0]["agent"] == "till"
        for path in ("", "/metrics"):
            assert (await _ask(world, "GET", f"/v1/agents/bank{path}", status=404))["code"] == "unknown-name"
        assert (await _ask(world, "POST", "/v1/agents/bank:pause", WHY, 404))["code"] == "unknown-name"


async def test_alerts_come_in_pages() -> None:
    async with open_shop(running=True) as world:
        for number in range(3):
            body = {"workflow": "inspect_item", "arguments": {"item": "a"}, "id": f"held-{number}"}
            await _ask(world, "POST", "/v1/tasks", body, 201)
            await _ask(world, "GET", f"/v1/tasks/held-{number}/result?wait=30")
        first = await _ask(world, "GET", "/v1/alerts?limit=2")
        rest = await _ask(world, "GET", f"/v1/alerts?limit=2&cursor={first['next']}")
        found = [alert["task_id"] for alert in first["alerts"] + rest["alerts"]]
        assert found == ["held-0", "held-1", "held-2"]
        by_cause = await _ask(world, "GET", "/v1/alerts/causes")
        (cause,) = by_cause["causes"]
        assert (by_cause["complete"], cause["count"], cause["first_task"]) == (True, 3, "held-0")
        assert cause["command"] == f"arriero task resubmit {cause['select']}"
        assert (cause["first_at"], cause["last_at"]) == (
            first["alerts"][0]["opened_at"],
            rest["alerts"][0]["opened_at"],
        )


# --- the diagnosis
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_doctor_says_what_needs_care(tmp_path: Path, kind: str) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_shop(url, running=True) as world:
        await world.sell()
        found = await _ask(world, "GET", "/v1/doctor")
        assert found["healthy"] is False
        assert any(finding["level"] == "care" and "held" in finding["says"] for finding in found["findings"])
        if kind == "sqlite":
            said = await asyncio.to_thread(CliRunner().invoke, commands, ("doctor", "--json", "--store", url))
            told = json.loads(said.stdout)
            assert {one["about"] for one in told["findings"]} - {"undo"} <= {one["about"] for one in found["findings"]}


async def test_processes_are_listed_with_their_roles_agents_and_workflows() -> None:
    async with open_shop() as world:
        assert (await _ask(world, "GET", "/v1/processes"))["processes"] == []
    async with open_shop(running=True) as world:
        (process,) = (await _ask(world, "GET", "/v1/processes"))["processes"]
        assert (process["state"], process["app"], process["agents"]) == ("alive", "shop", ["till"])
        assert set(process["roles"]) == {"agents", "scheduler", "supervisor"}
        assert "fulfil" in process["workflows"]


async def test_acts_of_operators_come_newest_first_in_pages_and_by_name() -> None:
    async with open_shop(running=True) as world:
        for number in range(3):
            await _ask(world, "POST", "/v1/agents/till:pause", {"reason": f"reason {number}"})
            await _ask(world, "POST", "/v1/agents/till:resume", WHY)
        first = await _ask(world, "GET", "/v1/acts?limit=4")
        rest = await _ask(world, "GET", f"/v1/acts?limit=4&cursor={first['next']}")
        assert [one["verb"] for one in first["acts"]] == ["resumed", "paused"] * 2
        assert [one["reason"] for one in rest["acts"]] == [WHY["reason"], "reason 0"]
        assert {one["by"] for one in first["acts"]} == {"caller-admin"}
        assert rest["next"] is None
        assert (await _ask(world, "GET", "/v1/acts?by=eva"))["acts"] == []
        await _ask(world, "GET", f"/v1/acts?by=eva&cursor={first['next']}", status=422)


async def test_the_decisions_about_a_schedule_are_listed_newest_first() -> None:
    async with open_shop(running=True) as world:
        body = {**WHY, "name": "nightly", "workflow": "wait_long", "every": 3600.0}
        await _ask(world, "POST", "/v1/schedules", body)
        await _ask(world, "POST", "/v1/schedules/nightly:run-now", WHY)
        decisions = (await _ask(world, "GET", "/v1/schedules/nightly/decisions"))["decisions"]
        assert [one["tasks"] for one in decisions][1:] == [[]]
        assert len(decisions[0]["tasks"]) == 1
        assert decisions[1]["says"].startswith("caller-admin added it: wait_long")
        await _ask(world, "GET", "/v1/schedules/other/decisions", status=404)
