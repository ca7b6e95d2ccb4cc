"""What the clients send, how long they wait, and which try a request belongs to."""

import asyncio
import contextlib
import contextvars
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest
from raw_server import RawServer, answer, find_refusing_port, raw_server
from runtime_world import Machine, within

from arriero import (
    Agent,
    App,
    Attempt,
    InDoubt,
    InvalidInput,
    Permanent,
    Retry,
    StepFailed,
    Supervision,
    TaskFailed,
    Transient,
    Undo,
    workflow,
)
from arriero.http import AsyncClient, SyncClient
from arriero.testing import attempt, current, undo
from arriero.testing.handmade import HandmadeTime

ONE_TRY, ONE_ATTEMPT = Retry(tries=1), Supervision(attempts=1, then="hold")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
either = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


class Service:
    """Remembers what it was sent. ``status``: of its answers."""

    def __init__(self, status: int = 200) -> None:
        self.sent: list[httpx2.Request] = []
        self._status = status

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        return httpx2.Response(self._status)


def call(is_async: bool, service: Service, method: str = "POST", *, given: Any = None, **options: Any) -> None:
    """Make a call. ``given``: options of this call; the others are the client's."""
    transport = httpx2.MockTransport(service)

    async def call_async() -> None:
        async with AsyncClient(transport=transport, base_url="http://bank", **options) as client:
            await client.request(method, "/charges", **(given or {}))

    if is_async:
        asyncio.run(call_async())
    else:
        with SyncClient(transport=transport, base_url="http://bank", **options) as client:
            client.request(method, "/charges", **(given or {}))


# --- what is sent
@either
def test_a_call_carries_the_key_the_task_and_the_trace(is_async: bool) -> None:
    service = Service()
    with current(attempt(task_id="o-ü", idempotency_key="k-1")):
        call(is_async, service)
        call(is_async, service)
    first, _second = service.sent
    assert [one.headers["idempotency-key"] for one in service.sent] == ["k-1", "k-1"]
    assert first.headers["arriero-task"] == "o-\\xfc"
    traces = [one.headers["traceparent"] for one in service.sent]
    assert all(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", trace) for trace in traces)
    assert traces[0][:36] == traces[1][:36]
    assert traces[0] != traces[1]


@either
def test_a_compensation_sends_its_own_key(is_async: bool) -> None:
    service = Service()
    with current(undo(None, outcome="unknown", forward_key="k-1")) as now:
        call(is_async, service)
    assert service.sent[0].headers["idempotency-key"] == now.idempotency_key != "k-1"


@either
def test_a_read_carries_no_key(is_async: bool) -> None:
    service = Service()
    with current(attempt(task_id="o-1")):
        call(is_async, service, "GET")
    assert "idempotency-key" not in service.sent[0].headers
    assert service.sent[0].headers["arriero-task"] == "o-1"


@either
def test_headers_that_the_call_has_stay(is_async: bool) -> None:
    service = Service()
    own = {"idempotency-key": "mine", "traceparent": "00-mine"}
    with current(attempt()):
        call(is_async, service, given={"headers": own})
        call(is_async, service, headers=own)
        call(is_async, service, trace=False)
    assert [one.headers.get("idempotency-key") for one in service.sent] == ["mine", "mine", "test-key"]
    assert [one.headers.get("traceparent") for one in service.sent] == ["00-mine", "00-mine", None]


@either
def test_a_call_waits_as_long_as_there_is_time_and_a_time_out_can_only_shorten_that(is_async: bool) -> None:
    service = Service()
    with current(attempt(remaining=7.0)):
        call(is_async, service)
        for timeout in (2.0, 60.0, None, httpx2.Timeout(60.0, read=3.0)):
            call(is_async, service, given={"timeout": timeout})
            call(is_async, service, timeout=timeout)
    waits = [one.extensions["timeout"] for one in service.sent]
    assert [wait["read"] for wait in waits] == [7.0, 2.0, 2.0, 7.0, 7.0, 7.0, 7.0, 3.0, 3.0]
    assert [wait["connect"] for wait in waits] == [7.0, 2.0, 2.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0]


@either
def test_without_time_left_nothing_is_sent(is_async: bool) -> None:
    service = Service()
    with current(attempt(remaining=0.0)), pytest.raises(Transient, match="no time was left to send it") as raised:
        call(is_async, service)
    assert (raised.value.code, service.sent) == ("no_time_left", [])


class TimeThatEnds(HandmadeTime):
    """Each question for what is left is answered by the next number."""

    def __init__(self, left: list[float]) -> None:
        super().__init__(left[0], None)
        self._answers = iter(left)

    def remaining_seconds(self) -> float:
        return next(self._answers)


@either
def test_if_the_time_is_over_at_a_redirect_the_call_is_in_doubt(is_async: bool) -> None:
    made = Attempt("o-1", "charge", 1, "k-1", TimeThatEnds([5.0, 5.0, 0.0]))
    sent: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.path)
        return httpx2.Response(307, headers={"location": "http://bank/other"})

    transport = httpx2.MockTransport(handle)

    async def call_async() -> None:
        async with AsyncClient(transport=transport, follow_redirects=True) as client:
            await client.post("http://bank/charges")

    with current(made), pytest.raises(InDoubt, match="no time was left"):
        if is_async:
            asyncio.run(call_async())
        else:
            SyncClient(transport=transport, follow_redirects=True).post("http://bank/charges")
    assert sent == ["/charges"]


