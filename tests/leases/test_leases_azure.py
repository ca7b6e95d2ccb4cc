"""Leases on Azure Blob beyond the contract: crashes while a term is written, credentials, breaks, servers that go."""

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceModifiedError, ServiceRequestError, ServiceResponseError
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from azure.storage.blob.aio import BlobClient, BlobLeaseClient
from lease_azure import AzureProvider
from lease_campaign import Campaign
from mutex_scenarios import let_two_contend, lose_and_return, running, wait_for_server
from raw_server import RawServer, raw_server

from arriero import InvalidInput, LeaseRefused, LeaseUnavailable
from arriero.leases import DistributedMutex, Leadership, LeaseConnection, azure, open_lease
from arriero.leases.azure import AzureBlobLease
from lab.lease_servers import Unavailable
from lab.lease_servers.azurite import ACCOUNT, KEY, Azurite, start_azurite

WRONG_KEY = "d3Jvbmcta2V5LXdyb25nLWtleQ=="
DURATION = 15.0


@pytest.fixture
def provider() -> AzureProvider:
    try:
        return AzureProvider(start_azurite())
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def own_server() -> Iterator[Azurite]:
    """An emulator that the test may stop."""
    try:
        server = Azurite()
    except Unavailable as error:
        pytest.skip(str(error))
    server.start()
    yield server
    server.close()


@pytest.fixture
def lease(provider: AzureProvider) -> AzureBlobLease:
    return provider.lease("orders/größe 1")


