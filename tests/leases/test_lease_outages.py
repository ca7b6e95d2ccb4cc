"""Leases at a server of their own: what becomes of a mutex when the server dies, freezes, or ends the lease by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from lease_contenders import contending
from lease_etcd import EtcdProvider, shared_etcd
from lease_relays import lossy_relay
from lease_zookeeper import ZooKeeperProvider, shared_zookeeper

from arriero import LeaseUnavailable
from arriero.leases import DistributedMutex, Leadership, Lease, LeaseConnection, LeaseGrant
from arriero.leases.etcd import EtcdLease
from arriero.leases.zookeeper import ZooKeeperLease
from lab.lease_servers import Unavailable
from lab.lease_servers.etcd import start_etcd
from lab.lease_servers.process import ServerProcess
from lab.lease_servers.zookeeper import start_zookeeper

SECONDS_MAX = 60.0  # that a change may take to be seen; a wait, not a measure
DURATION = 2.0  # of leases whose end is waited for
LONG = 20.0  # of others: a request has time enough, also on a busy machine
Provider = EtcdProvider | ZooKeeperProvider
KINDS: dict[
    str, tuple[Callable[[], ServerProcess], Callable[[], ServerProcess], Callable[[ServerProcess], Provider]]
] = {
    "etcd": (start_etcd, shared_etcd, EtcdProvider),
    "zookeeper": (start_zookeeper, shared_zookeeper, ZooKeeperProvider),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str) -> Iterator[ServerProcess]:
    """A server that the test may kill."""
    try:
        started = KINDS[kind][0]()
    except Unavailable as error:
        pytest.skip(str(error))
    yield started
    started.remove()


@pytest.fixture
def shared(kind: str) -> ServerProcess:
    """The worker's server, which the test leaves alone."""
    try:
        return KINDS[kind][1]()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def provider(kind: str, shared: ServerProcess) -> Provider:
    return KINDS[kind][2](shared)


@pytest.fixture
def lease(provider: Provider) -> Lease:
    return provider.lease("nightly")


