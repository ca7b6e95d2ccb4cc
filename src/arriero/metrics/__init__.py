"""Metrics of a store and of this process for Prometheus. Needs the extra ``prometheus``.

Where the program has a separate exporter::

    from prometheus_client import REGISTRY
    from arriero.metrics import MetricsCollector

    REGISTRY.register(MetricsCollector(app))

On an event loop, for example in a route of a web server::

    metrics = MetricsCollector(app)
    body, content_type = await metrics.render(request.headers.get("accept", ""))
"""

from ..errors import describe_install

try:
    import prometheus_client as _prometheus_client  # noqa: F401  # one clear error before the modules below need it
except ImportError as missing:
    raise ImportError(f"arriero.metrics needs prometheus-client: {describe_install('prometheus')}") from missing

from .collector import MetricsCollector
from .families import FAMILIES, Family

__all__ = ["FAMILIES", "Family", "MetricsCollector"]