@pytest.fixture
async def left(lease: AzureBlobLease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


@pytest.fixture
async def right(lease: AzureBlobLease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


def fail_once(monkeypatch: pytest.MonkeyPatch, class_: type, name: str, *, after: bool) -> None:
    """Let a method of the SDK fail once: before its request leaves, or with its answer lost."""
    original: Callable[..., Any] = getattr(class_, name)

    async def fail(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(class_, name, original)
        if after:
            await original(*arguments, **options)
            raise ServiceResponseError("the answer is lost")
        raise ServiceRequestError("the request did not leave")

    monkeypatch.setattr(class_, name, fail)


# --- crashes between the lease and its term
@pytest.mark.parametrize("is_written", [False, True])
async def test_without_a_written_term_there_is_no_grant_and_the_same_contender_gets_the_next_term(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    fail_once(monkeypatch, BlobClient, "set_blob_metadata", after=is_written)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", DURATION)
    assert await right.acquire("ben", DURATION) is None
    grant = await left.acquire("ana", DURATION)  # the lease is hers already
    assert grant is not None
    assert grant.term == (2 if is_written else 1)
    assert await left.renew(grant, DURATION)


@pytest.mark.parametrize("is_written", [False, True])
async def test_the_term_after_a_contender_that_died_with_the_lease_is_larger_than_any_granted(
    lease: AzureBlobLease,
    left: LeaseConnection,
    right: LeaseConnection,
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
) -> None:
    first = await left.acquire("ana", None)
    assert first is not None
    await left.release(first)
    async with lease.connected() as dead:
        fail_once(monkeypatch, BlobClient, "set_blob_metadata", after=is_written)
        with pytest.raises(LeaseUnavailable):
            await dead.acquire("eva", None)
    assert await right.acquire("ben", DURATION) is None
    await right.break_lease("ops", "eva died", at_once=True)  # her lease has no end
    second = await right.acquire("ben", DURATION)
    assert second is not None
    assert second.term == first.term + (2 if is_written else 1)


async def test_a_contender_that_leaves_gives_back_a_lease_whose_answer_was_lost(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await left.acquire("ana", None)
    assert first is not None
    await left.release(first)
    fail_once(monkeypatch, BlobLeaseClient, "acquire", after=True)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", None)
    assert await right.acquire("ben", DURATION) is None
    await left.withdraw("ana")
    assert await right.acquire("ben", DURATION) is not None


async def test_a_term_that_comes_after_the_lease_is_another_s_is_not_written(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = BlobClient.set_blob_metadata

    async def come_late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(BlobClient, "set_blob_metadata", original)
        await right.break_lease("ops", "ana is slow", at_once=True)
        assert await right.acquire("ben", DURATION) is not None
        return await original(*arguments, **options)

    monkeypatch.setattr(BlobClient, "set_blob_metadata", come_late)
    assert await left.acquire("ana", DURATION) is None
    view = await left.inspect()
    assert (view.holder, view.term) == ("ben", 1)


async def test_a_late_write_of_the_same_contender_does_not_bring_an_earlier_term_back(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], Any]] = []
    original = BlobClient.set_blob_metadata

    async def keep_it(*arguments: Any, **options: Any) -> Any:
        late.append(lambda: original(*arguments, **options))
        monkeypatch.setattr(BlobClient, "set_blob_metadata", original)
        raise ServiceResponseError("it is still on its way")

    monkeypatch.setattr(BlobClient, "set_blob_metadata", keep_it)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", DURATION)
    fail_once(monkeypatch, BlobClient, "set_blob_metadata", after=True)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", DURATION)
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    assert grant.term == 2
    with pytest.raises(ResourceModifiedError):
        await late[0]()
    assert (await right.inspect()).term == 2


# --- breaks
async def test_a_break_at_once_tells_by_whom_and_why_until_the_next_grant(
    left: LeaseConnection, right: LeaseConnection
) -> None:
    grant = await left.acquire("ana", DURATION)
    broken = await right.break_lease("Jörg", "it hangs", at_once=True)
    assert grant is not None
    assert (broken.holder, broken.term, broken.broken_by, broken.broken_reason) == ("", grant.term, "Jörg", "it hangs")
    assert await right.acquire("ben", DURATION) is not None
    view = await right.inspect()
    assert (view.holder, view.broken_by, view.broken_reason) == ("ben", "", "")


@pytest.mark.parametrize("duration", [DURATION, None])
async def test_a_lease_that_is_broken_with_notice_stays_taken_and_is_not_renewed(
    left: LeaseConnection, right: LeaseConnection, duration: float | None
) -> None:
    grant = await left.acquire("ana", duration)
    assert grant is not None
    broken = await right.break_lease("ops", "it hangs")
    assert (broken.holder, broken.broken_by, broken.broken_reason) == ("ana", "ops", "it hangs")
    assert not await left.renew(grant, duration)
    assert await right.acquire("ben", DURATION) is None
    await right.break_lease("ops", "no time", at_once=True)  # it can be cut short
    assert await right.acquire("ben", DURATION) is not None


async def test_a_note_of_a_break_does_not_touch_the_term_of_the_next_holder(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left.acquire("ana", DURATION)
    original = BlobLeaseClient.break_lease

    async def break_and_lose_the_race(*arguments: Any, **options: Any) -> Any:
        answer = await original(*arguments, **options)
        assert await left.acquire("ben", DURATION) is not None
        return answer

    monkeypatch.setattr(BlobLeaseClient, "break_lease", break_and_lose_the_race)
    view = await right.break_lease("ops", "it hangs", at_once=True)
    assert (view.holder, view.term, view.broken_by) == ("ben", 2, "")


async def test_a_lease_without_an_end_is_held_until_it_is_given_back(
    left: LeaseConnection, right: LeaseConnection
) -> None:
    grant = await left.acquire("ana", None)
    assert grant is not None
    assert await left.renew(grant, None)
    view = await right.inspect()
    assert (view.holder, view.duration, view.seconds_left) == ("ana", None, None)
    assert view.since is not None
    await left.release(grant)
    assert (await right.inspect()).since is None


async def test_a_blob_that_somebody_deleted_is_a_lost_lease(
    provider: AzureProvider, lease: AzureBlobLease, left: LeaseConnection
) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    await left.break_lease("ops", "to delete it", at_once=True)
    url = f"{lease.url.removeprefix('azure+')}/orders/gr%C3%B6%C3%9Fe%201"
    async with BlobClient.from_blob_url(url, credential={"account_name": ACCOUNT, "account_key": KEY}) as blob:
        await blob.delete_blob()
    assert not await left.renew(grant, DURATION)
    await left.release(grant)


async def test_a_damaged_term_is_refused_rather_than_counted_from_the_start(
    lease: AzureBlobLease, left: LeaseConnection
) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    await left.release(grant)
    url = f"{lease.url}/orders/gr%C3%B6%C3%9Fe%201"
    async with BlobClient.from_blob_url(url, credential={"account_name": ACCOUNT, "account_key": KEY}) as blob:
        await blob.set_blob_metadata({"arriero_term": "many"})
    with pytest.raises(LeaseRefused, match="one above every term"):
        await left.acquire("ana", DURATION)


# --- credentials
@pytest.mark.parametrize("credential", [WRONG_KEY, "sv=2025-01-05&ss=b&srt=co&sp=rwc&se=2099-01-01&sig=d3Jvbmctc2ln"])
async def test_wrong_credentials_are_refused_with_what_to_do_and_shown_nowhere(
    lease: AzureBlobLease, credential: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = AzureBlobLease(lease.url, "orders", credential=credential)
    with pytest.raises(LeaseRefused, match="check that the credentials") as raised:
        async with wrong.connected() as connection:
            await connection.acquire("ana", DURATION)
    shown = f"{raised.value!r} {raised.value.__cause__!r} {wrong!r} {connection!r} {caplog.text}"
    assert caplog.text
    for secret in (WRONG_KEY, "d3Jvbmctc2ln"):
        assert secret not in shown


async def test_a_mutex_with_wrong_credentials_ends_with_the_refusal(lease: AzureBlobLease) -> None:
    mutex = DistributedMutex(AzureBlobLease(lease.url, "orders", credential=WRONG_KEY), duration=DURATION)

    async def work(leadership: Leadership) -> None:
        raise AssertionError("it must not lead")

    with pytest.raises(LeaseRefused):
        await mutex.run(work)


async def test_a_sas_that_may_read_write_and_create_is_enough(
    provider: AzureProvider, lease: AzureBlobLease, monkeypatch: pytest.MonkeyPatch, left: LeaseConnection
) -> None:
    await left.inspect()
    permission = AccountSasPermissions(read=True, write=True, create=True)
    sas = generate_account_sas(
        ACCOUNT, KEY, ResourceTypes(container=True, object=True), permission, "2099-01-01T00:00Z"
    )
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?" + sas)
    async with open_lease(f"azure+{lease.url}", "orders").connected() as connection:
        grant = await connection.acquire("ana", DURATION)
        assert grant is not None
        assert await connection.renew(grant, DURATION)
        await connection.break_lease("ops", "it hangs", at_once=True)


async def test_each_connection_makes_its_own_credential_and_closes_it(lease: AzureBlobLease) -> None:
    from azure.core.credentials import AzureNamedKeyCredential

    closed = []

    class Credential(AzureNamedKeyCredential):
        async def close(self) -> None:
            closed.append(self)

    own = AzureBlobLease(lease.url, "orders", credential=lambda: Credential(ACCOUNT, KEY))
    for number in (1, 2):
        async with own.connected() as connection:
            assert (await connection.inspect()).name == "orders"
        assert len(set(closed)) == number


async def test_a_credential_that_cannot_be_used_is_refused_with_what_to_give(lease: AzureBlobLease) -> None:
    from azure.core.credentials import AzureNamedKeyCredential

    with pytest.raises(InvalidInput, match="give the account's key, a SAS, or a function"):
        AzureBlobLease(lease.url, "orders", credential=AzureNamedKeyCredential(ACCOUNT, KEY))  # type: ignore[arg-type]

    class Token:
        async def get_token(self) -> None: ...

    with pytest.raises(LeaseRefused, match="only supported with HTTPS"):
        await AzureBlobLease(lease.url, "orders", credential=Token).connect()


async def test_what_cannot_be_reached_is_named_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sas = "sv=2025-01-05&sig=d3Jvbmctc2ln"
    nowhere = AzureBlobLease("http://127.0.0.1:1/shop/leases", "orders", credential=sas)
    with pytest.raises(LeaseUnavailable, match=r"127\.0\.0\.1:1") as raised:
        await nowhere.inspect()
    assert "d3Jvbmctc2ln" not in f"{raised.value} {caplog.text}"


async def test_a_server_that_is_busy_is_unavailable_at_once_and_not_asked_again() -> None:
    def be_busy(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(b"HTTP/1.1 503 Busy\r\nx-ms-error-code: ServerBusy\r\ncontent-length: 0\r\n\r\n")

    with raw_server(be_busy, be_busy) as server:
        with pytest.raises(LeaseUnavailable, match="Azure answered 503 ServerBusy"):
            await AzureBlobLease(f"{server.url}/shop/leases", "orders", credential=KEY).inspect()
        assert len(server.received) == 1


async def test_a_server_that_never_answers_costs_one_limit_and_no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "REQUEST_SECONDS_MAX", 0.3)
    is_over = threading.Event()

    def keep_silent(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        is_over.wait()

    with raw_server(keep_silent) as server:
        silent = AzureBlobLease(f"{server.url}/shop/leases", "orders", credential=KEY)
        with pytest.raises(LeaseUnavailable, match="no answer within"):
            await silent.inspect()
        assert len(server.received) == 1
        is_over.set()


async def test_requests_that_are_cut_off_at_any_moment_give_no_lease_twice(provider: AzureProvider) -> None:
    campaign = Campaign(DURATION, grants=12, share_abandoned=0.0, seed=3)
    await campaign.run(lambda: provider.lease("orders"), contenders=4)
    assert len(campaign.reigns) >= 12
    assert campaign.cut > 10


# --- the mutex
async def test_of_two_contenders_one_works_at_a_time_and_under_a_larger_term(provider: AzureProvider) -> None:
    counter = await let_two_contend(lambda: provider.lease("counter"), DURATION)
    assert len(counter.terms) >= 4


async def test_a_mutex_loses_cleanly_when_the_server_goes_and_contends_again_when_it_is_back(
    own_server: Azurite,
) -> None:
    lease = AzureProvider(own_server).lease("orders")
    terms, reasons = await lose_and_return(lease, DURATION, own_server.stop, own_server.start)
    assert terms[1] > terms[0]
    assert reasons == ["no renewal was answered in time"]


async def test_a_mutex_waits_for_a_server_that_is_not_there_yet(own_server: Azurite) -> None:
    lease = AzureProvider(own_server).lease("orders")
    own_server.stop()
    assert await wait_for_server(lease, DURATION, own_server.start) == 1


async def test_a_lease_that_a_person_broke_ends_the_term(provider: AzureProvider) -> None:
    elected = asyncio.Event()
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work(leadership: Leadership) -> None:
        elected.set()
        await asyncio.Event().wait()

    lease = provider.lease("orders")
    mutex = DistributedMutex(lease, duration=DURATION, on_lost=lambda leadership, reason: lost.set_result(reason))
    async with running(mutex, work):
        await elected.wait()
        await lease.break_lease("ops", "it hangs")
        assert "refused the renewal" in await lost


# --- what it loads
def test_neither_arriero_nor_its_leases_load_the_sdk() -> None:
    program = (
        "import sys, arriero, arriero.leases; print([name for name in sys.modules if name in ('azure', 'aiohttp')])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("missing", ["azure", "aiohttp"])
def test_without_the_extra_the_error_says_what_to_install(missing: str, tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from arriero import InvalidInput
from arriero.leases import open_lease
try:
    open_lease("azure+https://shop.blob.core.windows.net/leases", "orders")
except InvalidInput as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install '.[azure]'" in ran.stdout


def test_a_url_of_an_unknown_kind_is_refused_without_its_query() -> None:
    with pytest.raises(InvalidInput, match=r"azure\+https://ACCOUNT") as raised:
        open_lease("https://shop.blob.core.windows.net/leases?sig=secret", "orders")
    assert "secret" not in str(raised.value)
