"""The resources of the API, a file each."""

from ..routing import RouteGroup
from .document import document
from .health import health
from .submissions import submissions
from .task_verbs import task_verbs
from .tasks import tasks
from .tokens import tokens

GROUPS: tuple[RouteGroup, ...] = (health, document, submissions, tasks, task_verbs, tokens)
