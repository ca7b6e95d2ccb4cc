"""Forks over HTTP: the answer, the preview, the refusals, and the scopes that they need."""

from forked_shop import Shop, approved
from server_world import open_server

from arriero import TaskHeld


async def test_a_task_is_forked_previewed_and_refused_over_http() -> None:
    shop = Shop("memory://")
    shop.seconds = 0.01
    async with open_server(shop.app) as world, shop.app.running():
        task = await shop.app.submit(shop.fulfil("1"), task_id="first")
        await task.send(approved("yes"))
        try:
            await task.result()
        except TaskHeld:
            shop.is_empty = False
        path, body = "/v1/tasks/first:fork", {"from_step": "reserve", "id": "second", "reason": "the shelf was filled"}
        tried = await world.http.post(path, json={**body, "dry_run": True})
        assert (tried.status_code, tried.json()["outcome"], tried.json()["again"]) == (200, "would_be_done", [])
        assert (await world.http.get("/v1/tasks/second")).status_code == 404
        done = (await world.http.post(path, json=body)).json()
        assert (done["id"], done["created"], done["copied"]) == (
            "second",
            True,
            ["charge", "signal:approved", "look", "pack", "sleep"],
        )
        assert await shop.app.task("second").result() == "receipt-1 yes closed box"
        assert (await world.http.post(path, json=body)).json()["created"] is False
        shown = (await world.http.get("/v1/tasks/second")).json()
        assert (shown["forked_from"], shown["forked_step"]) == ("first", "reserve")
        assert (shown["steps"][0]["copied_from"], shown["steps"][0]["copied_step"]) == ("first", 1)
        for given, status, code in (
            ({"from_step": "ship"}, 422, "invalid-request"),
            ({"from_step": "charge", "id": "second"}, 409, "task-exists"),
            ({"step": "charge"}, 400, "invalid-json"),
            ({"from_step": "charge", "id": "first"}, 422, "invalid-request"),
        ):
            refused = await world.http.post(path, json=given)
            assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
        assert (await world.http.post("/v1/tasks/nothing:fork", json=body)).status_code == 404
        await task.compensate(by="ana", reason="r")
        try:
            await task.result()
        except Exception:
            refused = await world.http.post(path, json={"from_step": "reserve"})
        assert (refused.status_code, refused.json()["code"]) == (409, "verb-refused")
