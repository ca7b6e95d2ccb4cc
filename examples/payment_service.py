"""A remote service that takes payments, in a process of its own, for the web shops beside this file.

    python -m examples.payment_service

It prints its URL and runs until its standard input ends. It does what arriero asks of each service: what came under a key
once has its effect once, and a charge that was taken back never happens later. ``arriero.idempotent`` does this for
services with a database.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Books:
    """What the service has done, by key: the answer to a charge, or None if the key is barred."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._charges: dict[str, dict[str, object] | None] = {}

    def charge(self, key: str, order: str, pence: int) -> dict[str, object] | None:
        """Charge once. Returns the answer; None: this charge was taken back."""
        with self._lock:
            return self._charges.setdefault(key, {"receipt": f"receipt-{order}-{pence}"})

    def refund(self, charged_under: str) -> None:
        """Take a charge back, and bar its key: a request that is still on its way must not charge later."""
        with self._lock:
            self._charges[charged_under] = None


class Handler(BaseHTTPRequestHandler):
    """POST /charges {order, pence}, POST /refunds {charged_under}, GET /health."""

    protocol_version = "HTTP/1.1"
    books = Books()

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        if not key:
            self._answer(400, {"code": "no_key", "message": "send an Idempotency-Key"})
        elif self.path == "/charges":
            charged = self.books.charge(key, asked["order"], asked["pence"])
            barred = {"code": "taken_back", "message": "this charge was taken back"}
            self._answer(201, charged) if charged is not None else self._answer(409, barred)
        elif self.path == "/refunds":
            self.books.refund(asked["charged_under"])
            self._answer(200, {})
        else:
            self._answer(404, {})

    def _answer(self, status: int, value: Mapping[str, object]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def running_service() -> Iterator[str]:
    """Run the service as a process of its own. Yields its URL."""
    command = [sys.executable, "-m", "examples.payment_service"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()  # it ends with whoever started this, however that ends
    os._exit(0)


if __name__ == "__main__":
    main()
