"""Submitting over HTTP: the same words and refusals as in Python and on the command line."""

import asyncio
import json
from typing import Any

import pytest
from server_shop import Order, ShopApp, bearer, open_shop

from arriero import InvalidInput

LAMP = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp", "amount": 2}}}


async def test_a_submission_is_durable_when_it_is_answered_and_says_where_the_task_is() -> None:
    async with open_shop() as world:
        answer = await world.http.post("/v1/tasks", json={**LAMP, "id": "order/1"})
        assert answer.status_code == 201
        assert answer.headers["location"] == "/v1/tasks/order%2F1"
        assert answer.json() == {"id": "order/1", "workflow": "fulfil", "created": True}
        assert await world.app.tasks().count() == 1


async def test_the_same_submission_again_is_the_same_task_and_another_one_is_refused() -> None:
    async with open_shop() as world:
        key = {"Idempotency-Key": "order-1"}
        assert (await world.http.post("/v1/tasks", json=LAMP, headers=key)).status_code == 201
        again = await world.http.post("/v1/tasks", json=LAMP, headers=key)
        assert (again.status_code, again.json()["created"]) == (200, False)
        other = {**LAMP, "arguments": {"order": {"item": "sofa"}}}
        refused = await world.http.post("/v1/tasks", json=other, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (409, "task-exists")
        assert await world.app.tasks().count() == 1


@pytest.mark.parametrize("key", ["order-1", '"order-1"'])
async def test_the_key_may_stand_in_the_header_and_in_the_body_if_it_is_the_same(key: str) -> None:
    async with open_shop() as world:
        same = await world.http.post("/v1/tasks", json={**LAMP, "id": "order-1"}, headers={"Idempotency-Key": key})
        assert same.status_code == 201
        other = await world.http.post("/v1/tasks", json={**LAMP, "id": "order-2"}, headers={"Idempotency-Key": key})
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-invalid")


async def test_without_a_key_the_server_makes_an_id_and_says_it() -> None:
    async with open_shop() as world:
        first, second = [(await world.http.post("/v1/tasks", json=LAMP)).json()["id"] for _ in range(2)]
        assert first
        assert first != second


async def test_a_caller_may_wait_for_the_end_and_gets_the_output() -> None:
    async with open_shop(running=True) as world:
        answer = await world.http.post("/v1/tasks", json=LAMP, headers={"Prefer": "wait=30"})
        assert (answer.status_code, answer.headers["preference-applied"]) == (201, "wait=30")
        assert answer.json()["end"]["state"] == "processed"
        assert answer.json()["end"]["output"] == "receipt for 2 lamp"
        gold = {"workflow": "fulfil", "arguments": {"order": {"item": "gold"}}}
        undone = (await world.http.post("/v1/tasks", json=gold, headers={"Prefer": "wait=30"})).json()["end"]
        assert (undone["state"], undone["code"]) == ("compensated", "declined")


async def test_the_output_is_withheld_from_a_token_that_may_not_read_payloads() -> None:
    async with open_shop(running=True) as world:
        headers = {"Prefer": "wait=30", **bearer("submit")}
        end = (await world.http.post("/v1/tasks", json=LAMP, headers=headers)).json()["end"]
        assert end["payloads"] == "withheld"
        assert "output" not in end


async def test_a_token_that_may_only_submit_gets_what_customers_may_read_and_no_reason() -> None:
    gold = {"workflow": "fulfil", "arguments": {"order": {"item": "gold"}}}
    audit = {"workflow": "inspect_item", "arguments": {"item": "lamp"}}
    neutral = "The operation could not be completed yet. It is being looked into."
    async with open_shop(running=True) as world:
        for body, public, reason in (
            (gold, "Please pay in another way.", "declined"),
            (audit, neutral, "the books do not open"),
        ):
            for headers, shown in ((bearer("submit"), None), ({}, reason)):
                answer = await world.http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30", **headers})
                end = answer.json()["end"]
                assert (end["public"], end.get("reason")) == (public, shown)


async def test_a_task_whose_end_is_not_waited_for_is_accepted_and_no_more() -> None:
    async with open_shop() as world:
        for prefer in ("respond-async", "wait=0"):
            answer = await world.http.post("/v1/tasks", json=LAMP, headers={"Prefer": prefer})
            assert (answer.status_code, answer.headers["preference-applied"]) == (202, prefer)
            assert "end" not in answer.json()
        odd = await world.http.post("/v1/tasks", json=LAMP, headers={"Prefer": "wait=soon, handling=lenient"})
        assert odd.status_code == 201
        assert "preference-applied" not in odd.headers


async def test_a_batch_gives_each_submission_its_own_verdict() -> None:
    async with open_shop() as world:
        tasks: list[dict[str, Any]] = [
            {**LAMP, "id": "a"},
            {"workflow": "unknown", "id": "b"},
            {"workflow": "fulfil", "arguments": {"order": {"item": 5}}, "id": "c"},
            {**LAMP, "id": "a"},
            {**LAMP, "id": "d", "priority": 10},
        ]
        answer = await world.http.post("/v1/tasks:submit", json={"tasks": tasks})
        assert answer.status_code == 200
        found = answer.json()
        codes = [one["problem"]["code"] if one["problem"] else one["task"]["created"] for one in found["results"]]
        assert codes == [True, "unknown-workflow", "invalid-arguments", False, "invalid-request"]
        assert found["refused"] == 3


@pytest.mark.parametrize("count", [0, 401])
async def test_a_batch_has_a_size(count: int) -> None:
    async with open_shop() as world:
        answer = await world.http.post("/v1/tasks:submit", json={"tasks": [LAMP] * count})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
        assert await world.app.tasks().count() == 0


async def test_tasks_of_one_convoy_keep_the_order_of_their_batch() -> None:
    async with open_shop() as world:
        ids = [f"task-{number}" for number in range(60)]
        tasks = [{**LAMP, "id": one, "convoy": "ana", "priority": number % 10} for number, one in enumerate(ids)]
        (await world.http.post("/v1/tasks:submit", json={"tasks": tasks})).raise_for_status()
        view = await world.app.convoy("ana").view(limit=100)
        assert [view.open_task, *view.next_tasks] == ids


HOSTILE_OPTIONS: list[dict[str, Any]] = [
    {"priority": 10},
    {"priority": -1},
    {"delay": -1.0},
    {"task_id": ""},
    {"task_id": "x" * 256},
    {"task_id": "with\nline"},
    {"convoy": ""},
    {"sequence": 1},
    {"convoy": "ana", "sequence": 0},
    {"convoy": "ana", "sequence": 2**53 + 1},
    {"end_of_sequence": True},
    {"reply_to": ""},
]


@pytest.mark.parametrize("options", HOSTILE_OPTIONS, ids=str)
async def test_every_refusal_of_python_is_the_same_over_http(options: dict[str, Any]) -> None:
    shop = ShopApp()
    async with shop.app:
        with pytest.raises(InvalidInput) as refused:
            await shop.app.submit(shop.fulfil(Order("lamp", 2)), **options)
    async with open_shop() as world:
        body = {**LAMP, **{{"task_id": "id"}.get(name, name): value for name, value in options.items()}}
        answer = await world.http.post("/v1/tasks", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == str(refused.value)


@pytest.mark.parametrize(
    ("workflow", "arguments"),
    [
        ("fulfil", '{"order": {"item": 5}}'),
        ("fulfil", "{}"),
        ("fulfil", '{"other": 1}'),
        ("fulfil", "[]"),
        ("charge", '{"order": {}}'),
        ("nothing", "{}"),
        ("step:fulfil", "{}"),
    ],
)
async def test_arguments_are_refused_in_the_words_of_the_command_line(workflow: str, arguments: str) -> None:
    from arriero.client.json_payloads import build_call

    shop = ShopApp()
    with pytest.raises(InvalidInput) as refused:
        build_call(shop.app.session, workflow, arguments, "arguments", ("arriero", "submit", "shop:app"))
    said, _, _ = str(refused.value).partition("), like arriero submit ")
    async with open_shop() as world:
        body = f'{{"workflow": "{workflow}", "arguments": {arguments}}}'
        answer = await world.http.post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        shown, _, line = answer.json()["detail"].partition("), like ")
        assert shown == said
        if line:  # the body of a request, to copy
            assert (await world.http.post("/v1/tasks", json=json.loads(line))).status_code == 201
        assert answer.json()["code"] in ("unknown-workflow", "invalid-arguments")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "null",
        "[]",
        '"text"',
        '{"workflow": "fulfil", "extra": 1}',
        '{"workflow": "fulfil", "priority": "5"}',
        '{"workflow": "fulfil", "delay": NaN}',
        '{"workflow": "fulfil", "delay": 1e999}',
        '{"workflow": "fulfil", "id": 5}',
        '{"workflow": "fulfil", "id": "a", "id": "b"}',
        '{"workflow": "fulfil", "arguments": {"order": {"item": "a", "item": "b"}}}',
        '{"workflow": "fulfil", "id": "\\ud800"}',
        '{"workflow": "fulfil", "arguments": {"order": {"item": "\\ud800"}}}',
        '{"workflow": "fulfil", "arguments": ' + "[" * 200 + "]" * 200 + "}",
        '{"workflow": ' + "[" * 100_000,
        b'{"workflow": "\xff"}',
    ],
    ids=range(17),
)
async def test_a_body_that_is_not_what_it_should_be_is_refused_and_nothing_is_kept(body: str | bytes) -> None:
    async with open_shop() as world:
        answer = await world.http.post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-json")
        assert await world.app.tasks().count() == 0


