"""One task as server-sent events: from how it stands to its end, with Last-Event-ID, and for whom."""

import asyncio
import json
from typing import Any

import httpx2
from runtime_world import within
from server_world import TOKENS, ServerWorld, open_server

import arriero
from arriero import Agent, App, Attempt, workflow
from arriero.server.calls import ShutdownSignal


def shop_of(go_on: asyncio.Event) -> tuple[App, Any]:
    shop = Agent("shop")

    @shop.step(complete_within=60)
    async def pack(attempt: Attempt) -> str:
        attempt.publish({"secret": 17})
        await go_on.wait()
        return "packed"

    @workflow
    async def deliver() -> str:
        arriero.publish("begun")
        return await pack()

    return App("shop", agents=[shop], workflows=[deliver], store="memory://"), deliver


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, their data decoded."""
    found = []
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.split("\n") if ": " in line and not line.startswith(":"))
        if "id" in fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


async def follow(world: ServerWorld, task_id: str, last: str = "", scope: str = "admin") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {TOKENS[scope]}"} | ({"Last-Event-ID": last} if last else {})
    return await world.http.get(f"/v1/tasks/{task_id}/changes", headers=headers)


async def test_a_task_is_followed_to_its_end_and_then_there_is_no_more() -> None:
    go_on = asyncio.Event()
    app, deliver = shop_of(go_on)
    async with open_server(app) as world, app.running():
        task = await app.submit(deliver(), task_id="1001")
        following = asyncio.create_task(follow(world, "1001"))
        async with asyncio.timeout(60):
            async for view in task.changes():
                if view.steps and view.steps[0].published:
                    break
        go_on.set()
        answer = await within(following)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer.text)
        assert [event["event"] for event in events] == ["changed"] * (len(events) - 1) + ["ended"]
        last = events[-1]
        assert (last["data"]["state"], last["data"]["published"], last["data"]["output"]) == (
            "processed",
            "begun",
            "packed",
        )
        assert last["data"]["steps"][0]["published"] == {"secret": 17}
        assert len({event["id"] for event in events}) == len(events)
        assert (await follow(world, "1001", last["id"])).status_code == 204  # EventSource connects no more
        again = events_of((await follow(world, "1001", events[0]["id"] + "0")).text)
        assert [event["event"] for event in again] == ["ended"]  # the latest state is not missed
        assert events_of((await follow(world, "1001", "nonsense")).text) == again


async def test_payloads_are_withheld_from_who_may_not_read_them() -> None:
    go_on = asyncio.Event()
    go_on.set()
    app, deliver = shop_of(go_on)
    async with open_server(app) as world, app.running():
        await within((await app.submit(deliver(), task_id="1001")).result())
        answer = await follow(world, "1001", scope="read")
        assert "17" not in answer.text.replace(answer.text.split("data: ")[0], "").split('"policy"')[0]
        (event,) = events_of(answer.text)
        assert event["data"]["payloads"] == "withheld"
        assert "published" not in event["data"]
        assert "published" not in event["data"]["steps"][0]
        assert event["data"]["published_at"] is not None
        assert (await follow(world, "1001", scope="submit")).status_code == 403


async def test_an_unknown_task_is_refused_and_a_purged_one_ends_the_stream() -> None:
    go_on = asyncio.Event()
    app, _ = shop_of(go_on)
    async with open_server(app) as world:
        assert (await follow(world, "nobody")).status_code == 404


async def test_a_server_that_ends_closes_the_stream() -> None:
    go_on = asyncio.Event()
    app, deliver = shop_of(go_on)
    async with open_server(app) as world, app:
        task = await app.submit(deliver(), task_id="1001", delay=3_600)
        following = asyncio.create_task(follow(world, "1001"))
        async with asyncio.timeout(60):
            while not app.session.changes._waiters:
                await asyncio.sleep(0.005)
        shutdown: ShutdownSignal = world.server.shutdown
        shutdown.begin()
        events = events_of((await within(following)).text)
        assert [event["event"] for event in events] == ["changed"]
        assert (await task.view()).state == "pending"
