"""Metrics for Prometheus."""

from weakref import WeakKeyDictionary

from starlette.responses import Response

from ...client.app import App
from ..calls import Call, HttpCall
from ..problems import Problem, declare_problem
from ..routing import RouteGroup
from ..scopes import Needs, Scope

metrics = RouteGroup("metrics")

NO_METRICS = declare_problem(
    "metrics-missing",
    501,
    "This server has no metrics",
    "Install the extra on the server: `pip install 'arriero[prometheus]'`.",
)
_collectors: WeakKeyDictionary[App, object] = WeakKeyDictionary()


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
    app = call.client
    assert isinstance(app, App)
    collector = _collectors.get(app)
    if collector is None:
        collector = _collectors[app] = MetricsCollector(app)
    assert isinstance(collector, MetricsCollector)
    return await collector.render(call.request.headers.get("accept", ""))