@pytest.fixture
async def right(lease: Lease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


def own_lease(kind: str, server: ServerProcess) -> Lease:
    return KINDS[kind][2](server).lease("nightly")


async def acquire(connection: LeaseConnection, holder: str) -> LeaseGrant:
    """Take a lease that becomes free, as the keeper of a mutex does."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                if grant := await connection.acquire(holder, LONG):
                    return grant
                await connection.wait_for_change(0.1)
            except LeaseUnavailable:
                await asyncio.sleep(0.05)


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_true():
            await asyncio.sleep(0.01)


async def test_a_leader_whose_server_is_killed_stops_and_leads_again_when_it_is_back(
    kind: str, server: ServerProcess
) -> None:
    async with asyncio.timeout(SECONDS_MAX), contending(own_lease(kind, server), DURATION) as contender:
        first = await contender.elected.get()
        assert first.is_held()
        server.kill()
        await wait_until(lambda: not first.is_held())
        lost, why = await contender.lost.get()
        assert lost is first
        assert why == "no renewal was answered in time"
        assert server.start(), server.read_log()
        second = await contender.elected.get()
        assert second.term > first.term
        assert second.is_held()


async def test_a_leader_whose_server_froze_for_less_than_its_trust_window_goes_on_in_its_term(
    kind: str, server: ServerProcess
) -> None:
    duration = 6.0
    async with asyncio.timeout(SECONDS_MAX), contending(own_lease(kind, server), duration) as contender:
        leadership = await contender.elected.get()
        server.freeze()
        # A renewal leaves after 2/7 of the duration, so it went without an answer once less than half is left.
        await wait_until(lambda: leadership.seconds_left < 0.45 * duration)
        server.thaw()
        await wait_until(lambda: leadership.seconds_left > 0.5 * duration)
        assert leadership.is_held()
        assert contender.lost.empty()
        assert contender.elected.empty()


async def test_a_contender_that_starts_before_its_server_leads_once_that_is_up(
    kind: str, server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    async with asyncio.timeout(SECONDS_MAX), contending(own_lease(kind, server), DURATION) as contender:
        await wait_until(lambda: "the provider does not answer" in caplog.text)
        assert contender.elected.empty()
        assert server.start(), server.read_log()
        assert (await contender.elected.get()).is_held()


async def test_a_leader_whose_lease_the_server_ended_stops_and_leads_again(provider: Provider, lease: Lease) -> None:
    async with asyncio.timeout(SECONDS_MAX), contending(lease, LONG) as contender:
        first = await contender.elected.get()
        await provider.lapse(lease)
        assert (await contender.lost.get())[0] is first  # long before its next renewal is due
        assert not first.is_held()
        second = await contender.elected.get()
        assert second.term > first.term


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_leader_stops_at_once_when_a_person_breaks_its_lease(lease: Lease, *, at_once: bool) -> None:
    async with asyncio.timeout(SECONDS_MAX), contending(lease, LONG) as contender:
        first = await contender.elected.get()
        view = await lease.break_lease("ops", "it hangs", at_once=at_once)
        assert (view.term, view.broken_by, view.broken_reason) == (first.term, "ops", "it hangs")
        assert (await contender.lost.get())[0] is first
        assert not first.is_held()
    if at_once:
        async with lease.connected() as connection:
            second = await acquire(connection, "ben")
            view = await connection.inspect()
        assert second.term > first.term
        assert (view.term, view.broken_by, view.broken_reason) == (second.term, "", "")


async def test_who_waits_is_woken_when_the_lease_is_given_back(lease: Lease, right: LeaseConnection) -> None:
    async with asyncio.timeout(SECONDS_MAX), lease.connected() as left:
        grant = await acquire(left, "ana")
        released: list[asyncio.Future[None]] = []
        asyncio.get_running_loop().call_later(0.1, lambda: released.append(asyncio.ensure_future(left.release(grant))))
        while await right.acquire("ben", LONG) is None:
            await right.wait_for_change(2 * SECONDS_MAX)
        await released[0]


class GuardedCounter:
    """Takes writes of the latest term alone, as a table that keeps the largest term does."""

    def __init__(self) -> None:
        self.value = 0
        self.term = 0
        self.at_work = 0

    async def add_one(self, leadership: Leadership) -> None:
        """Read, let others run, write."""
        self.at_work += 1
        assert self.at_work == 1, "two leaders are at work"
        assert leadership.is_held()
        value = self.value
        for _ in range(5):
            await asyncio.sleep(0.005)
        assert leadership.term >= self.term, "a former leader writes"
        self.value, self.term = value + 1, leadership.term
        self.at_work -= 1


async def test_two_mutexes_are_never_at_work_at_once(lease: Lease) -> None:
    counter = GuardedCounter()
    mutexes = [DistributedMutex(lease, duration=DURATION) for _ in range(2)]
    terms: list[int] = []

    async def work(leadership: Leadership) -> None:
        await counter.add_one(leadership)
        terms.append(leadership.term)
        if len(terms) >= 8:
            for mutex in mutexes:
                mutex.stop()

    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(*(mutex.run(work) for mutex in mutexes))
    assert counter.value == len(terms)
    assert terms == sorted(set(terms))


MARKERS = {"etcd": [b"/v3/lease/grant", b"/v3/kv/txn"], "zookeeper": [b"ana", b'"holder":"ana"']}
CASES = [(kind, marker) for kind, markers in MARKERS.items() for marker in markers]


@pytest.mark.parametrize(("kind", "marker"), CASES, ids=[f"{kind}-{marker.decode()}" for kind, marker in CASES])
async def test_who_lost_the_answer_to_its_request_holds_the_lease_once_and_gives_it_back_whole(
    provider: Provider, shared: ServerProcess, marker: bytes
) -> None:
    direct = provider.lease("nightly")
    async with lossy_relay(shared.port) as relay:
        address = f"127.0.0.1:{relay.port}"
        through: Lease
        if isinstance(provider, EtcdProvider):
            through = EtcdLease(f"http://{address}", "nightly", prefix=provider.prefix)
        else:
            through = ZooKeeperLease(address, "nightly", base=provider.base)
        async with through.connected() as connection:
            await connection.inspect()
            relay.lose_answer_to(marker)
            grant = await acquire(connection, "ana")
            assert relay.lost == 1
            assert (grant.holder, grant.term) == ("ana", (await direct.inspect()).term)
            assert await connection.renew(grant, LONG)
            await connection.release(grant)
            async with direct.connected() as other:  # nothing of the first try bars anybody
                assert await other.acquire("ben", LONG) is not None