async def test_a_number_in_a_convoy_is_given_once() -> None:
    async with open_shop() as world:
        first = {**LAMP, "id": "a", "convoy": "ana", "sequence": 1}
        assert (await world.http.post("/v1/tasks", json=first)).status_code == 201
        same = await world.http.post("/v1/tasks", json={**first, "id": "b"})
        assert (same.status_code, same.json()["id"]) == (200, "a")
        other = {**first, "id": "c", "arguments": {"order": {"item": "sofa"}}}
        refused = await world.http.post("/v1/tasks", json=other)
        assert (refused.status_code, refused.json()["code"]) == (409, "sequence-used")
        ordered = await world.http.post("/v1/tasks", json={**LAMP, "convoy": "ana"})
        assert (ordered.status_code, ordered.json()["code"]) == (409, "convoy-refuses")


async def test_callers_that_submit_at_once_share_commits_and_each_gets_its_answer() -> None:
    async with open_shop() as world:
        bodies = [{**LAMP, "id": f"task-{number % 20}"} for number in range(60)]
        answers = await asyncio.gather(*(world.http.post("/v1/tasks", json=body) for body in bodies))
        assert sorted(answer.status_code for answer in answers) == [200] * 40 + [201] * 20
        assert await world.app.tasks().count() == 20


