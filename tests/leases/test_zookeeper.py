"""Leases in ZooKeeper: the queue, the session, names and credentials. What every provider does is in the contract suite."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress

import pytest
from lease_contenders import contending
from lease_zookeeper import ZooKeeperProvider, shared_zookeeper

from arriero import InvalidInput, LeaseRefused, LeaseUnavailable
from arriero.leases import LeaseConnection, LeaseSignal, open_lease
from arriero.leases.zookeeper import ZooKeeperLease
from lab.lease_servers import Unavailable
from lab.lease_servers.process import ServerProcess
from lab.lease_servers.zookeeper import start_zookeeper

DURATION = 20.0
SECONDS_MAX = 60.0  # that a change may take to be seen; a wait, not a measure


@pytest.fixture
def provider() -> ZooKeeperProvider:
    try:
        return ZooKeeperProvider(shared_zookeeper())
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server that the test may kill."""
    try:
        started = start_zookeeper()
    except Unavailable as error:
        pytest.skip(str(error))
    yield started
    started.remove()


@pytest.fixture
def lease(provider: ZooKeeperProvider) -> ZooKeeperLease:
    return provider.lease("nightly")


@pytest.fixture
async def connections(lease: ZooKeeperLease) -> AsyncIterator[list[LeaseConnection]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lease.connected()) for _ in range(10)]


def list_nodes(provider: ZooKeeperProvider, lease: ZooKeeperLease) -> list[str]:
    with provider.client() as client:
        return sorted(client.get_children(f"{lease.base}/{lease.name}"), key=lambda node: node[-10:])


async def wait_for_wake(connection: LeaseConnection) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await connection.wait_for_change(2 * SECONDS_MAX)


async def test_of_ten_contenders_each_hand_over_wakes_one(connections: list[LeaseConnection]) -> None:
    grants = [await one.acquire(f"holder-{number}", DURATION) for number, one in enumerate(connections)]
    grant = grants[0]
    assert grant is not None
    assert grants[1:] == [None] * 9
    for one in connections:
        await one.wait_for_change(0)  # its connection has come up
    waiting = {number: asyncio.ensure_future(wait_for_wake(one)) for number, one in enumerate(connections) if number}
    for number in range(1, 10):
        await connections[number - 1].release(grant)
        await waiting.pop(number)
        grant = await connections[number].acquire(f"holder-{number}", DURATION)
        assert grant is not None
        assert not any(waits.done() for waits in waiting.values())


async def test_a_look_of_one_who_waits_asks_nothing_while_the_node_before_its_own_is_there(
    provider: ZooKeeperProvider, connections: list[LeaseConnection]
) -> None:
    left, right, *_ = connections
    assert await left.acquire("ana", DURATION) is not None
    assert await right.acquire("ben", DURATION) is None
    before = provider.count_requests()
    for _ in range(200):
        assert await right.acquire("ben", DURATION) is None
    assert provider.count_requests() - before < 50  # pings, and our questions


async def test_who_stood_behind_one_that_left_the_queue_waits_for_the_next(
    provider: ZooKeeperProvider, lease: ZooKeeperLease, connections: list[LeaseConnection]
) -> None:
    left, middle, right, *_ = connections
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    assert await middle.acquire("ben", DURATION) is None
    assert await right.acquire("eva", DURATION) is None
    await right.wait_for_change(0)
    await middle.withdraw("ben")
    assert len(list_nodes(provider, lease)) == 2
    await wait_for_wake(right)
    assert await right.acquire("eva", DURATION) is None
    await left.release(grant)
    await wait_for_wake(right)
    assert await right.acquire("eva", DURATION) is not None


async def test_a_node_that_an_earlier_connection_left_behind_bars_nobody(
    provider: ZooKeeperProvider, lease: ZooKeeperLease, connections: list[LeaseConnection]
) -> None:
    left, right, *_ = connections
    assert await left.acquire("ana", DURATION) is not None  # it is not closed, as if the network was cut
    (left_behind,) = list_nodes(provider, lease)
    grant = await right.acquire("ana", DURATION)
    assert grant is not None
    assert list_nodes(provider, lease) == [grant.token]
    assert grant.token != left_behind


async def test_a_leader_hears_at_once_that_a_person_deleted_its_node(
    provider: ZooKeeperProvider, lease: ZooKeeperLease, connections: list[LeaseConnection]
) -> None:
    grant = await connections[0].acquire("ana", DURATION)
    assert grant is not None
    signal = asyncio.ensure_future(connections[0].wait_for_signal(grant))
    with provider.client() as client:
        client.delete(f"{lease.base}/{lease.name}/{grant.token}")
    async with asyncio.timeout(SECONDS_MAX):
        assert await signal is LeaseSignal.LOST
    assert not await connections[0].renew(grant, DURATION)
    again = await connections[0].acquire("ana", DURATION)
    assert again is not None
    assert again.term > grant.term


