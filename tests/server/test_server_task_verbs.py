"""The verbs of people over HTTP: on one task, on many in bounded parts, and what survives a lost answer."""

from typing import Any

import pytest
from server_shop import ShopWorld, bearer, open_shop

from arriero import InvalidInput, VerbRefused
from arriero.model import Verb

WHY = {"reason": "the bank is back"}


async def _post(world: ShopWorld, path: str, body: dict[str, Any], status: int = 200) -> Any:
    answer = await world.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def _hold(world: ShopWorld, count: int) -> list[str]:
    """Bring tasks into the state held."""
    ids = [f"held-{number}" for number in range(count)]
    tasks = [{"workflow": "inspect_item", "arguments": {"item": "lamp"}, "id": one} for one in ids]
    await _post(world, "/v1/tasks:submit", {"tasks": tasks})
    for one in ids:
        assert (await world.http.get(f"/v1/tasks/{one}/result?wait=30")).json()["state"] == "held"
    return ids


async def test_a_verb_is_signed_by_the_name_of_the_token() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        done = await world.http.post("/v1/tasks/sleeping:pause", json=WHY, headers=bearer("operate"))
        assert done.status_code == 200
        assert (done.json()["outcome"], done.json()["task"]["paused"]) == ("done", True)
        entries = (await world.http.get("/v1/tasks/sleeping/history?limit=200")).json()["entries"]
        (act,) = [event for entry in entries for event in entry["events"] if event["type"] == "operator.action"]
        assert (act["by"], act["reason"]) == ("caller-operate", "the bank is back")


async def test_nobody_signs_for_somebody_else() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        refused = await _post(world, "/v1/tasks/sleeping:pause", {**WHY, "by": "the boss"}, 400)
        assert refused["code"] == "invalid-json"
        assert not (await world.app.task("sleeping").view()).paused


async def test_a_dry_run_changes_nothing_and_is_refused_as_the_verb_would_be() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        tried = await _post(world, "/v1/tasks/sleeping:cancel", {**WHY, "dry_run": True})
        assert (tried["outcome"], tried["task"]["state"]) == ("would_be_done", "processing")
        assert (await world.app.task("sleeping").view()).state == "processing"
        for dry_run in (True, False):
            refused = await _post(world, "/v1/tasks/processed:cancel", {**WHY, "dry_run": dry_run}, 409)
            assert (refused["code"], refused["state"]) == ("verb-refused", "processed")
            assert "compensate" in refused["allowed"]


async def test_a_dry_run_on_many_tasks_names_those_where_the_verb_would_only_count_as_an_approval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_PAUSE", "2")
    async with open_shop(running=True) as world:
        await world.sell()
        body: dict[str, Any] = {**WHY, "filter": {"state": "processing"}}
        tried = await _post(world, "/v1/tasks:pause", {**body, "dry_run": True})
        assert (tried["outcome"], tried["done"]) == ("would_be_done", ["sleeping"])
        assert tried["would_count"] == ["sleeping"]
        assert tried["plan"]
        assert (await _post(world, "/v1/tasks:pause", body))["refused"][0]["id"] == "sleeping"
        second = await world.http.post("/v1/tasks:pause", json={**body, "dry_run": True}, headers=bearer("operate"))
        assert "would_count" not in second.json()


async def test_a_verb_answers_with_what_it_changed_and_what_it_left() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        asked: dict[str, Any] = {**WHY, "deadline": 5_000.0, "attempts": 9}
        left = "unchanged: there is no open step"
        for dry_run in (True, False):
            told = await _post(world, "/v1/tasks/sleeping:adjust", {**asked, "dry_run": dry_run})
            assert told["changes"][0].startswith("to be done by ")
            assert told["changes"][1:] == [left]
        many = {**asked, "filter": {"state": "processing"}}
        plan = (await _post(world, "/v1/tasks:adjust", {**many, "dry_run": True}))["plan"]
        for body in (many, {**asked, "plan": plan, "reason": "another"}):
            assert (await _post(world, "/v1/tasks:adjust", body))["changes"]["sleeping"][1:] == [left]
        paused = await _post(world, "/v1/tasks/sleeping:pause", WHY)
        assert "changes" not in paused


async def test_a_second_token_approves_what_one_must_not_do_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_COMPENSATE", "2")
    async with open_shop(running=True) as world:
        await world.sell()
        for _ in range(2):
            waits = await world.http.post("/v1/tasks/processed:compensate", json=WHY, headers=bearer("operate"))
            assert (waits.status_code, waits.json()["code"]) == (409, "approval-needed")
            assert "approved by caller-operate" in waits.json()["detail"]
        done = await world.http.post("/v1/tasks/processed:compensate", json=WHY, headers=bearer("admin"))
        assert (done.status_code, done.json()["outcome"]) == (200, "done")


