"""What a process says of itself may change: other processes read it at their next renewal."""

from store_world import World


async def test_a_process_may_say_something_else_of_itself_until_it_is_retired(world: World) -> None:
    process_no = await world.process("p1")
    await world.store.describe(process_no, '{"app":"shop"}')
    _, (found,) = await world.store.known_processes()
    assert found.about == '{"app":"shop"}'
    renewal = await world.store.renew(await world.process("p2"), 3.0)
    assert [other.about for other in renewal.others] == ['{"app":"shop"}']
    await world.lose(process_no)
    await world.store.describe(process_no, '{"app":"too late"}')
    assert "too late" not in str(await world.store.known_processes())
