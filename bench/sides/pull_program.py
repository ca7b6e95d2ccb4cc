"""The program of `pull`: takes requests of its Agent over HTTP and reports each at once. It knows nothing of arriero.

`python pull_program.py PORT TOKEN LIMIT REPORTERS`: so many requests in one take, so many connections that report. It prints a
line for each report: when the take that brought it was answered, and when its own answer was there, as monotonic seconds.
"""

import json
import queue
import sys
import threading
import time
from http.client import HTTPConnection
from typing import Any

REQUESTS = "/v1/agents/outside/requests"


class Caller:
    """One connection that is kept."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: Any) -> Any:
        self._connection.request("POST", path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201, 204):
            raise SystemExit(f"{path} was answered by {answer.status}: {text!r}")
        return json.loads(text) if text else None


def report(caller: Caller, request: dict[str, Any], taken_at: float) -> None:
    """Tell that the step has succeeded."""
    result = {"status": "succeeded", "result": request["arguments"]["payload"]}
    caller.post(f"{REQUESTS}:report", {"task": request["task"], "capability": request["capability"], **result})
    sys.stdout.write(f"{request['task']} {taken_at} {time.monotonic()}\n")
    sys.stdout.flush()


def report_all(caller: Caller, waiting: "queue.SimpleQueue[tuple[dict[str, Any], float]]") -> None:
    while True:
        report(caller, *waiting.get())


def main() -> None:
    port, token, limit, reporters = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    waiting: queue.SimpleQueue[tuple[dict[str, Any], float]] = queue.SimpleQueue()
    for _ in range(reporters):
        threading.Thread(target=report_all, args=(Caller(port, token), waiting), daemon=True).start()
    taker = Caller(port, token)
    while True:
        requests = taker.post(f"{REQUESTS}:take", {"limit": limit, "wait_seconds": 20})["requests"]
        for request in requests:
            if reporters:
                waiting.put((request, time.monotonic()))
            else:
                report(taker, request, time.monotonic())


if __name__ == "__main__":
    main()
