"""The shop's three remote services, payments, stock and shipping, as a real HTTP server in a process of its own.

    python -m examples.orders.services --book book.sqlite --port 0 --seed 1 --faults some

A call is ``POST /{service}/{operation}`` with the header ``Idempotency-Key`` and a body of
``{"order_id": ..., "amount": ...}``; an undo has ``{"order_id": ..., "forward_key": ...}`` instead. `operations` lists
what there is, `effects` says what happens to the book, and `faults` what goes wrong. ``GET /faults`` counts the faults
that fired, by kind. ``POST /outages`` with a body of ``{"service": ..., "seconds": ...}`` takes a service down for a time:
it refuses every call, and nothing happens. ``GET /outages`` counts the calls that it refused, by service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from .effects import Answer, Asked, EffectBook
from .faults import AFTER_THE_EFFECT, LEVELS, Fault, FaultPlan
from .operations import DOWN_CODE, DOWN_STATUS, OPERATIONS, SERVICES

AMOUNT_MAX = 2**63 - 1
FORWARD = frozenset((operation.service, operation.name) for operation in OPERATIONS)
UNDO = frozenset((operation.service, operation.undo) for operation in OPERATIONS)
FINAL_ANSWERS = {
    Fault.DECLINED: Answer(402, {"code": "declined", "message": "the card was declined"}),
    Fault.OUT_OF_STOCK: Answer(409, {"code": "out_of_stock", "message": "the shelf is empty"}),
}
NEVER_SENT = Response(status_code=500)
"""Returned where the connection is closed already: uvicorn wants some response and has nobody to send it to."""


class BadCall(Exception):
    """The call cannot be understood; the message says why."""


class GroupCommit:
    """Writes to the book in a thread: what comes in while one transaction is under way goes into the next together."""

    def __init__(self, book: EffectBook) -> None:
        self._book = book
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._wake = asyncio.Event()

    async def perform(self, asked: Asked) -> Answer:
        """Returns: the answer, once its effect is on the disk."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        self._wake.set()
        return await answer

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            await self._write(batch)

    async def _write(self, batch: list[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await asyncio.to_thread(self._book.perform, [asked for asked, _ in batch])
        except Exception as error:  # a full disk, say: every caller of the batch gets a 500, and the next batch its try
            for _, waiting in batch:
                waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            waiting.set_result(answer)


class OpenHandedProtocol(H11Protocol):
    """uvicorn's connection, which hands itself to the endpoints: only who holds the connection can cut it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


@dataclass(frozen=True)
class Pauses:
    """How late a slow answer comes, and how long a hanging call is held when its caller never gives up."""

    slow_seconds: float = 3.0
    hang_seconds: float = 30.0


class Services:
    """The endpoints, with what they share: the book, the plan of faults, and the calls counted under each key."""

    def __init__(self, book: EffectBook, plan: FaultPlan, pauses: Pauses) -> None:
        self._book = book
        self._commits = GroupCommit(book)
        self._plan = plan
        self._pauses = pauses
        self._calls: Counter[tuple[str, str]] = Counter()
        self._fired: Counter[Fault] = Counter()
        self._down_until: dict[str, float] = {}
        self._calls_while_down: Counter[str] = Counter()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/faults", self.faults, methods=["GET"]),
                Route("/outages", self.outages, methods=["GET"]),
                Route("/outages", self.take_down, methods=["POST"]),
                Route("/{service}/{operation}", self.call, methods=["POST"]),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        writer = asyncio.create_task(self._commits.run())
        yield
        writer.cancel()
        with suppress(asyncio.CancelledError):
            await writer
        self._book.close()

    async def faults(self, _: Request) -> Response:
        return JSONResponse({"fired": {kind.value: self._fired[kind] for kind in Fault}, "calls": self._calls.total()})

    async def outages(self, _: Request) -> Response:
        return JSONResponse({"calls_while_down": {service: self._calls_while_down[service] for service in SERVICES}})

    async def take_down(self, request: Request) -> Response:
        body = await request.json()
        self._down_until[body["service"]] = time.monotonic() + body["seconds"]
        return JSONResponse({})

    async def call(self, request: Request) -> Response:
        service = request.path_params["service"]
        if time.monotonic() < self._down_until.get(service, 0.0):
            # Not counted under its key: the faults that are planned for it are still to come.
            self._calls_while_down[service] += 1
            return JSONResponse({"code": DOWN_CODE, "message": f"{service} is down"}, DOWN_STATUS)
        try:
            asked = await _asked(request)
        except BadCall as bad:
            return JSONResponse({"code": "bad_call", "message": str(bad)}, status_code=400)
        self._calls[asked.service, asked.idempotency_key] += 1
        number = self._calls[asked.service, asked.idempotency_key]
        fault = self._plan.fault_of(asked.service, asked.operation, asked.order_id, number)
        if fault in FINAL_ANSWERS:
            return self._declined(fault)
        return await self._with_effect(request, asked, fault)

    def _declined(self, fault: Fault) -> Response:
        self._fired[fault] += 1
        answer = FINAL_ANSWERS[fault]
        return JSONResponse(answer.body, answer.status)

    async def _with_effect(self, request: Request, asked: Asked, fault: Fault | None) -> Response:
        if fault is not None and fault not in AFTER_THE_EFFECT:
            self._fired[fault] += 1
            return await self._without_effect(request, fault)
        answer = await self._commits.perform(asked)
        if fault is not None:
            self._fired[fault] += 1
        if fault is Fault.LOST_ANSWER:
            return await _cut(request)
        if fault is Fault.SLOW:
            await _wait_for_disconnect(request, self._pauses.slow_seconds)
        return JSONResponse(answer.body, answer.status)

    async def _without_effect(self, request: Request, fault: Fault) -> Response:
        if fault is Fault.SERVER_ERROR:
            return JSONResponse({"code": "internal", "message": "something went wrong"}, status_code=500)
        if fault is Fault.HANG:
            await _wait_for_disconnect(request, self._pauses.hang_seconds)
        return await _cut(request)


async def _asked(request: Request) -> Asked:
    service, operation = request.path_params["service"], request.path_params["operation"]
    key = request.headers.get("idempotency-key", "")
    if not key:
        raise BadCall("the header Idempotency-Key is missing")
    try:
        body = json.loads(await request.body())
    except ValueError:
        raise BadCall("the body is not JSON") from None
    if not isinstance(body, dict) or not isinstance(body.get("order_id"), str):
        raise BadCall("the body must be an object with an order_id")
    if (service, operation) in UNDO:
        forward_key = body.get("forward_key")
        if not isinstance(forward_key, str):
            raise BadCall("an undo must name the forward_key that it undoes")
        return Asked(service, operation, body["order_id"], key, forward_key=forward_key)
    if (service, operation) not in FORWARD:
        raise BadCall(f"there is no operation {service}/{operation}")
    amount = body.get("amount")
    if type(amount) is not int or not 0 <= amount <= AMOUNT_MAX:
        raise BadCall("the amount must be a whole number, zero or more")
    return Asked(service, operation, body["order_id"], key, amount=amount)


async def _cut(request: Request) -> Response:
    request.state.transport.abort()
    # The loop tells uvicorn of the end a moment later; a response before that would be written into the void.
    await request.receive()
    return NEVER_SENT


async def _wait_for_disconnect(request: Request, seconds_max: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds_max):
            await request.receive()


def serve(services: Services, host: str, port: int) -> None:
    """Serve until a signal ends the process. Port 0 takes any free one; the ready line says which."""
    with socket.create_server((host, port), backlog=2048) as listening:
        config = uvicorn.Config(
            services.app(),
            http=OpenHandedProtocol,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            # Longer than any client keeps an idle connection: else a call could run into one just being closed.
            timeout_keep_alive=120,
            timeout_graceful_shutdown=1,
        )
        # The socket listens already, so whoever reads this line may connect at once.
        print(f"listening on http://{host}:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="The shop's remote services.")
    parser.add_argument("--book", type=Path, required=True, help="the SQLite file that keeps every effect")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", choices=sorted(LEVELS), default="some")
    parser.add_argument("--break", dest="broken", choices=["dedup"], help="forget every idempotency key")
    parser.add_argument("--slow-seconds", type=float, default=Pauses.slow_seconds)
    parser.add_argument("--hang-seconds", type=float, default=Pauses.hang_seconds)
    options = parser.parse_args(arguments)
    book = EffectBook(options.book, deduplicates=options.broken != "dedup")
    plan = FaultPlan(options.faults, options.seed)
    serve(Services(book, plan, Pauses(options.slow_seconds, options.hang_seconds)), options.host, options.port)


if __name__ == "__main__":
    main(sys.argv[1:])