@either
def test_outside_of_an_attempt_it_is_a_plain_client(is_async: bool) -> None:
    service = Service(500)
    call(is_async, service)
    assert {"idempotency-key", "arriero-task", "traceparent"} & set(service.sent[0].headers) == set()
    assert service.sent[0].extensions["timeout"]["read"] == 5.0  # httpx2's own


@either
def test_a_streamed_answer_is_judged_before_the_step_reads_it(is_async: bool) -> None:
    transport = httpx2.MockTransport(Service(402))

    async def stream_async() -> None:
        async with AsyncClient(transport=transport) as client, client.stream("POST", "http://bank/charges"):
            raise AssertionError("it was let in")

    def stream() -> None:
        with SyncClient(transport=transport) as client, client.stream("POST", "http://bank/charges"):
            raise AssertionError("it was let in")

    with current(attempt()), pytest.raises(Permanent):
        asyncio.run(stream_async()) if is_async else stream()


@pytest.mark.parametrize(
    ("meanings", "message"),
    [
        ({99: "answer"}, "99 is not a status"),
        ({True: "answer"}, "True is not a status"),
        ({409: "retry"}, "give one of"),
    ],
)
def test_meanings_are_checked(meanings: Any, message: str) -> None:
    for kind in (AsyncClient, SyncClient):
        with pytest.raises(InvalidInput, match=message):
            kind(meanings=meanings)


