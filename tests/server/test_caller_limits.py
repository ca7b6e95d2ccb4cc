"""Limits of what one caller has under way: it leaves places to others, and callers who do not read are cut off."""

import asyncio
import socket

import pytest
from served_app import LIVE, read_answer, served
from server_shop import bearer, open_shop
from waiting import wait_until_async

from arriero.server import (
    http_protocol,
    http_server,
)
from arriero.server.caller_limits import CallerLimits, CallerPlaces, limit_caller
from arriero.server.connection_limits import is_kept
from arriero.server.http_protocol import STALL_BYTES_MIN, STALL_SECONDS_MAX, PatientProtocol, WriteProgress
from arriero.server.problems import Problem
from arriero.server.routing import GateLimits

ONE_WAIT = GateLimits(at_once=CallerLimits(requests=2, waits=1))


@pytest.mark.parametrize(
    ("requests_max", "waits_max", "served_max", "limits"),
    [
        (200, 100, 500, CallerLimits(200, 100)),
        (200, 100, 20, CallerLimits(10, 5)),
        (1_000, 1_000, 500, CallerLimits(250, 125)),
        (200, 100, 1, CallerLimits(1, 1)),
    ],
)
def test_one_caller_leaves_half_of_the_places_to_others(
    requests_max: int, waits_max: int, served_max: int, limits: CallerLimits
) -> None:
    assert limit_caller(requests_max, waits_max, served_max) == limits


def test_callers_are_counted_apart_and_nothing_is_kept_of_those_who_have_ended() -> None:
    places = CallerPlaces(CallerLimits(2, 1))
    first, second = places.enter("first"), places.enter("first")
    with pytest.raises(Problem):
        places.enter("first")
    other = places.enter("other")
    first.begin_wait()
    first.begin_wait()  # counts once
    assert not second.may_wait()
    with pytest.raises(Problem):
        second.begin_wait()
    first.leave()
    second.begin_wait()
    for place in (second, other):
        place.leave()
    assert (places._requests, places._waits) == ({}, {})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/health/live", True),
        ("/v1/health/ready", True),
        ("/v1/agents/bank/requests:report", True),
        ("/v1/agents/a%20b/requests:report-batch", True),
        ("/v1/agents/bank/requests:extend", True),
        ("/v1/agents/{agent}/requests:release", True),
        ("/v1/agents/bank/requests:take", False),
        ("/v1/agents/bank", False),
        ("/v1/tasks", False),
        ("/v1/tasks/health/live", False),
    ],
)
def test_health_and_what_would_cost_an_attempt_have_kept_places(path: str, expected: bool) -> None:
    assert is_kept(path) is expected


async def test_one_more_long_poll_of_a_token_is_told_to_come_later_and_other_requests_are_answered() -> None:
    async with open_shop(running=True, limits=ONE_WAIT) as world:
        for number in range(2):
            await world.http.post("/v1/tasks", json={"workflow": "wait_long", "id": f"t-{number}"})
        polling = asyncio.create_task(world.http.get("/v1/tasks/t-0/result?wait=60"))
        await wait_until_async(lambda: world.server.gate._places._waits)
        refused = await world.http.get("/v1/tasks/t-1/result?wait=60")
        assert refused.status_code == 429
        assert (refused.json()["code"], refused.headers["retry-after"]) == ("too-many-at-once", "1")
        assert world.app.session.http_problems["too-many-at-once"] == 1
        assert (await world.http.get("/v1/tasks/t-1/result")).status_code == 202
        other = await world.http.get("/v1/tasks/t-1/result?wait=0.001", headers=bearer("read"))
        assert other.status_code == 202
        late = await world.http.post(
            "/v1/tasks", json={"workflow": "wait_long", "id": "t-2"}, headers={"Prefer": "wait=60"}
        )
        assert (late.status_code, late.headers["preference-applied"]) == (202, "respond-async")
        await world.http.post("/v1/tasks/t-0:cancel", json={"reason": "enough"})
        assert (await polling).status_code == 200
        assert (await world.http.get("/v1/tasks/t-1/result?wait=0.001")).status_code == 202


async def test_one_more_request_of_a_token_is_refused_while_reports_have_places_of_their_own() -> None:
    limits = GateLimits(at_once=CallerLimits(requests=1, waits=1))
    async with open_shop(running=True, limits=limits) as world:
        await world.http.post("/v1/tasks", json={"workflow": "wait_long", "id": "t"})
        polling = asyncio.create_task(world.http.get("/v1/tasks/t/result?wait=60"))
        await wait_until_async(lambda: world.server.gate._places._requests)
        answer = await world.http.get("/v1/tasks/t")
        assert answer.json()["code"] == "too-many-at-once"
        report = await world.http.post("/v1/agents/unknown/requests:report", json={})
        assert report.status_code != 429
        polling.cancel()
        await asyncio.wait({polling})


ACT = b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


async def test_a_full_server_answers_health_and_reports() -> None:
    async with served(connections_max=1) as place, asyncio.timeout(60):
        _, busy = await place.connect()
        busy.write(ACT)
        await place.begun.wait()
        for path, status in (
            (b"/v1/health/live", b"200"),
            (b"/v1/agents/bank/requests:report", b"405"),
            (b"/v1/tasks", b"503"),
        ):
            reader, writer = await place.connect()
            writer.write(LIVE.replace(b"/v1/health/live", path))
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 " + status)
            writer.close()
        busy.close()


def test_a_caller_who_takes_nothing_or_next_to_nothing_has_stalled_and_one_who_takes_some_has_not() -> None:
    silent, slow, steady, finished = (WriteProgress() for _ in range(4))
    for second in range(int(STALL_SECONDS_MAX)):
        assert not silent.has_stalled(0, 1_000, second)
        assert not slow.has_stalled(second, 1_000, second)
        assert not steady.has_stalled(second * STALL_BYTES_MIN, 1_000, second)
        assert not finished.has_stalled(0, 1_000 if second < 10 else 0, second)
    now = STALL_SECONDS_MAX
    assert silent.has_stalled(0, 1_000, now)
    assert slow.has_stalled(int(now), 1_000, now)
    assert not steady.has_stalled(int(now) * STALL_BYTES_MIN, 1_000, now)
    assert not finished.has_stalled(0, 1_000, now)


async def test_a_caller_who_never_reads_is_cut_off_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "STALL_SECONDS_MAX", 0.2)
    monkeypatch.setattr(http_server, "TICKS_PER_LOOK", 1)
    async with served() as place, asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            caller.setblocking(False)
            await loop.sock_connect(caller, place.listener.getsockname())
            await loop.sock_sendall(caller, LIVE.replace(b"/v1/health/live", b"/v1/large"))
            await wait_until_async(lambda: place.problems["answer-not-read"])
            await wait_until_async(lambda: not place.server._server.server_state.connections)
        assert place.problems["answer-not-read"] == 1


async def test_a_connection_that_has_nothing_to_send_is_not_cut_off_however_long_it_waits() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(LIVE)
        assert b'{"status":"live"}' in await read_answer(reader)
        (connection,) = place.server._server.server_state.connections
        assert isinstance(connection, PatientProtocol)
        connection.cut_off_if_stalled(1e9)
        writer.write(LIVE)
        assert b'{"status":"live"}' in await read_answer(reader)
        writer.close()
