"""Several gateways on one database: a program may take a request from one and report to another, whatever becomes of the first.

The gateways are processes of `arriero serve`; the workflow runs in the test.
"""

import asyncio
import json
import shutil
import signal
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import gateway_bank
import httpx2
import psycopg
import pytest
from cli_calls import Run, arriero
from postgres_servers import database, server, worker
from runtime_world import until, within

from arriero import App
from arriero.client.task import Task

pytestmark = pytest.mark.acceptance
PROGRAM = "gateway_bank:app"


class Gateway:
    """A gateway in a process of its own, and the calls of a program to it."""

    def __init__(self, folder: Path, token: str) -> None:
        self.run = Run(folder, "--port", "0", command=("serve", PROGRAM))
        self._token = token
        self._address = ""

    def wait_until_ready(self) -> None:
        self._address = self.run.until("ready: ").rpartition(", ")[2]

    async def post(self, verb: str, body: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            return await http.post(f"{self._address}/v1/agents/bank/requests:{verb}", json=body, headers=headers)

    async def take(self, limit: int = 1, wait_seconds: float = 15) -> list[dict[str, Any]]:
        answer = await self.post("take", {"limit": limit, "wait_seconds": wait_seconds})
        assert answer.status_code == 200
        found: list[dict[str, Any]] = answer.json()["requests"]
        return found

    async def report(self, request: dict[str, Any], **more: Any) -> tuple[int, str]:
        """Report a success. Returns: the status, and the code of a refusal."""
        body = {"task": request["task"], "capability": request["capability"], "status": "succeeded", "result": 7}
        answer = await self.post("report", {**body, **more})
        return answer.status_code, answer.json()["code"] if answer.content else ""


class Place(NamedTuple):
    """A folder with the App and a database, where gateways are started. ``token``: of the program."""

    folder: Path
    url: str
    token: str

    def start(self, count: int) -> list[Gateway]:
        gateways = [Gateway(self.folder, self.token) for _ in range(count)]
        for gateway in gateways:
            gateway.wait_until_ready()
        return gateways


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    database()  # it makes the template
    url = server().create_database(f"gateways_{worker()}", template="arriero_template")
    folder = tmp_path_factory.mktemp("gateways")
    shutil.copy(gateway_bank.__file__, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARRIERO_STORE", url)
        patch.setenv("ARRIERO_LEASE_SECONDS", "60")  # a gateway that is stopped keeps its lease until its test is over
        made = arriero(folder, "token", "create", "program", "--scope", "agent:bank", "--by", "ana")
        assert made.returncode == 0, made.stderr
        yield Place(folder, url, made.stdout.strip())
    server().drop_database(f"gateways_{worker()}")


@pytest.fixture(scope="module")
def gateways(place: Place) -> Iterator[list[Gateway]]:
    started = place.start(2)
    yield started
    for gateway in started:
        gateway.run.close()


@asynccontextmanager
async def submitted(place: Place, count: int) -> AsyncIterator[list[Task[int]]]:
    """Tasks whose workflow runs here."""
    app = App("bank", agents=[gateway_bank.bank], workflows=[gateway_bank.buy], store=place.url)
    async with app.running(roles=["scheduler"]):
        yield [await app.submit(gateway_bank.buy(cents)) for cents in range(count)]


def read_record(place: Place) -> tuple[list[Any], list[dict[str, Any]]]:
    """What the store says of tasks and steps; and the reports in the history, which tells other things meanwhile."""
    with closing(psycopg.connect(place.url)) as connection:
        rows = connection.execute("SELECT task_id, state, output FROM arriero.task ORDER BY task_no").fetchall()
        rows += connection.execute("SELECT step::text FROM arriero.step ORDER BY step_no").fetchall()
    return rows, [event for event in read_events(place) if event["type"] == "step.report"]


def read_events(place: Place) -> list[dict[str, Any]]:
    with closing(psycopg.connect(place.url)) as connection:
        written = connection.execute("SELECT events FROM arriero.history ORDER BY no").fetchall()
    return [event for (row,) in written for event in json.loads(row)]


def count_delivered(place: Place) -> int:
    """Count the attempts that gateways handed over to programs, which they do after the answer: until then, rows change."""
    return sum(event["type"] == "attempt.delivered" for event in read_events(place))


async def test_a_request_of_one_gateway_is_reported_to_the_other_and_a_second_report_changes_nothing(
    place: Place, gateways: list[Gateway]
) -> None:
    first, second = gateways
    async with submitted(place, 1) as (task,):
        (request,) = await within(first.take())
        assert await second.report(request) == (204, "")
        assert await within(task.result()) == 7
        rows, reports = read_record(place)
        for gateway in (second, first, second):
            assert await gateway.report(request, result=8) == (409, "report-duplicate")
            assert await gateway.report(request, status="permanent") == (409, "report-duplicate")
        rows_after, reports_after = read_record(place)
        assert rows_after == rows
        # The first one still held the attempt, so it asked the store, which notes that once.
        assert [report["verdict"] for report in reports_after[len(reports) :]] in ([], ["duplicate"])


async def test_both_gateways_refuse_a_forged_capability(place: Place, gateways: list[Gateway]) -> None:
    async with submitted(place, 2) as tasks:
        delivered = count_delivered(place)
        requests = [request for gateway in gateways for request in await within(gateway.take())]
        version, said, signature = requests[0]["capability"].split(".")
        _, of_other, _ = requests[1]["capability"].split(".")
        text = urlsafe_b64decode(said + "=" * (-len(said) % 4)).replace(b'"bank"', b'"shop"')
        changed = urlsafe_b64encode(text).rstrip(b"=").decode()
        middle = "A" if signature[20] != "A" else "B"
        forged = [
            f"{version}.{said}.{signature[:20]}{middle}{signature[21:]}",
            f"{version}.{of_other}.{signature}",
            f"{version}.{changed}.{signature}",
            f"2.{said}.{signature}",
            f"{version}.{said}.",
        ]
        await until(lambda: count_delivered(place) == delivered + 2)
        before = read_record(place)
        for gateway in gateways:
            for capability in (*forged, requests[1]["capability"]):
                assert await gateway.report(requests[0], capability=capability) == (403, "capability-invalid")
        assert read_record(place) == before
        for gateway, request in zip(gateways, requests, strict=True):
            assert await gateway.report(request) == (204, "")
        assert [await within(task.result()) for task in tasks] == [7, 7]


async def test_a_request_is_given_by_one_gateway_only(place: Place, gateways: list[Gateway]) -> None:
    async with submitted(place, 12) as tasks:
        given: list[dict[str, Any]] = []

        async def ask(gateway: Gateway) -> None:
            while len(given) < len(tasks):
                given.extend(await gateway.take(3, 0.2))

        await within(asyncio.gather(*(ask(gateway) for gateway in gateways for _ in range(2))))
        assert sorted(request["task"] for request in given) == sorted(task.id for task in tasks)
        assert [await gateway.take(10, 0) for gateway in gateways] == [[], []]
        first, second = gateways
        for number, request in enumerate(given):
            assert await (second if number % 2 else first).report(request) == (204, "")
        assert [await within(task.result()) for task in tasks] == [7] * len(tasks)


@pytest.fixture
async def ending(place: Place) -> AsyncIterator[Gateway]:
    """A gateway for a test that ends it."""
    (started,) = await asyncio.to_thread(place.start, 1)
    yield started
    started.run.close()


async def test_a_report_to_the_other_gateway_counts_while_the_first_one_drains(
    place: Place, gateways: list[Gateway], ending: Gateway
) -> None:
    async with submitted(place, 1) as (task,):
        (request,) = await within(ending.take())
        ending.run.signal(signal.SIGTERM)
        assert await gateways[0].report(request) == (204, "")
        assert await within(task.result()) == 7
        code, output, _ = await within(asyncio.to_thread(ending.run.ended))  # it waited, and asked the store
        assert (code, "drained" in output) == (0, True)
        assert await gateways[1].report(request) == (409, "report-duplicate")


async def test_a_report_to_the_other_gateway_counts_when_the_first_one_hangs(
    place: Place, gateways: list[Gateway], ending: Gateway
) -> None:
    async with submitted(place, 1) as (task,):
        (request,) = await within(ending.take())
        ending.run.signal(signal.SIGSTOP)  # nothing is freed while its lease lasts
        assert await gateways[0].report(request) == (204, "")
        assert await within(task.result()) == 7
        assert await gateways[1].report(request) == (409, "report-duplicate")


async def test_the_request_of_a_killed_gateway_comes_again_at_the_other_under_its_key(
    place: Place, gateways: list[Gateway], ending: Gateway
) -> None:
    async with submitted(place, 1) as (task,):
        (request,) = await within(ending.take())
        ending.run.signal(signal.SIGKILL)
        (again,) = await within(gateways[0].take())  # the others see that its connection is gone
        assert (again["idempotency_key"], again["attempt"]) == (request["idempotency_key"], 1)
        for gateway in gateways:
            assert await gateway.report(request, result=8) == (409, "report-stale")
        assert await gateways[1].report(again) == (204, "")
        assert await within(task.result()) == 7
