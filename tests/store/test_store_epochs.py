"""After a restore from a backup: whoever spoke before is refused, and no number is given twice."""

from store_world import World, step, submission

from arriero.model.answers import Applied, Refusal, Submitted
from arriero.model.processes import compute_first_number
from arriero.store.contract import CALLBACK_SECRET, CAPABILITY_SECRET


async def test_what_a_process_of_an_earlier_epoch_sends_is_refused_and_changes_nothing(world: World) -> None:
    process_no = await world.store.register("one", 3.0)
    held = await world.held(process_no=process_no)
    before = await world.rows()
    assert await world.store.new_epoch("operator") == 2
    (answer,) = await world.store.apply([world.advance_command(held, opened=(step(),))])
    assert isinstance(answer, Refusal)
    assert answer.verdict == "old_epoch"
    assert await world.rows() == before


async def test_a_process_that_begins_again_speaks_in_the_new_epoch(world: World) -> None:
    await world.store.register("one", 3.0)
    await world.store.new_epoch("operator")
    again = await world.store.register("two", 3.0)
    held = await world.held(process_no=again)
    (answer,) = await world.store.apply([world.advance_command(held, opened=(step(),))])
    assert isinstance(answer, Applied)


async def test_a_new_epoch_retires_every_process(world: World) -> None:
    process_no = await world.store.register("one", 3.0)
    await world.store.new_epoch("operator")
    assert not (await world.store.renew(process_no, 3.0)).renewed
    assert (await world.store.known_processes())[1] == []


async def test_numbers_that_may_have_been_given_in_the_lost_time_are_not_given_again(world: World) -> None:
    old = await world.store.register("one", 3.0)
    await world.submit("order-1")
    for epoch in (2, 3):
        assert await world.store.new_epoch("operator") == epoch
        (answer,) = await world.store.submit([submission(f"order-{epoch}")])
        assert isinstance(answer, Submitted)
        assert answer.task_no >= compute_first_number(epoch)
        assert await world.store.register(f"of epoch {epoch}", 3.0) >= compute_first_number(epoch) > old


async def test_a_new_epoch_signs_with_another_secret(world: World) -> None:
    secret = await world.store.read_secret(CAPABILITY_SECRET)
    await world.store.new_epoch("operator")
    assert await world.store.read_secret(CAPABILITY_SECRET) not in (secret, b"")


async def test_a_new_epoch_keeps_the_secret_of_callbacks(world: World) -> None:
    """Services outside hold URLs of before. Nobody could send them others."""
    secret = await world.store.read_secret(CALLBACK_SECRET)
    await world.store.new_epoch("operator")
    assert await world.store.read_secret(CALLBACK_SECRET) == secret


async def test_who_never_registered_goes_on_submitting(world: World) -> None:
    await world.store.new_epoch("operator")
    (answer,) = await world.store.submit([submission("order-1")])
    assert isinstance(answer, Submitted)


async def test_a_new_epoch_frees_all_leases_and_grants_no_term_of_the_lost_time_again(world: World) -> None:
    store = world.store
    first = await store.acquire_lease("nightly", "ana", "ana", 60.0)
    for epoch in (2, 3):
        await store.new_epoch("operator")
        assert not await store.renew_lease("nightly", "ana", first.term, 60.0)
        known = await store.acquire_lease("nightly", "ben", "ben", 60.0)
        assert known.term == compute_first_number(epoch)
        # A lease whose row the backup did not have yet.
        unknown = await store.acquire_lease(f"younger-{epoch}", "ben", "ben", 60.0)
        assert unknown.term == compute_first_number(epoch)
