"""The program of `pull`: takes requests of its Agent over HTTP and reports those of a take at once. It knows nothing of arriero.

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
Taken = tuple[dict[str, Any], float]  # a request, and when it was taken


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


def report(caller: Caller, taken: list[Taken]) -> None:
    """Tell that steps have succeeded."""
    reports = [
        {
            "task": request["task"],
            "capability": request["capability"],
            "status": "succeeded",
            "result": request["arguments"]["payload"],
        }
        for request, _ in taken
    ]
    if len(reports) == 1:
        caller.post(f"{REQUESTS}:report", reports[0])
    elif refused := caller.post(f"{REQUESTS}:report-batch", {"reports": reports})["refused"]:
        raise SystemExit(f"{refused} reports were refused")
    reported_at = time.monotonic()
    for request, taken_at in taken:
        sys.stdout.write(f"{request['task']} {taken_at} {reported_at}\n")
    sys.stdout.flush()


def report_all(caller: Caller, waiting: "queue.SimpleQueue[list[Taken]]") -> None:
    while True:
        report(caller, waiting.get())


def main() -> None:
    port, token, limit, reporters = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    waiting: queue.SimpleQueue[list[Taken]] = queue.SimpleQueue()
    for _ in range(reporters):
        threading.Thread(target=report_all, args=(Caller(port, token), waiting), daemon=True).start()
    taker = Caller(port, token)
    while True:
        requests = taker.post(f"{REQUESTS}:take", {"limit": limit, "wait_seconds": 20})["requests"]
        taken_at = time.monotonic()
        if requests and reporters:
            waiting.put([(request, taken_at) for request in requests])
        elif requests:
            report(taker, [(request, taken_at) for request in requests])


if __name__ == "__main__":
    main()
