"""Metrics for Prometheus."""

from starlette.responses import Response

from ...client.app import App
from ...extras import describe_install
from ..calls import Call, HttpCall
from ..problems import Problem, declare_problem
from ..routing import RouteGroup
from ..scopes import Needs, Scope

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