async def test_a_task_belongs_to_the_trace_of_the_request_that_submits_it() -> None:
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}
    async with open_shop() as world:
        body = {"workflow": "inspect_item", "arguments": {"item": "lamp"}, "id": "traced"}
        await world.http.post("/v1/tasks", json=body, headers=trace)
        await world.http.post("/v1/tasks:submit", json={"tasks": [{**body, "id": "batched"}]}, headers=trace)
        await world.http.post("/v1/tasks", json={**body, "id": "mangled"}, headers={"traceparent": "00-zz"})
        kept = []
        for task_id in ("traced", "batched", "mangled"):
            found = await world.app.session.store.find(task_id)
            assert found is not None
            kept.append(found.task.trace_context)
        assert kept == [f"{trace['traceparent']} vendor=1"] * 2 + [None]


async def test_whoever_waits_for_an_end_is_answered_when_the_server_ends() -> None:
    async with open_shop() as world:
        asked = asyncio.create_task(world.http.post("/v1/tasks", json=LAMP, headers={"Prefer": "wait=60"}))
        while not await world.app.tasks().count():
            await asyncio.sleep(0)
        world.server.shutdown.begin()
        async with asyncio.timeout(60):
            answer = await asked
        assert (answer.status_code, answer.json()["created"]) == (202, True)
