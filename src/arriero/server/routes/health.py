"""Liveness and readiness, for orchestrators and load balancers. They tell a status and nothing else."""

import msgspec
from fastapi import Request
from starlette.responses import Response

from ..calls import Call
from ..routing import RouteGroup
from ..scopes import Needs

health = RouteGroup("health")


class HealthAnswer(msgspec.Struct, frozen=True):
    """``status``: ``live``, ``ready`` or ``not-ready``. Why it is not ready is in the server's log."""

    status: str


@health.operation(
    "GET",
    "/v1/health/live",
    Needs(public="an orchestrator that asks whether the process is alive has no token; the answer tells nothing else"),
    summary="Whether this process serves at all.",
    answer=HealthAnswer,
    answer_example={"status": "live"},
)
async def show_liveness(call: Call) -> HealthAnswer:
    return HealthAnswer("live")


@health.operation(
    "GET",
    "/v1/health/ready",
    Needs(public="a load balancer that asks where to send requests has no token; the answer tells nothing else"),
    summary="Whether work can be sent here: the store answers, the loops of the App live, and no end has begun.",
    answer=HealthAnswer,
    answer_example={"status": "ready"},
)
async def show_readiness(call: Call, request: Request) -> Response:
    obstacle = await request.app.readiness.find_obstacle()
    status, text = (503, "not-ready") if obstacle else (200, "ready")
    return Response(call.encode(HealthAnswer(text)), status, media_type="application/json")
