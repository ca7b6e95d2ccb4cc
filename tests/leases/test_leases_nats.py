"""Leases on NATS beyond the contract: lost answers, terms over deletion, buckets, credentials, servers that go."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lease_campaign import Campaign
from lease_nats import NatsProvider
from mutex_scenarios import let_two_contend, lose_and_return, running, wait_for_server
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from raw_server import raw_server

from arriero import InvalidInput, LeaseRefused, LeaseUnavailable
from arriero.leases import DistributedMutex, Leadership, LeaseConnection, nats_stream, open_lease
from arriero.leases.nats import NatsLease
from arriero.leases.nats_stream import check_bucket, parse_bucket_url, read_credentials
from lab.lease_servers import Unavailable
from lab.lease_servers.nats import NatsServer, start_nats

DURATION = 2.0


@pytest.fixture
def provider() -> NatsProvider:
    try:
        return NatsProvider(start_nats())
    except Unavailable as error:
        pytest.skip(str(error))


def started(*arguments: str) -> NatsServer:
    """A server that the test may kill."""
    try:
        server = NatsServer(*arguments)
    except Unavailable as error:
        pytest.skip(str(error))
    server.start()
    return server


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    server = started()
    yield server
    server.close()


@pytest.fixture
def lease(provider: NatsProvider) -> NatsLease:
    return provider.lease("orders/nightly.1")


@pytest.fixture
async def left(lease: NatsLease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


@pytest.fixture
async def right(lease: NatsLease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


async def manage(url: str, act: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
    """Do something to the streams of a server, as an administrator."""
    client = Client()
    await client.connect(url.rpartition("/")[0], allow_reconnect=False)
    try:
        return await act(client.jetstream())
    finally:
        await client.close()


def lose_next_answer(monkeypatch: pytest.MonkeyPatch, *, is_written: bool) -> None:
    """Let the next write of any connection fail: its answer is lost, or it did not leave."""
    original = JetStreamContext.publish

    async def fail(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(JetStreamContext, "publish", original)
        if is_written:
            await original(*arguments, **options)
        raise NatsTimeoutError

    monkeypatch.setattr(JetStreamContext, "publish", fail)


# --- lost answers
@pytest.mark.parametrize("is_written", [False, True])
async def test_a_contender_whose_answer_was_lost_gets_the_lease_that_it_has_for_its_whole_time(
    provider: NatsProvider,
    left: LeaseConnection,
    right: LeaseConnection,
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
) -> None:
    lose_next_answer(monkeypatch, is_written=is_written)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", DURATION)
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    assert grant.term == 1
    info = await manage(provider.url, lambda streams: streams.stream_info(f"KV_{provider.url.rpartition('/')[2]}"))
    assert info.state.last_seq == (2 if is_written else 1)  # it was written, and renewed when it was found
    assert await right.acquire("ben", DURATION) is None
    assert await left.renew(grant, DURATION)


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_holder_whose_renewal_got_no_answer_goes_on_renewing(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    lose_next_answer(monkeypatch, is_written=is_written)
    with pytest.raises(LeaseUnavailable):
        await left.renew(grant, DURATION)
    assert await left.renew(grant, DURATION)
    assert (await right.inspect()).term == grant.term


async def test_a_contender_that_leaves_gives_back_a_lease_whose_answer_was_lost(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_next_answer(monkeypatch, is_written=True)
    with pytest.raises(LeaseUnavailable):
        await left.acquire("ana", 600)
    assert await right.acquire("ben", DURATION) is None
    await left.withdraw("ana")
    assert await right.acquire("ben", DURATION) is not None


async def test_a_lease_that_lapsed_is_not_renewed_though_nobody_has_it(
    provider: NatsProvider, lease: NatsLease, left: LeaseConnection
) -> None:
    grant = await left.acquire("ana", 1)
    assert grant is not None
    await provider.lapse(lease)
    assert not await left.renew(grant, 1)
    view = await left.inspect()
    assert (view.holder, view.term) == ("", 0)  # the record is gone, and its term with it


# --- terms
async def test_terms_grow_over_renewals_deletion_and_purging(provider: NatsProvider, left: LeaseConnection) -> None:
    terms = []
    bucket = provider.url.rpartition("/")[2]
    for act in (
        lambda streams: streams.publish(f"$KV.{bucket}.orders/nightly.1", headers={"KV-Operation": "DEL"}),
        lambda streams: streams.purge_stream(f"KV_{bucket}"),
        lambda streams: streams.stream_info(f"KV_{bucket}"),
    ):
        grant = await left.acquire(f"contender-{len(terms)}", DURATION)
        assert grant is not None
        assert await left.renew(grant, DURATION)
        terms.append(grant.term)
        await manage(provider.url, act)
        if len(terms) < 3:
            assert not await left.renew(grant, DURATION)  # it is lost with its record
    assert terms == sorted(set(terms))


async def test_the_term_stays_that_of_the_grant_however_often_it_is_renewed(left: LeaseConnection) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    for _ in range(3):
        assert await left.renew(grant, DURATION)
        assert (await left.inspect()).term == grant.term
    await left.release(grant)
    assert (await left.inspect()).term == grant.term


# --- breaks
async def test_a_break_at_once_tells_by_whom_and_why_until_the_next_grant(
    left: LeaseConnection, right: LeaseConnection
) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    broken = await right.break_lease("Jörg", "it hangs", at_once=True)
    assert (broken.holder, broken.term, broken.broken_by, broken.broken_reason) == ("", grant.term, "Jörg", "it hangs")
    assert await right.acquire("ben", DURATION) is not None
    view = await right.inspect()
    assert (view.holder, view.broken_by, view.broken_reason) == ("ben", "", "")


async def test_a_lease_that_is_broken_with_notice_stays_taken_is_not_renewed_and_lapses(
    provider: NatsProvider, lease: NatsLease, left: LeaseConnection, right: LeaseConnection
) -> None:
    grant = await left.acquire("ana", 1)
    assert grant is not None
    broken = await right.break_lease("ops", "it hangs")
    assert (broken.holder, broken.term, broken.broken_by) == ("ana", grant.term, "ops")
    assert not await left.renew(grant, 1)
    await left.release(grant)  # nor does it end the notice
    assert await left.acquire("ana", 1) is None
    assert await right.acquire("ben", 1) is None
    await provider.lapse(lease)
    assert await right.acquire("ben", 1) is not None


async def test_a_break_wins_against_a_renewal_that_comes_meanwhile(
    left: LeaseConnection, right: LeaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = await left.acquire("ana", DURATION)
    assert grant is not None
    original = JetStreamContext.publish

    async def renew_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(JetStreamContext, "publish", original)
        assert await left.renew(grant, DURATION)
        return await original(*arguments, **options)

    monkeypatch.setattr(JetStreamContext, "publish", renew_first)
    assert (await right.break_lease("ops", "it hangs", at_once=True)).holder == ""
    assert not await left.renew(grant, DURATION)


async def test_a_release_wakes_those_who_wait(left: LeaseConnection, right: LeaseConnection) -> None:
    grant = await left.acquire("ana", 600)
    assert grant is not None
    assert await right.acquire("ben", DURATION) is None
    waiting = asyncio.get_running_loop().create_task(right.wait_for_change(600))
    async with asyncio.timeout(60):
        await left.release(grant)
        await waiting


async def test_a_value_that_is_no_lease_s_is_refused_rather_than_overwritten(
    provider: NatsProvider, left: LeaseConnection
) -> None:
    await left.inspect()
    bucket = provider.url.rpartition("/")[2]
    await manage(provider.url, lambda streams: streams.publish(f"$KV.{bucket}.orders/nightly.1", b"mine"))
    with pytest.raises(LeaseRefused, match="not a lease's"):
        await left.acquire("ana", DURATION)


# --- buckets, URLs, credentials
FIT = StreamConfig(
    allow_msg_ttl=True,
    max_age=0.0,
    storage="file",
    max_msgs_per_subject=1,
    discard="new",  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"allow_msg_ttl": None}, "cannot expire one by one"),
        ({"max_age": 3600.0}, "expire after a time"),
        ({"storage": "memory"}, "terms begin again"),
        ({"persist_mode": "async"}, "before a record is kept"),
        ({"max_msgs_per_subject": 5}, "an old one could come back"),
        ({"discard": "old"}, "makes room"),
    ],
)
def test_a_bucket_in_which_a_lease_would_not_be_safe_is_refused(change: dict[str, Any], told: str) -> None:
    check_bucket(FIT, "here")
    with pytest.raises(LeaseRefused, match=told):
        check_bucket(FIT.evolve(**change), "here")


async def test_a_bucket_that_others_have_made_is_checked_before_it_is_used(provider: NatsProvider) -> None:
    bucket = provider.url.rpartition("/")[2]
    await manage(provider.url, lambda streams: streams.create_key_value(bucket=bucket, history=5))
    async with provider.lease("orders").connected() as connection:
        for _ in range(2):  # also when it is asked again
            with pytest.raises(LeaseRefused, match="an old one could come back"):
                await connection.acquire("ana", DURATION)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://localhost:4222/leases", (["nats://localhost:4222"], "leases")),
        ("nats+tls://a:4222,b/leases_1", (["tls://a:4222", "tls://b"], "leases_1")),
        ("nats://[::1]:4222/leases", (["nats://[::1]:4222"], "leases")),
    ],
)
def test_a_url_names_servers_and_a_bucket(url: str, expected: tuple[list[str], str]) -> None:
    assert parse_bucket_url(url) == expected


@pytest.mark.parametrize(
    "url",
    ["nats://localhost", "nats:///leases", "nats://a,/leases", "nats://a/two words", "nats://a/b/c", "nats+ws://a/b"],
)
def test_a_url_that_names_no_bucket_is_refused_with_the_right_shape(url: str) -> None:
    with pytest.raises(InvalidInput, match="nats://HOST:4222/BUCKET"):
        parse_bucket_url(url)


@pytest.mark.parametrize(
    "url", ["nats://ana:secret@a/leases", "nats://a/leases?token=secret", "nats://a/leases#secret"]
)
def test_a_url_with_credentials_is_refused_without_showing_them(url: str) -> None:
    with pytest.raises(InvalidInput, match="NATS_USER and NATS_PASSWORD") as raised:
        parse_bucket_url(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["", ".", "a.", "a..b", "a*", "a>", "größe", "x" * 256])
def test_a_name_that_nats_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(LeaseRefused, match="NATS takes no lease of the name"):
        NatsLease("nats://a/leases", name)


def test_credentials_come_from_the_variables_of_the_nats_cli(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.touch()
    assert read_credentials({}) == {}
    assert read_credentials({"NATS_CREDS": str(file)}) == {"user_credentials": str(file)}
    assert read_credentials({"NATS_TOKEN": "t"}) == {"token": "t"}
    assert read_credentials({"NATS_USER": "u", "NATS_PASSWORD": "p"}) == {"user": "u", "password": "p"}
    with pytest.raises(LeaseRefused, match="which is not there"):
        read_credentials({"NATS_CREDS": str(tmp_path / "missing")})


async def test_wrong_credentials_are_refused_with_what_to_do_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = started("--user", "ana", "--pass", "right")
    try:
        lease = NatsLease(server.url("leases"), "orders")
        with pytest.raises(LeaseRefused, match="check NATS_CREDS"):  # none at all
            await lease.inspect()
        monkeypatch.setenv("NATS_USER", "ana")
        monkeypatch.setenv("NATS_PASSWORD", "wrong-secret")
        with pytest.raises(LeaseRefused, match="check NATS_CREDS") as raised:
            await lease.inspect()
        assert "wrong-secret" not in f"{raised.value!r} {raised.value.__cause__!r} {lease!r} {caplog.text}"
        monkeypatch.setenv("NATS_PASSWORD", "right")
        assert (await lease.inspect()).holder == ""
    finally:
        server.close()


async def test_a_user_who_may_not_write_is_told_which_rights_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = tmp_path / "rights.conf"
    rights.write_text('authorization { users = [{user: ana, password: p, permissions: {publish: ["$JS.API.>"]}}] }')
    server = started("--config", str(rights))
    monkeypatch.setattr(nats_stream, "REQUEST_SECONDS_MAX", 0.5)
    monkeypatch.setenv("NATS_USER", "ana")
    monkeypatch.setenv("NATS_PASSWORD", "p")
    try:
        async with NatsLease(server.url("leases"), "orders").connected() as connection:
            assert (await connection.inspect()).holder == ""
            with pytest.raises(LeaseRefused, match=r"may publish to \$JS\.API\.> and \$KV\.leases\.>"):
                await connection.acquire("ana", DURATION)
    finally:
        server.close()


async def test_a_server_without_jetstream_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = tmp_path / "off.conf"
    off.write_text("accounts { A { users = [{user: ana, password: p}] } }")
    server = started("--config", str(off))
    monkeypatch.setenv("NATS_USER", "ana")
    monkeypatch.setenv("NATS_PASSWORD", "p")
    try:
        with pytest.raises(LeaseRefused, match="JetStream is off"):
            await NatsLease(server.url("leases"), "orders").inspect()
    finally:
        server.close()


async def test_a_server_that_never_answers_costs_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_stream, "REQUEST_SECONDS_MAX", 0.3)
    with raw_server(lambda server, connection: server.read(connection)) as server:
        lease = NatsLease(server.url.replace("http", "nats") + "/leases", "orders")
        with pytest.raises(LeaseUnavailable, match=r"127\.0\.0\.1"):
            await lease.inspect()


async def test_requests_that_are_cut_off_at_any_moment_give_no_lease_twice(provider: NatsProvider) -> None:
    campaign = Campaign(duration=1.0, grants=40, share_abandoned=0.1, seed=3)
    await campaign.run(lambda: provider.lease("orders"), contenders=6)
    assert len(campaign.reigns) >= 40
    assert campaign.cut > 10


# --- the mutex
async def test_of_two_contenders_one_works_at_a_time_and_under_a_larger_term(provider: NatsProvider) -> None:
    counter = await let_two_contend(lambda: provider.lease("counter"), DURATION, turns=8)
    assert len(counter.terms) >= 8


async def test_a_mutex_loses_cleanly_when_the_server_dies_and_contends_again_when_it_is_back(
    own_server: NatsServer,
) -> None:
    lease = NatsProvider(own_server).lease("orders")
    terms, reasons = await lose_and_return(lease, DURATION, own_server.kill, own_server.start)
    assert terms[1] > terms[0]
    assert reasons == ["no renewal was answered in time"]


async def test_a_mutex_loses_cleanly_when_the_server_hangs_and_contends_again_when_it_goes_on(
    own_server: NatsServer,
) -> None:
    lease = NatsProvider(own_server).lease("orders")
    terms, reasons = await lose_and_return(lease, DURATION, own_server.freeze, own_server.thaw)
    assert terms[1] > terms[0]
    assert reasons == ["no renewal was answered in time"]


async def test_a_mutex_waits_for_a_server_that_is_not_there_yet(own_server: NatsServer) -> None:
    lease = NatsProvider(own_server).lease("orders")
    own_server.kill()
    assert await wait_for_server(lease, DURATION, own_server.start) >= 1


async def test_a_term_outlives_a_server_that_dies_and_comes_back_in_time(own_server: NatsServer) -> None:
    elected, is_renewed = asyncio.Event(), asyncio.Event()
    losses: list[str] = []

    async def work(leadership: Leadership) -> None:
        elected.set()
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        before = leadership.seconds_left
        while (left := leadership.seconds_left) <= before:  # until a renewal succeeds
            before = left
            await asyncio.sleep(0.02)
        assert leadership.is_held()
        is_renewed.set()
        await asyncio.Event().wait()

    lease = NatsProvider(own_server).lease("orders")
    mutex = DistributedMutex(lease, duration=8, on_lost=lambda leadership, reason: losses.append(reason))
    async with asyncio.timeout(60), running(mutex, work):
        await is_renewed.wait()
    assert losses == []


# --- what it loads
def test_neither_arriero_nor_its_leases_load_the_client() -> None:
    program = "import sys, arriero, arriero.leases; print([name for name in sys.modules if name == 'nats'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_the_extra_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["nats"] = None
from arriero import InvalidInput
from arriero.leases import open_lease
try:
    open_lease("nats://localhost:4222/leases", "orders")
except InvalidInput as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install '.[nats]'" in ran.stdout


async def test_a_lease_is_opened_by_its_url(provider: NatsProvider) -> None:
    async with open_lease(provider.url, "orders").connected() as connection:
        assert await connection.acquire("ana", DURATION) is not None
    with pytest.raises(InvalidInput, match="nats://HOST:4222/BUCKET") as raised:
        open_lease("mqtt://ana:secret@host/leases", "orders")
    assert "secret" not in str(raised.value)