def test_a_request_that_is_sent_by_several_steps_carries_the_key_and_the_time_of_each() -> None:
    service = Service()
    sent: list[tuple[Any, Any, float]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        headers = request.headers
        sent.append((headers.get("idempotency-key"), headers.get("x-own"), request.extensions["timeout"]["read"]))
        return service(request)

    with SyncClient(transport=httpx2.MockTransport(handle), timeout=6.0) as client:
        kept = client.build_request("POST", "http://bank/charges", headers={"x-own": "o"})
        for key, remaining in (("k-1", 2.0), ("k-2", 4.0)):
            with current(attempt(idempotency_key=key, remaining=remaining)):
                client.send(kept)
        client.send(kept)
    assert sent == [("k-1", "o", 2.0), ("k-2", "o", 4.0), (None, "o", 6.0)]


# --- which try a request belongs to
def test_code_that_outlives_its_try_sends_nothing_but_reads() -> None:
    service = Service()
    with current(attempt()):
        outlived = contextvars.copy_context()
    with pytest.raises(InvalidInput, match=r"was not sent.*has ended"):
        outlived.run(call, False, service)
    assert service.sent == []
    outlived.run(call, False, service, "GET")
    contextvars.Context().run(call, False, service)
    assert [one.method for one in service.sent] == ["GET", "POST"]


Charge = Callable[[SyncClient], None]


async def run_step(machine: Machine, charge: Charge) -> Any:
    """Run a plain step that calls ``charge`` with a client, without a second attempt. Returns: the view of the step."""
    agent = Agent("payments")

    @agent.resource
    def client() -> Iterator[SyncClient]:
        with SyncClient(trust_env=False) as opened:
            yield opened

    @agent.step(name="charge", retry=ONE_TRY, supervision=ONE_ATTEMPT)
    def charge_step(attempt: Attempt) -> None:
        charge(client())

    @workflow
    async def sell() -> None:
        await charge_step()

    app = machine.app([agent], [sell])
    async with app.running():
        task = await app.submit(sell())
        with contextlib.suppress(TaskFailed):
            await within(task.result())
        (step,) = (await task.view()).steps
        return step


async def test_a_call_that_happened_after_a_no_that_is_raised_again_is_in_doubt(machine: Machine) -> None:
    """The step catches the no of one service, calls another one, and raises the no in the end."""
    with raw_server(answer(BUSY), answer(OK)) as server:

        def charge(client: SyncClient) -> None:
            try:
                client.post(server.url)
            except Transient as error:
                client.post(server.url)
                raise error

        step = await run_step(machine, charge)
    assert (step.in_doubt, len(server.received)) == (True, 2)


async def test_a_no_that_is_raised_again_alone_is_not_in_doubt(machine: Machine) -> None:
    with raw_server(answer(BUSY), answer(OK)) as server:

        def charge(client: SyncClient) -> None:
            try:
                client.post(server.url)
            except Transient as error:
                client.get(server.url)
                raise error

        step = await run_step(machine, charge)
    assert (step.in_doubt, len(server.received)) == (False, 2)


async def test_what_a_step_says_itself_counts(machine: Machine) -> None:
    """The answer 200 says in its body that the card was declined: only the step can know."""
    with raw_server(answer(OK)) as server:

        def charge(client: SyncClient) -> None:
            client.post(server.url)
            raise Permanent("declined", code="declined")

        step = await run_step(machine, charge)
    assert (step.in_doubt, step.failure.code) == (False, "declined")


async def test_a_refused_connection_in_a_running_step_is_not_in_doubt(machine: Machine) -> None:
    step = await run_step(machine, lambda client: client.post(f"http://127.0.0.1:{find_refusing_port()}"))
    assert (step.in_doubt, step.failure.code) == (False, "unreachable")


async def test_a_lost_connection_in_a_running_step_is_in_doubt(machine: Machine) -> None:
    with raw_server(answer(b"")) as server:
        step = await run_step(machine, lambda client: client.post(server.url))
    assert (step.in_doubt, len(server.received)) == (True, 1)


@either
async def test_a_step_is_tried_again_under_one_key_until_the_service_has_answered(
    machine: Machine, is_async: bool
) -> None:
    busy = b"HTTP/1.1 503 No\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    broken = b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    agent = Agent("payments")

    @agent.resource
    async def client() -> AsyncIterator[AsyncClient]:
        async with AsyncClient(trust_env=False) as opened:
            yield opened

    @agent.resource
    def plain_client() -> Iterator[SyncClient]:
        with SyncClient(trust_env=False) as opened:
            yield opened

    with raw_server(answer(b""), answer(busy), answer(broken), answer(OK), answer(OK)) as server:
        if is_async:

            @agent.step(name="charge")
            async def charge(attempt: Attempt) -> None:
                await client().post(server.url)

            @charge.compensation
            async def refund(given: Undo[None]) -> None:
                await client().post(server.url, content=given.forward_key)
        else:

            @agent.step(name="charge")
            def charge_plainly(attempt: Attempt) -> None:
                plain_client().post(server.url)

            @charge_plainly.compensation
            def refund_plainly(given: Undo[None]) -> None:
                plain_client().post(server.url, content=given.forward_key)

        @workflow
        async def sell() -> None:
            await agent.steps["charge"]()
            raise Permanent("the customer has gone")

        app = machine.app([agent], [sell])
        async with app.running():
            task = await app.submit(sell())
            with pytest.raises(TaskFailed):
                await within(task.result())
    keys = [re.findall(b"(?i)idempotency-key: (.+)\r", one)[0] for one in server.received]
    assert (len(keys), len(set(keys[:4])), keys[4] in keys[:4]) == (5, 1, False)
    assert server.received[4].endswith(keys[0])  # the body: the forward key


async def test_a_call_that_is_cancelled_at_complete_by_is_in_doubt(machine: Machine) -> None:
    over = threading.Event()

    def stay_silent(server: RawServer, connection: Any) -> None:
        server.read(connection)
        over.wait(20)

    agent = Agent("payments")

    @agent.resource
    async def client() -> AsyncIterator[AsyncClient]:
        async with AsyncClient(trust_env=False) as opened:
            yield opened

    with raw_server(stay_silent) as server:

        @agent.step(name="charge", complete_within=2.0, retry=ONE_TRY, supervision=ONE_ATTEMPT)
        async def charge(attempt: Attempt) -> None:
            await client().post(server.url)

        caught: list[StepFailed] = []

        @workflow
        async def sell() -> None:
            try:
                await charge()
            except StepFailed as failed:
                caught.append(failed)

        app: App = machine.app([agent], [sell])
        async with app.running():
            task = await app.submit(sell())
            await within(task.result())
            (step,) = (await task.view()).steps
        over.set()
    assert (step.in_doubt, len(server.received)) == (True, 1)
    assert caught[0].cause in ("expired", "unknown")


async def test_a_call_that_is_left_running_by_its_step_is_not_sent(machine: Machine) -> None:
    """The verdict on the step has been given: what it sent later would contradict it."""
    has_ended, left_behind = asyncio.Event(), []
    service = Service()
    agent = Agent("payments")

    @agent.step(name="charge")
    async def charge(attempt: Attempt) -> None:
        async def later() -> None:
            await has_ended.wait()
            async with AsyncClient(transport=httpx2.MockTransport(service)) as client:
                await client.post("http://bank/charges")

        left_behind.append(asyncio.create_task(later()))

    @workflow
    async def sell() -> None:
        await charge()

    app: App = machine.app([agent], [sell])
    async with app.running():
        await within((await app.submit(sell())).result())
        has_ended.set()
        with pytest.raises(InvalidInput, match="was not sent"):
            await within(left_behind[0])
    assert service.sent == []
