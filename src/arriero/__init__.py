"""arriero: a set of distributed actions as one operation, done as a whole or undone as a whole."""

from .app import App, Task, TaskView
from .attempt import Attempt, Undo
from .calls import StepCall, WorkflowCall
from .context import convoy_state, keep_convoy_state, now, random, sleep, start, uuid
from .definitions import Agent, AsyncStep, CompensationDecorator, Resource, Step, StepDecorator, SyncStep, Workflow, WorkflowDecorator, workflow
from .errors import (
    ArrieroError,
    DefinitionError,
    ForbiddenInWorkflow,
    IllegalTransition,
    InvalidInput,
    NotYetBuilt,
    OutcomeUnknown,
    Permanent,
    SchemaOutdated,
    StepError,
    StepFailed,
    StoreError,
    TaskCompensated,
    TaskFailed,
    TransactionConflict,
    Transient,
    UnknownTask,
)
from .policies import ConvoyPolicy, Duration, Retry, Supervision

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "App",
    "ArrieroError",
    "AsyncStep",
    "Attempt",
    "CompensationDecorator",
    "ConvoyPolicy",
    "DefinitionError",
    "Duration",
    "ForbiddenInWorkflow",
    "IllegalTransition",
    "InvalidInput",
    "NotYetBuilt",
    "OutcomeUnknown",
    "Permanent",
    "Resource",
    "Retry",
    "SchemaOutdated",
    "Step",
    "StepCall",
    "StepDecorator",
    "StepError",
    "StepFailed",
    "StoreError",
    "Supervision",
    "SyncStep",
    "Task",
    "TaskCompensated",
    "TaskFailed",
    "TaskView",
    "TransactionConflict",
    "Transient",
    "Undo",
    "UnknownTask",
    "Workflow",
    "WorkflowCall",
    "WorkflowDecorator",
    "convoy_state",
    "keep_convoy_state",
    "now",
    "random",
    "sleep",
    "start",
    "uuid",
    "workflow",
]
