"""The resources of the API, a file each."""

from ..routing import RouteGroup
from .health import health
from .tasks import tasks
from .tokens import tokens

GROUPS: tuple[RouteGroup, ...] = (health, tasks, tokens)
