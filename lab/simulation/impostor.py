"""A caller who reports in the place of the programs, with capabilities that are forged, of other tasks or of the past.

It has read everything that programs were given and sent. Nothing that it says may count.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from arriero.client.remote_agents import RemoteReport, RemoteRequest
from arriero.core.capabilities import Capability, seal_capability
from arriero.model import later

from .gateways import Gateway
from .remote_reports import ACKNOWLEDGED, REFUSALS

if TYPE_CHECKING:
    from .programs import Programs

NOBODY = 0  # the number of no program
LATEST = 4  # of what programs were given: its attempts may still be running
GUESSED_SECRET = b"a guess"
Trick = tuple[RemoteRequest, str, str]  # whose attempt is meant, and the task and the capability that are sent
_decode = msgspec.json.Decoder(Capability).decode
_encode = msgspec.json.Encoder().encode


def open_capability(text: str) -> Capability:
    """Read what a capability says, no matter who has signed it."""
    said = text.split(".")[1]
    return _decode(urlsafe_b64decode(said + "=" * (-len(said) % 4)))


class Impostor:
    """See the module."""

    def __init__(self, programs: "Programs") -> None:
        self._programs = programs
        self._random = programs.random
        self._count = 0

    async def act(self, until: float) -> None:
        """Try one trick after the other."""
        tricks: dict[str, Callable[[], Trick | None]] = {
            "capability_forged": self._forge,
            "capability_of_another_task": self._confuse_tasks,
            "capability_outdated": self._find_outdated,
            "report_replayed": self._find_recorded,
        }
        assert tricks.keys() == REFUSALS.keys()
        while self._programs.get_time() < until:
            await asyncio.sleep(self._random.uniform(0.05, 0.6))
            name = self._random.choice(list(tricks))
            trick, gateway = tricks[name](), self._programs.network.choose()
            if trick is None or gateway is None or not self._programs.strikes(name):
                continue
            request, task, capability = trick
            report = RemoteReport(task=task, capability=capability, **self._invent(request))
            sent = self._programs.note_report(request, report, NOBODY, trick=name)
            sent.answer = await self._send(gateway, report)

    async def _send(self, gateway: Gateway, report: RemoteReport) -> str:
        """Mostly report; else ask for more time, or give the attempt back. The one who may not report may not do these either."""
        drawn = self._random.random()
        if drawn < 0.7:
            return await self._programs.send_report(gateway, report)
        if drawn < 0.85:
            return await self._programs.send_extension(gateway, report.task, report.capability, 1.0)
        return await self._programs.send_release(gateway, report.task, report.capability)

    def _invent(self, request: RemoteRequest) -> dict[str, Any]:
        """Invent what happened. No program says the same."""
        self._count += 1
        if request.kind == "compensation":  # all that were undone give the same result
            return {"status": "permanent", "message": f"impostor-{self._count}"}
        return {"status": "succeeded", "result": msgspec.Raw(str(-self._count).encode())}

    def _draw_request(self) -> RemoteRequest | None:
        requests = self._programs.requests
        return self._random.choice(requests[-LATEST:]) if requests else None

    def _forge(self) -> Trick | None:
        """More time, another fence, or the next attempt; under the signature of what was changed, or of a guess."""
        request = self._draw_request()
        if request is None:
            return None
        true = open_capability(request.capability)
        forged = self._random.choice(
            (
                replace(true, complete_by=later(true.complete_by, 60), latest=later(true.latest, 60)),
                replace(true, fence=true.fence + 1),
                replace(true, attempt=true.attempt + 1, fence=true.fence + 1),
                true,
            )
        )
        if forged is true or self._random.random() < 0.5:
            return request, request.task, seal_capability(forged, GUESSED_SECRET)
        version, _, signature = request.capability.split(".")
        said = urlsafe_b64encode(_encode(forged)).rstrip(b"=").decode()
        return request, request.task, f"{version}.{said}.{signature}"

    def _confuse_tasks(self) -> Trick | None:
        """A valid capability, for the step of another task."""
        request = self._draw_request()
        tasks = sorted({one.task for one in self._programs.requests} - {request.task if request else ""})
        return (request, self._random.choice(tasks), request.capability) if request and tasks else None

    def _find_outdated(self) -> Trick | None:
        """The capability of an attempt after which the same step was given out again."""
        latest: dict[str, RemoteRequest] = {}
        outdated: list[RemoteRequest] = []
        for request in self._programs.requests:
            if request.idempotency_key in latest:
                outdated.append(latest[request.idempotency_key])
            latest[request.idempotency_key] = request
        return self._use_one(outdated)

    def _use_one(self, requests: list[RemoteRequest]) -> Trick | None:
        """One of the latest, as it was given out."""
        if not requests:
            return None
        request = self._random.choice(requests[-LATEST:])
        return request, request.task, request.capability

    def _find_recorded(self) -> Trick | None:
        """The capability of an attempt whose report was acknowledged."""
        names = {sent.name for sent in self._programs.sent if sent.answer == ACKNOWLEDGED}
        requests = self._programs.requests
        return self._use_one([request for request in requests if self._programs.name_attempt(request) in names])