async def test_the_next_person_reads_exactly_what_was_approved_and_who_may_not_read_payloads_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_RESUBMIT", "2")
    async with open_shop(running=True) as world:
        (held,) = await _hold(world, 1)
        body = {**WHY, "step": "audit", "arguments": {"item": "s3cret lamp"}}
        asked = await world.http.post(f"/v1/tasks/{held}:resubmit", json=body, headers=bearer("operate"))
        assert asked.json()["code"] == "approval-needed", asked.text
        for scope, is_read in (("admin", True), ("read", False)):
            for page in ("explain", "history?limit=200"):
                shown = await world.http.get(f"/v1/tasks/{held}/{page}", headers=bearer(scope))
                assert ("s3cret lamp" in shown.text) is is_read, shown.text
                assert "approve" in shown.text
        other = {**body, "arguments": {"item": "another lamp"}}
        another = await world.http.post(f"/v1/tasks/{held}:resubmit", json=other, headers=bearer("admin"))
        assert another.json()["code"] == "approval-needed"


REFUSALS: list[tuple[str, str, dict[str, Any]]] = [
    ("processed", "cancel", {}),
    ("processed", "resubmit", {}),
    ("processed", "pause", {}),
    ("sleeping", "resume", {}),
    ("sleeping", "resubmit", {"arguments": {"seconds": 1.0}}),
    ("processed", "resubmit", {"arguments": [1]}),
    ("held", "resubmit", {"arguments": [1], "step": "unknown"}),
    ("held", "answer", {"step": "unknown", "did_not_happen": True}),
    ("held", "answer", {"step": "audit"}),
    ("held", "answer", {"step": "audit", "result": "x", "did_not_happen": True}),
    ("held", "resubmit", {"arguments": {"item": "a"}, "step": "unknown"}),
    ("sleeping", "extend", {"within": 0.0}),
    ("sleeping", "adjust", {}),
    ("sleeping", "adjust", {"deadline": 0.0}),
    ("sleeping", "adjust", {"attempts": 0}),
    ("sleeping", "adjust", {"attempts": 1_001}),
    ("sleeping", "adjust", {"complete_within": -1.0}),
    ("sleeping", "adjust", {"step": "unknown", "attempts": 5}),
    ("sleeping", "adjust", {"step": "unknown", "deadline": 5.0}),
    ("sleeping", "adjust", {"attempts": 5}),
    ("held", "adjust", {"attempts": 5}),
    ("sleeping", "snooze", {"delay": 0.0}),
    ("processed", "snooze", {"delay": 5.0}),
]


@pytest.mark.parametrize(("task_id", "verb", "arguments"), REFUSALS, ids=str)
async def test_every_refusal_of_python_is_the_same_over_http(
    task_id: str, verb: str, arguments: dict[str, Any]
) -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        with pytest.raises(InvalidInput) as refused:
            await getattr(world.app.task(task_id), verb)(by="ana", reason="why", **arguments)
        answer = await world.http.post(f"/v1/tasks/{task_id}:{verb}", json={"reason": "why", **arguments})
        assert answer.status_code == (409 if isinstance(refused.value, VerbRefused) else 422)
        assert answer.json()["detail"] == str(refused.value)


async def test_edited_arguments_and_answers_are_read_as_the_code_declares_them() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        wrong = await _post(world, "/v1/tasks/held:answer", {**WHY, "step": "audit", "result": 5}, 422)
        assert "Expected `str`" in wrong["detail"]
        await _post(world, "/v1/tasks/held:answer", {**WHY, "step": "audit", "result": "all is well"})
        await _post(world, "/v1/tasks/held:resubmit", WHY)
        end = (await world.http.get("/v1/tasks/held/result?wait=30")).json()
        assert (end["state"], end["output"]) == ("processed", "all is well")
        again = {**WHY, "arguments": {"order": {"item": "lamp"}}}
        await _post(world, "/v1/tasks/compensated:resubmit", again)
        end = (await world.http.get("/v1/tasks/compensated/result?wait=30")).json()
        assert (end["state"], end["output"]) == ("processed", "receipt for 1 lamp")


