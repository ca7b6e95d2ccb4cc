"""Submissions over HTTP beside the same ones in process: in batches, one by one on many connections, and on one."""

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection

import uvicorn
from arriero_app import app, three
from starlette.requests import Request

from arriero.server.application import build_application
from arriero.server.caller_limits import RatePolicy
from arriero.server.calls import Caller
from arriero.server.routing import GateLimits

PAYLOAD = "x" * 100
BATCH = 400  # submissions in a request, and at once in process
BATCH_CONNECTIONS = 2  # the next request is there when one is answered
CONNECTIONS = 16
TURNS = 3  # of each way, alternating
UNLIMITED = GateLimits(rate=RatePolicy(1e9, 1e9))
BODY = {"workflow": "three", "arguments": {"payload": PAYLOAD}}


class Anybody:
    """Lets everybody in: tokens are not what is measured."""

    async def authenticate(self, request: Request) -> Caller:
        return Caller("bench", frozenset({"submit"}))


async def http(tasks: int, url: str) -> dict[str, float]:
    """Measure an App that only accepts tasks. The caller is a process of its own, as it is in use."""
    from arriero.store import open_store

    server = uvicorn.Server(
        uvicorn.Config(
            build_application(app, Anybody(), limits=UNLIMITED),
            port=0,
            log_level="critical",
            lifespan="off",
            access_log=False,
        )
    )
    await app.session.open(open_store(url))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    ways: dict[str, Callable[[], Awaitable[float]]] = {
        "in process": lambda: submit_in_process(tasks),
        "batches": lambda: submit_elsewhere(port, "/v1/tasks:submit", tasks, BATCH_CONNECTIONS, BATCH),
        "single": lambda: submit_elsewhere(port, "/v1/tasks", tasks // 8, CONNECTIONS, 1),
        "one connection": lambda: submit_elsewhere(port, "/v1/tasks", tasks // 16, 1, 1),
    }
    for measure in ways.values():  # a first turn warms up
        await measure()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, measure in ways.items():
            rates[name].append(await measure())
    server.should_exit = True
    await serving
    await app.session.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    pairs = zip(rates["batches"], rates["in process"], strict=True)
    return {"ratio": statistics.median(batch / inside for batch, inside in pairs), **medians}


async def submit_in_process(tasks: int) -> float:
    """Submit tasks, so many at once as a batch has. Returns: tasks a second."""
    started_at = time.perf_counter()
    for _ in range(tasks // BATCH):
        await asyncio.gather(*(app.submit(three(PAYLOAD)) for _ in range(BATCH)))
    return tasks // BATCH * BATCH / (time.perf_counter() - started_at)


async def submit_elsewhere(port: int, path: str, tasks: int, connections: int, batch: int) -> float:
    """Have a process of its own submit tasks over HTTP. Returns: tasks a second, without its start."""
    arguments = map(str, (port, path, tasks, connections, batch))
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return float(said)


def send(port: int, path: str, body: str, requests: int) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json"}
    for _ in range(requests):
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), text
    connection.close()


def main() -> None:
    port, path, tasks, connections, batch = sys.argv[1:]
    body = json.dumps(BODY if batch == "1" else {"tasks": [BODY] * int(batch)})
    requests = max(int(tasks) // int(batch) // int(connections), 1)
    threads = [threading.Thread(target=send, args=(int(port), path, body, requests)) for _ in range(int(connections))]
    started_at = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started_at
    sys.stdout.write(str(requests * int(connections) * int(batch) / seconds))


if __name__ == "__main__":
    main()