async def test_a_leader_whose_server_restarts_in_its_trust_window_is_suspended_and_goes_on_in_its_term(
    server: ServerProcess,
) -> None:
    lease = ZooKeeperProvider(server).lease("nightly")
    # The longest session that the server gives: on a busy machine its Java needs more than 20 s to start again.
    async with asyncio.timeout(2 * SECONDS_MAX), contending(lease, 60.0) as contender:
        leadership = await contender.elected.get()
        server.kill()
        while leadership.is_held():
            await asyncio.sleep(0.01)
        assert leadership.why_lost == ""
        assert server.start(), server.read_log()
        while not leadership.is_held():
            assert leadership.why_lost == ""
            await asyncio.sleep(0.01)
        assert contender.lost.empty()
        assert contender.elected.empty()


async def test_a_silent_server_is_noticed_though_renewals_go_on(server: ServerProcess) -> None:
    async with ZooKeeperProvider(server).lease("nightly").connected() as connection:
        grant = await connection.acquire("ana", 4.0)
        assert grant is not None
        signal = asyncio.ensure_future(connection.wait_for_signal(grant))
        server.freeze()
        async with asyncio.timeout(SECONDS_MAX):
            while not signal.done():
                with suppress(LeaseUnavailable, TimeoutError):
                    async with asyncio.timeout(0.3):
                        await connection.renew(grant, 4.0)
                await asyncio.sleep(0.05)
        assert signal.result() is LeaseSignal.SUSPENDED
        server.thaw()


async def test_a_duration_that_the_server_does_not_give_is_refused(lease: ZooKeeperLease) -> None:
    async with lease.connected() as connection:
        with pytest.raises(LeaseRefused, match="gives a session of 60 s where 90 s were asked for"):
            await connection.acquire("ana", 90.0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x1f", "\x7f", "\ud800", "\ue000", "\uffff", "\U0001f600"])
def test_a_name_that_is_no_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(LeaseRefused, match="name of a lease"):
        ZooKeeperLease("localhost", name)


async def test_a_name_may_hold_what_the_server_takes(provider: ZooKeeperProvider) -> None:
    for name in ("a b", "zürich", "名前", "a:b", "...", "%2F"):
        async with provider.lease(name).connected() as connection:
            assert await connection.acquire("ana", DURATION) is not None


async def test_who_has_other_credentials_is_refused_and_no_text_holds_a_password(
    provider: ZooKeeperProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "arriero.zookeeper")
    caplog.set_level(logging.DEBUG)

    def build_lease(password: str) -> ZooKeeperLease:
        return ZooKeeperLease(provider.hosts, "nightly", base=provider.base, user="ana", password=password)

    async with build_lease("secret-1").connected() as connection:
        assert await connection.acquire("ana", DURATION) is not None
    for other in (build_lease("secret-2"), provider.lease("nightly")):
        async with other.connected() as connection:
            with pytest.raises(LeaseRefused, match="NoAuthError") as refused:
                await connection.acquire("ben", DURATION)
        assert "secret" not in f"{refused.value} {refused.value!r} {other!r} {vars(refused.value)}"
    assert "secret" not in caplog.text


@pytest.mark.parametrize("hosts", ["", "ana:secret@host:2181", "host:secret", "host/secret", "http://host"])
def test_hosts_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(InvalidInput, match="hosts of ZooKeeper") as refused:
        ZooKeeperLease(hosts, "nightly")
    assert "@" not in hosts or "secret" not in str(refused.value)


@pytest.mark.parametrize("base", ["leases", "/a//b", "/a/../b", "/a\x00"])
def test_a_base_that_is_no_path_is_refused(base: str) -> None:
    with pytest.raises(InvalidInput, match="path of leases"):
        ZooKeeperLease("localhost", "nightly", base=base)


def test_a_url_names_hosts_and_base() -> None:
    lease = open_lease("zookeeper://one:2181,[::1]:2182/team/leases/", "nightly")
    assert isinstance(lease, ZooKeeperLease)
    assert (lease.hosts, lease.base, lease.name) == ("one:2181,[::1]:2182", "/team/leases", "nightly")
    lease = open_lease("zookeeper://one", "nightly")
    assert isinstance(lease, ZooKeeperLease)
    assert (lease.hosts, lease.base) == ("one", "/arriero/leases")


async def test_a_url_takes_its_credentials_from_the_environment(
    provider: ZooKeeperProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_ZOOKEEPER_USER", "ana")
    monkeypatch.setenv("ARRIERO_ZOOKEEPER_PASSWORD", "secret")
    async with open_lease(f"zookeeper://{provider.hosts}{provider.base}", "nightly").connected() as connection:
        assert await connection.acquire("ana", DURATION) is not None
    async with provider.lease("nightly").connected() as connection:
        with pytest.raises(LeaseRefused):
            await connection.acquire("ben", DURATION)