async def test_a_verb_on_many_goes_part_by_part_and_each_task_is_asked_once() -> None:
    async with open_shop(running=True) as world:
        ids = await _hold(world, 5)
        body: dict[str, Any] = {**WHY, "filter": {"state": "held"}, "limit": 2}
        done: list[str] = []
        while True:
            part = await _post(world, "/v1/tasks:compensate", body)
            assert part["meant"] <= 2
            done += part["done"]
            if part["next"] is None:
                break
            body["cursor"] = part["next"]
        assert done == ids
        again = await _post(world, "/v1/tasks:compensate", {**WHY, "filter": {"workflow": "inspect_item"}})
        assert (again["done"], again["refused"]) == ([], [])
        assert sum(again["left_out"].values()) == 5


async def test_a_plan_whose_answer_was_lost_may_be_sent_again_and_says_what_was_done() -> None:
    async with open_shop(running=True) as world:
        ids = await _hold(world, 3)
        planned = await _post(world, "/v1/tasks:resubmit", {**WHY, "filter": {"state": "held"}, "dry_run": True})
        assert (planned["outcome"], planned["done"]) == ("would_be_done", ids)
        assert await world.app.tasks(state="held").count() == 3
        first = await _post(world, "/v1/tasks:resubmit", {**WHY, "plan": planned["plan"]})
        assert first["done"] == ids
        for one in ids:  # each fails again: by its state alone it would allow the verb once more
            assert (await world.http.get(f"/v1/tasks/{one}/result?wait=30")).json()["state"] == "held"
        second = await _post(world, "/v1/tasks:resubmit", {**WHY, "plan": planned["plan"]})
        assert (second["done"], second["done_before"]) == ([], ids)
        other = await _post(world, "/v1/tasks:resubmit", {"reason": "another", "plan": planned["plan"]})
        assert other["done"] == []
        assert "incarnation 2" in other["refused"][0]["reason"]


async def test_a_plan_is_of_one_verb_and_of_the_tasks_that_it_was_made_of() -> None:
    async with open_shop(running=True) as world:
        await _hold(world, 1)
        plan = (await _post(world, "/v1/tasks:resubmit", {**WHY, "filter": {"state": "held"}, "dry_run": True}))["plan"]
        for verb, token in (("compensate", plan), ("resubmit", plan[:-2]), ("resubmit", "x")):
            refused = await _post(world, f"/v1/tasks:{verb}", {**WHY, "plan": token}, 422)
            assert refused["code"] == "cursor-invalid"


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("selection", [{}, {"filter": {}}, {"filter": {"state": "held"}, "plan": "x"}], ids=str)
async def test_a_verb_on_everything_or_on_nothing_is_refused(verb: Verb, selection: dict[str, Any]) -> None:
    needed: dict[Verb, dict[str, Any]] = {
        Verb.EXTEND: {"within": 5.0},
        Verb.ADJUST: {"deadline": 5.0},
        Verb.SNOOZE: {"delay": 5.0},
        Verb.ANSWER: {"step": "audit"},
        Verb.TAG: {"put": {"tenant": "acme"}},
        Verb.PIN: {"to": "2@blue"},
    }
    async with open_shop() as world:
        body = {**WHY, **needed.get(verb, {}), **selection}
        answer = await world.http.post(f"/v1/tasks:{verb}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


async def test_a_verb_needs_a_reason_and_the_scope() -> None:
    async with open_shop() as world:
        for path, more in (("/v1/tasks/x:pause", {}), ("/v1/tasks:pause", {"filter": {"state": "held"}})):
            unsaid = await _post(world, path, {"reason": " ", **more}, 422)
            assert unsaid["detail"].startswith("reason is ' '")
            denied = await world.http.post(path, json=WHY, headers=bearer("submit"))
            assert (denied.status_code, denied.json()["scope"]) == (403, "operate")


async def test_tasks_of_another_app_are_assigned() -> None:
    async with open_shop() as world:
        await _post(world, "/v1/tasks", {"workflow": "fulfil", "arguments": {"order": {"item": "a"}}, "id": "a"}, 201)
        body = {**WHY, "app": "new-shop", "from_app": "shop", "dry_run": True}
        unknown = await _post(world, "/v1/tasks:assign-app", {**body, "from_app": "shopp"}, 404)
        assert unknown["code"] == "unknown-name"
        tried = await _post(world, "/v1/tasks:assign-app", body)
        assert tried["workflows"] == {"fulfil": 1}
        assert (await world.app.task("a").view()).app == "shop"
        await _post(world, "/v1/tasks:assign-app", {**body, "dry_run": False})
        assert (await world.app.task("a").view()).app == "new-shop"
        left = await _post(world, "/v1/tasks:assign-app", {**body, "dry_run": False})
        assert left["workflows"] == {}
