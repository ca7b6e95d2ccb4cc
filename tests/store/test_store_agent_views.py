"""Agents as people see them, in every store."""

from store_world import World, step

from arriero.client.agents import choose_app, load_agent_views


async def test_an_agent_that_no_process_hosts_is_that_of_the_apps_whose_requests_wait(world: World) -> None:
    assert await load_agent_views(world.store) == []
    await world.submit("order-1", app="shop")
    (loaded,) = await world.claim(app="shop")
    await world.opened(loaded.task, step())
    (view,) = await load_agent_views(world.store)
    assert (view.agent, view.app, view.waiting, view.processes) == ("payments", "shop", 1, ())
    assert choose_app([view], "payments", None) == "shop"
