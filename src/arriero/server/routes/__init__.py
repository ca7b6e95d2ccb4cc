"""The resources of the API, a file each."""

from ..routing import RouteGroup
from .acts import acts
from .agent_requests import agent_requests
from .agents import agents
from .callbacks import callbacks
from .code_versions import code_versions
from .convoys import convoys
from .forks import forks
from .health import doctor, document, health, metrics
from .leases import alerts, leases
from .ledgers import ledgers
from .processes import processes
from .questions import questions
from .replies import replies
from .schedules import schedules
from .submissions import submissions
from .task_changes import stream_changes as stream_changes  # it adds its route to ``tasks``
from .task_inputs import show_task_inputs as show_task_inputs  # it adds its route to ``tasks``
from .task_signals import task_signals
from .task_verbs import task_verbs
from .tasks import tasks
from .tokens import tokens
from .workflows import workflows

GROUPS: tuple[RouteGroup, ...] = (
    health,  # attackers ask for it, too, and it needs no token
    agent_requests,  # the first that fits is taken: those that are called most stand first
    submissions,
    callbacks,
    tasks,
    task_signals,
    task_verbs,
    forks,
    questions,
    replies,
    convoys,
    ledgers,
    schedules,
    agents,
    workflows,
    code_versions,
    processes,
    leases,
    alerts,
    doctor,
    acts,
    tokens,
    metrics,
    document,
)
