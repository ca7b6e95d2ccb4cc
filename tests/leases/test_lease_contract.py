"""What every provider of leases must do. Each test runs against a real server, where the provider has one."""

import asyncio
from contextlib import aclosing

import msgspec
import pytest
from lease_providers import LeaseProvider

from arriero import InvalidInput, LeaseRefused, LeaseUnavailable
from arriero.leases import Lease, LeaseConnection, LeaseGrant

CHANGE_SECONDS_MAX = 60.0  # that a change may take to be seen; a wait, not a measure


async def acquire(connection: LeaseConnection, holder: str, provider: LeaseProvider) -> LeaseGrant:
    """Take a lease that is free, or becomes so soon."""
    async with asyncio.timeout(CHANGE_SECONDS_MAX):
        while (grant := await connection.acquire(holder, provider.duration)) is None:
            await connection.wait_for_change(0.05)
    return grant


async def test_a_lease_that_nobody_ever_held_has_no_holder_and_no_term(lease: Lease) -> None:
    view = await lease.inspect()
    assert (view.name, view.provider, view.holder, view.term) == (lease.name, lease.provider, "", 0)


async def test_one_contender_holds_the_lease_and_the_others_see_who(
    provider: LeaseProvider, left: LeaseConnection, right: LeaseConnection
) -> None:
    grant = await acquire(left, "ana", provider)
    assert grant.holder == "ana"
    assert grant.term >= 1
    assert await right.acquire("ben", provider.duration) is None
    await right.withdraw("ben")
    for connection in (left, right):
        view = await connection.inspect()
        assert (view.holder, view.term) == ("ana", grant.term)


async def test_of_many_that_ask_at_once_one_gets_it(provider: LeaseProvider, lease: Lease) -> None:
    connections = [await lease.connect() for _ in range(5)]
    try:
        asked = [one.acquire(f"contender-{number}", provider.duration) for number, one in enumerate(connections)]
        granted = [grant for grant in await asyncio.gather(*asked) if grant is not None]
        assert len(granted) == 1
        assert (await lease.inspect()).holder == granted[0].holder
    finally:
        for connection in connections:
            await connection.close()


async def test_a_lease_that_is_given_back_is_another_s_under_a_larger_term(
    provider: LeaseProvider, left: LeaseConnection, right: LeaseConnection
) -> None:
    first = await acquire(left, "ana", provider)
    await left.release(first)
    assert (await left.inspect()).holder == ""
    second = await acquire(right, "ben", provider)
    assert second.term > first.term
    await left.release(first)  # an old release changes nothing
    assert (await right.inspect()).holder == "ben"
    assert await right.renew(second, provider.duration)


async def test_only_the_holder_renews_and_only_under_its_term(
    provider: LeaseProvider, left: LeaseConnection, right: LeaseConnection
) -> None:
    first = await acquire(left, "ana", provider)
    assert await left.renew(first, provider.duration)
    await left.release(first)
    assert not await left.renew(first, provider.duration)
    second = await acquire(right, "ben", provider)
    assert not await left.renew(first, provider.duration)
    assert not await left.renew(msgspec.structs.replace(first, term=second.term), provider.duration)
    assert (await right.inspect()).holder == "ben"


async def test_a_lease_that_lapsed_is_not_renewed_and_the_next_term_is_larger(
    provider: LeaseProvider, lease: Lease, left: LeaseConnection, right: LeaseConnection
) -> None:
    first = await acquire(left, "ana", provider)
    await provider.lapse(lease)
    second = await acquire(right, "ben", provider)
    assert second.term > first.term
    assert not await left.renew(first, provider.duration)
    await left.release(first)
    assert (await right.inspect()).holder == "ben"


async def test_terms_only_grow_also_when_nobody_held_the_lease_between(provider: LeaseProvider, lease: Lease) -> None:
    terms = []
    for number in range(6):
        async with lease.connected() as connection:  # a new connection each time, as after a restart
            grant = await acquire(connection, f"contender-{number}", provider)
            terms.append(grant.term)
            await connection.release(grant)
    assert terms == sorted(set(terms))


async def test_a_broken_lease_is_not_renewed_and_becomes_another_s(
    provider: LeaseProvider, lease: Lease, left: LeaseConnection, right: LeaseConnection
) -> None:
    first = await acquire(left, "ana", provider)
    await right.break_lease("ops", "it hangs", at_once=True)
    assert not await left.renew(first, provider.duration)
    second = await acquire(right, "ben", provider)
    assert second.term > first.term
    assert await right.renew(second, provider.duration)


async def test_a_lease_that_nobody_holds_cannot_be_broken(provider: LeaseProvider, left: LeaseConnection) -> None:
    with pytest.raises(InvalidInput, match="nobody holds it"):
        await left.break_lease("ops", "why", at_once=True)
    grant = await acquire(left, "ana", provider)
    await left.release(grant)
    with pytest.raises(InvalidInput, match="nobody holds it"):
        await left.break_lease("ops", "why", at_once=True)


async def test_who_leaves_the_queue_bars_nobody(
    provider: LeaseProvider, left: LeaseConnection, right: LeaseConnection, lease: Lease
) -> None:
    first = await acquire(left, "ana", provider)
    assert await right.acquire("ben", provider.duration) is None
    await right.withdraw("ben")
    await left.release(first)
    async with lease.connected() as third:
        assert (await acquire(third, "eva", provider)).holder == "eva"


async def test_who_watches_sees_each_holder(provider: LeaseProvider, lease: Lease, left: LeaseConnection) -> None:
    async with asyncio.timeout(CHANGE_SECONDS_MAX), aclosing(lease.watch()) as views:
        assert (await anext(views)).holder == ""
        first = await acquire(left, "ana", provider)
        assert (await anext(views)).holder == "ana"
        await left.release(first)
        assert (await anext(views)).holder == ""


async def test_leases_of_other_names_do_not_meet(provider: LeaseProvider, lease: Lease, left: LeaseConnection) -> None:
    await acquire(left, "ana", provider)
    async with provider.lease(f"{lease.name}-other").connected() as other:
        assert (await acquire(other, "ben", provider)).holder == "ben"


async def test_a_provider_that_cannot_be_reached_is_named_as_such(provider: LeaseProvider) -> None:
    async def ask() -> None:
        async with provider.unreachable("anything").connected() as connection:
            await connection.acquire("ana", provider.duration)

    with pytest.raises(LeaseUnavailable):
        await ask()


async def test_a_duration_that_the_provider_does_not_take_is_refused_with_its_range(lease: Lease) -> None:
    lease.check_duration(lease.durations.shortest)
    for wrong in (lease.durations.shortest / 2, lease.durations.longest * 2, float("nan")):
        with pytest.raises(InvalidInput, match=f"{lease.durations.shortest:g} to"):
            lease.check_duration(wrong)


async def test_a_name_that_the_provider_does_not_take_is_refused(provider: LeaseProvider) -> None:
    async def ask() -> None:
        async with provider.lease(provider.bad_name).connected() as connection:
            await connection.acquire("ana", provider.duration)

    with pytest.raises(LeaseRefused):
        await ask()
