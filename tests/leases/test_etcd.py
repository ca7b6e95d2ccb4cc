"""Leases in etcd: its own leases, its leader, endpoints and URLs. What every provider does is in the contract suite."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
import msgspec
import pytest
from lease_etcd import EtcdProvider, shared_etcd

from arriero import InvalidInput, LeaseRefused, LeaseUnavailable
from arriero.leases import LeaseSignal, open_lease
from arriero.leases.etcd import EtcdConnection, EtcdLease
from arriero.leases.etcd_gateway import EtcdGateway, EtcdLifetime, EtcdStreamed, read_answer
from lab.lease_servers import Unavailable
from lab.lease_servers.etcd import start_etcd

DURATION = 20.0
SECONDS_MAX = 60.0  # that a change may take to be seen; a wait, not a measure
T = TypeVar("T")


@pytest.fixture
def provider() -> EtcdProvider:
    try:
        return EtcdProvider(shared_etcd())
    except Unavailable as error:
        pytest.skip(str(error))


class ChangingGateway(EtcdGateway):
    """Changes answers on their way."""

    def __init__(self, url: str, change: Callable[[str, Any], Any]) -> None:
        super().__init__([url], ("", ""), True)
        self._change = change

    async def call(self, path: str, body: dict[str, Any], answer: type[T], seconds: float) -> T:
        changed: T = self._change(path, await super().call(path, body, answer, seconds))
        return changed


def list_leases(provider: EtcdProvider) -> set[str]:
    return {one["ID"] for one in provider.ask("lease/leases", {}).get("leases", [])}


async def test_contenders_that_lose_leave_no_lease_of_etcd_behind(provider: EtcdProvider) -> None:
    before = list_leases(provider)
    lease = provider.lease("nightly")
    connections = [await lease.connect() for _ in range(5)]
    asked = (one.acquire(f"holder-{number}", DURATION) for number, one in enumerate(connections))
    (grant,) = [grant for grant in await asyncio.gather(*asked) if grant is not None]
    assert list_leases(provider) - before == {grant.token}
    await connections[0].release(grant)
    assert list_leases(provider) - before == set()
    for one in connections:
        await one.close()


async def test_a_renewal_that_a_former_leader_of_etcd_may_have_answered_is_not_trusted(provider: EtcdProvider) -> None:
    def change(path: str, answer: Any) -> Any:
        if isinstance(answer, EtcdStreamed):
            answer.result.header.raft_term -= 1
        return answer

    connection = EtcdConnection("nightly", provider.prefix, ChangingGateway(provider.url, change))
    grant = await connection.acquire("ana", DURATION)
    assert grant is not None
    with pytest.raises(LeaseUnavailable, match="elects leaders"):
        await connection.renew(grant, DURATION)
    await connection.close()


async def test_a_duration_that_etcd_does_not_give_is_refused_and_leaves_no_lease(provider: EtcdProvider) -> None:
    def change(path: str, answer: Any) -> Any:
        if path == "lease/grant" and isinstance(answer, EtcdLifetime):
            answer.ttl = 60
        return answer

    before = list_leases(provider)
    connection = EtcdConnection("nightly", provider.prefix, ChangingGateway(provider.url, change))
    with pytest.raises(LeaseRefused, match="no lease of 20 s, but of 60 s"):
        await connection.acquire("ana", DURATION)
    assert list_leases(provider) - before == set()
    await connection.close()


async def test_who_leaves_after_a_lost_answer_leaves_no_key_behind(provider: EtcdProvider) -> None:
    def change(path: str, answer: Any) -> Any:
        if path == "kv/txn":
            raise LeaseUnavailable("lost")
        return answer

    connection = EtcdConnection("nightly", provider.prefix, ChangingGateway(provider.url, change))
    with pytest.raises(LeaseUnavailable):
        await connection.acquire("ana", DURATION)
    assert (await provider.lease("nightly").inspect()).holder == "ana"
    await connection.withdraw("ana")
    assert (await provider.lease("nightly").inspect()).holder == ""
    await connection.close()


async def test_a_leader_hears_at_once_that_a_person_deleted_its_key(provider: EtcdProvider) -> None:
    async with asyncio.timeout(SECONDS_MAX), provider.lease("nightly").connected() as connection:
        grant = await connection.acquire("ana", DURATION)
        assert grant is not None
        signal = asyncio.ensure_future(connection.wait_for_signal(grant))
        provider.ask("kv/deleterange", {"key": f"{provider.prefix}/nightly/holder".encode()})
        assert await signal is LeaseSignal.LOST
        assert not await connection.renew(grant, DURATION)


async def test_a_lease_that_was_broken_stays_taken_until_it_lapses(provider: EtcdProvider) -> None:
    lease = provider.lease("nightly")
    async with lease.connected() as left, lease.connected() as right:
        grant = await left.acquire("ana", DURATION)
        assert grant is not None
        view = await right.break_lease("ops", "it hangs")
        assert (view.holder, view.term, view.broken_by) == ("ana", grant.term, "ops")
        assert not await left.renew(grant, DURATION)
        assert await right.acquire("ben", DURATION) is None
        await provider.lapse(lease)
        second = await right.acquire("ben", DURATION)
        assert second is not None
        assert (await right.inspect()).broken_by == ""


async def test_a_duration_is_rounded_up_to_whole_seconds(provider: EtcdProvider) -> None:
    async with provider.lease("nightly").connected() as connection:
        assert await connection.acquire("ana", 12.5) is not None
        assert (await connection.inspect()).duration == 13


async def test_the_next_endpoint_is_asked_when_one_refuses_or_is_silent(provider: EtcdProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and answers nothing
        endpoints = ["http://127.0.0.1:1", f"http://127.0.0.1:{silent.getsockname()[1]}", provider.url]
        async with EtcdLease(endpoints, "nightly", prefix=provider.prefix).connected() as connection:
            assert await connection.acquire("ana", DURATION) is not None


def test_a_server_that_is_no_gateway_of_etcd_is_refused() -> None:
    with pytest.raises(LeaseRefused, match="no JSON gateway"):
        read_answer(httpx2.Response(404, content=b"Not Found"), EtcdLifetime, "http://host")
    with pytest.raises(LeaseUnavailable, match="status 502"):
        read_answer(httpx2.Response(502, content=b"<html>"), EtcdLifetime, "http://host")


def test_an_error_in_a_stream_is_understood() -> None:
    content = msgspec.json.encode({"error": {"grpc_code": 14, "message": "etcdserver: no leader"}})
    with pytest.raises(LeaseUnavailable, match="no leader"):
        read_answer(httpx2.Response(200, content=content), EtcdStreamed, "http://host")


@pytest.mark.parametrize(
    "url", ["", "host:2379", "ftp://host", "http://ana:secret@host", "http://host/path", "http://h:x"]
)
def test_an_endpoint_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="endpoint of etcd") as refused:
        EtcdLease(url, "nightly")
    assert "secret" not in str(refused.value)


def test_a_url_names_endpoints_and_prefix() -> None:
    lease = open_lease("etcd+https://one,[::1]:2380/team/", "nightly")
    assert isinstance(lease, EtcdLease)
    assert (lease.endpoints, lease.prefix) == (["https://one:2379", "https://[::1]:2380"], "/team")
    lease = open_lease("etcd+http://one", "nightly")
    assert isinstance(lease, EtcdLease)
    assert lease.prefix == "/arriero/leases"


async def test_a_login_is_refused_or_renewed_and_no_text_holds_a_password() -> None:
    try:
        server = start_etcd()
    except Unavailable as error:
        pytest.skip(str(error))
    provider = EtcdProvider(server)
    provider.ask("auth/user/add", {"name": "root", "password": "secret-1"})
    provider.ask("auth/role/add", {"name": "root"})
    provider.ask("auth/user/grant", {"user": "root", "role": "root"})
    provider.ask("auth/enable", {})

    def build_lease(password: str) -> EtcdLease:
        return EtcdLease(provider.url, "nightly", prefix=provider.prefix, user="root", password=password)

    for wrong in (build_lease("secret-2"), provider.lease("nightly")):
        with pytest.raises(LeaseRefused) as refused:
            await wrong.inspect()
        assert "secret" not in f"{refused.value} {wrong!r}"
    async with build_lease("secret-1").connected() as connection:
        grant = await connection.acquire("ana", DURATION)
        assert grant is not None
        server.kill()
        assert server.start(), server.read_log()  # it knows no token any more
        assert await connection.renew(grant, DURATION)
    server.remove()
