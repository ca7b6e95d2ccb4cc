"""The resources of the API, a file each."""

from ..routing import RouteGroup
from .tasks import tasks

GROUPS: tuple[RouteGroup, ...] = (tasks,)
