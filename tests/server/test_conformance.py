"""Schemathesis asks every operation of the document with requests that fit it and requests that do not.

No answer may be a failure of ours, and none may be what the document does not say. ``make torture`` asks many more.
"""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import msgspec
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from server_shop import ShopApp
from server_world import TOKENS, FixedTokens

from arriero import TaskFailed
from arriero.server.application import build_application
from arriero.server.caller_limits import RatePolicy
from arriero.server.connection_limits import ConnectionLimits
from arriero.server.http_server import HttpServer
from arriero.server.openapi import build_openapi
from arriero.server.routing import GateLimits
from arriero.server.sockets import ListenOptions, open_socket, plan_listening

EXAMPLES = int(os.environ.get("ARRIERO_CONFORMANCE_EXAMPLES", "15"))  # requests for each operation
# A request of the right shape may still mean nothing, like a cursor of another list: that is refused with 422, as documented.
EXCLUDED = [positive_data_acceptance]
UNLIMITED = GateLimits(rate=RatePolicy(1e9, 10**9), agent_rate=RatePolicy(1e9, 10**9))
AUTHORIZED = {"Authorization": f"Bearer {TOKENS['admin']}"}


class ServedShop:
    """A shop with tasks in it, which a server in a thread of its own runs and serves on a real socket."""

    def __init__(self) -> None:
        self.shop = ShopApp()
        self._application = build_application(self.shop.app, FixedTokens(), limits=UNLIMITED)
        self._listener = open_socket(plan_listening(ListenOptions()))
        self._server = HttpServer(self._application, self._listener, None, ConnectionLimits(100, 120))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        async with self.shop.app.running(store="memory://"):
            await self._sell()
            await self._server.start()
            self._started.set()
            await self._ending.wait()
            await self._server.stop()

    async def _sell(self) -> None:
        app, shop = self.shop.app, self.shop
        order: Any = msgspec.json.decode(b'{"item": "lamp"}')
        for task_id, call in (
            ("order-1001", shop.fulfil(order)),
            ("order-1002", shop.inspect_item("lamp")),
            ("order-1003", shop.wait_long()),
        ):
            await app.submit(call, task_id=task_id, convoy="ana" if task_id == "order-1003" else None)
        with suppress(TaskFailed):
            await app.task("order-1002").result(timeout=60)

    def __enter__(self) -> str:
        self._thread.start()
        assert self._started.wait(30)
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ServedShop() as found:
        yield found


@schemathesis.serializer("application/x-ndjson")
def write_line(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """One line of a body that comes line by line."""
    return json.dumps(value).encode()


def _build_schema() -> Any:
    document = build_openapi(build_application(ShopApp().app, FixedTokens()).routes)
    # Those of Schemathesis without 5xx, and with 413 and 414: a body or a query that is too long.
    refused_with = {
        "expected-statuses": ["400", "401", "403", "404", "405", "406", "409", "413", "414", "415", "422", "428", "429"]
    }
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": refused_with}})
    return schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(document)), config=config)


schema = _build_schema().exclude(path_regex="/(events|changes)$")  # a stream has no end of its own


def is_sent(value: object) -> bool:
    """Whether a value of a query is seen in the request."""
    if isinstance(value, list | dict):
        return any(is_sent(one) for one in (value.values() if isinstance(value, dict) else value))
    return value is not None


@schema.parametrize()  # type: ignore[untyped-decorator]
@hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 100,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_no_request_fails_the_server_or_gets_an_answer_that_is_not_in_the_document(
    case: schemathesis.Case, url: str
) -> None:
    # A line that is no entry of a ledger may be set aside: then the ledger is accepted, and the answer tells.
    # Of a query, nothing and lists of nothing are not sent: what was to be refused does not arrive.
    may_be_right = case.path.endswith(":stream") or not all(map(is_sent, (case.query or {}).values()))
    excluded = [*EXCLUDED, negative_data_rejection] if may_be_right else EXCLUDED
    case.call_and_validate(base_url=url, headers=AUTHORIZED, excluded_checks=excluded)
