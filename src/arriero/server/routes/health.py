"""The server and its store as a whole: liveness and readiness, findings, metrics, and the document of the API."""

from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from ...client.app import App
from ...client.diagnosis import (
    Diagnosis,
    build_diagnosis,
    diagnose_machine,
    diagnose_tasks,
    list_steps_not_undoable,
)
from ...client.overview import Overview, load_overview
from ...client.session import Session
from ...errors import describe_install
from ...explain.doctor import Finding
from ...operations.problems import declare_problem
from ...store import MEMORY
from ...text.escaping import mask_url
from ..calls import Call, HttpCall
from ..openapi import build_openapi
from ..problems import SERVERS_STORE, Problem
from ..routing import RouteGroup
from ..scopes import ANY_TOKEN, Needs, Scope, may_list_tokens

doctor = RouteGroup("doctor")

EXAMPLE: dict[str, Any] = {
    "store": "postgresql://shop@db.example.com/shop",
    "healthy": False,
    "findings": [
        {
            "level": "care",
            "about": "held",
            "says": "2 tasks are held",
            "remedy": "arriero task list --state held",
        }
    ],
}


@doctor.operation(
    "GET",
    "/v1/doctor",
    Needs(Scope.READ),
    summary="What needs care in the store, on its machine and in the processes that work on it.",
    answer_example=EXAMPLE,
)
async def diagnose(call: Call) -> Diagnosis:
    session = call.session
    findings = await _diagnose_machine(session)
    findings += await diagnose_tasks(session.store, list_steps_not_undoable(session.agents))
    if not may_list_tokens(call.caller.scopes):
        findings = [_withhold_token(one) if one.about == "tokens" else one for one in findings]
    return build_diagnosis(session.store.url, findings)


def _withhold_token(finding: Finding) -> Finding:
    """Leave out of a finding which token it is about: only the scope admin lists tokens."""
    if finding.level == "fine":
        return finding
    return Finding(
        finding.level, finding.about, "a token needs a look", "ask with the scope admin, or `arriero doctor`"
    )


async def _diagnose_machine(session: Session) -> list[Finding]:
    """Diagnose the file or server of the store. A server's URL without its password is of no use to ask it."""
    shown = session.store.url
    configured = session.configure().store
    is_configured = mask_url(configured) == mask_url(shown)
    if shown == MEMORY or not (is_configured or shown.startswith("sqlite:")):
        return []
    return (await diagnose_machine(configured if is_configured else shown))[0]


@doctor.operation(
    "GET",
    "/v1/overview",
    Needs(Scope.READ),
    summary="How the store stands: tasks that are not done, calls of the last hour, Agents, processes, and what needs an operator.",
)
async def show_overview(call: Call) -> Overview:
    # Where the store is concerns those who look after it, whom the doctor answers.
    return msgspec.structs.replace(await load_overview(call.session.store), store=SERVERS_STORE)


document = RouteGroup("document")


@document.operation(
    "GET",
    "/v1/openapi.json",
    ANY_TOKEN,
    summary="This document, in OpenAPI 3.1.",
    answer=dict,
    answer_example={"openapi": "3.1.0"},
)
async def show_document(call: Call) -> Response:
    state = call.request.app.state
    if not hasattr(state, "openapi"):
        document = build_openapi(call.request.app.routes)
        if call.root:
            document["servers"] = [{"url": call.root}]
        state.openapi = call.encode(document)
    return Response(state.openapi, media_type="application/json")


metrics = RouteGroup("metrics")

NO_METRICS = declare_problem(
    "metrics-missing",
    501,
    "This server has no metrics",
    f"Install the extra on the server: {describe_install('prometheus')}.",
)


@metrics.operation(
    "GET",
    "/metrics",
    Needs(Scope.READ),
    summary="Metrics for Prometheus, as text or OpenMetrics.",
    problems=(NO_METRICS,),
)
async def show_metrics(call: Call) -> Response:
    body, media_type = await _render(call)
    return Response(body, headers={"Content-Type": media_type})


async def _render(call: HttpCall) -> tuple[bytes, str]:
    try:
        from ...metrics import MetricsCollector
    except ImportError as missing:
        raise Problem(NO_METRICS, str(missing)) from missing
    app, state = call.client, call.request.app.state
    assert isinstance(app, App)
    if not hasattr(state, "metrics"):
        state.metrics = MetricsCollector(app)
    collector: MetricsCollector = state.metrics
    return await collector.render(call.request.headers.get("accept", ""))


health = RouteGroup("health")


class HealthAnswer(msgspec.Struct, frozen=True):
    """``status``: ``live``, ``ready`` or ``not-ready``. Why it is not ready is in the server's log."""

    status: str


@health.operation(
    "GET",
    "/v1/health/live",
    Needs(public="an orchestrator that asks whether the process is alive has no token; the answer says nothing else"),
    summary="Whether this process serves at all.",
    answer_example={"status": "live"},
)
async def show_liveness(call: Call) -> HealthAnswer:
    return HealthAnswer("live")


@health.operation(
    "GET",
    "/v1/health/ready",
    Needs(public="a load balancer that asks where to send requests has no token; the answer says nothing else"),
    summary="Whether work can be sent here: the store answers, the loops of the App live, and no end has begun.",
    answer=HealthAnswer,
    answer_example={"status": "ready"},
)
async def show_readiness(call: Call, request: Request) -> Response:
    obstacle = await request.app.readiness.find_obstacle()
    status, text = (503, "not-ready") if obstacle else (200, "ready")
    return Response(call.encode(HealthAnswer(text)), status, media_type="application/json")
