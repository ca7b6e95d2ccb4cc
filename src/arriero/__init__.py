"""arriero: a set of distributed actions as one operation, done as a whole or undone as a whole."""

from .app import App
from .attempt import Attempt, Undo
from .bulk import Acted, Tasks
from .calls import StepCall, WorkflowCall
from .context import convoy_state, keep_convoy_state, now, random, sleep, start, uuid
from .convoy import Convoy, ConvoyView
from .core.alerts import Alert
from .definitions import (
    Agent,
    AsyncStep,
    CompensationDecorator,
    Resource,
    Step,
    StepDecorator,
    SyncStep,
    Workflow,
    WorkflowDecorator,
    workflow,
)
from .errors import (
    AppCollision,
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
    UnreadableRow,
    VerbRefused,
)
from .joining import connect, transaction
from .later import ConvoyState
from .ledger import Entry, Ledger
from .model import Json, ProcessState
from .policies import ConvoyPolicy, Duration, Retry, Supervision
from .replies import Status
from .sync import SyncApp, SyncConvoy, SyncTask, SyncTasks
from .task import Task
from .task_view import FailureView, StepView, TaskView

__version__ = "0.4.0"

__all__ = [
    "Acted",
    "Agent",
    "Alert",
    "App",
    "AppCollision",
    "ArrieroError",
    "AsyncStep",
    "Attempt",
    "CompensationDecorator",
    "Convoy",
    "ConvoyPolicy",
    "ConvoyState",
    "ConvoyView",
    "DefinitionError",
    "Duration",
    "Entry",
    "FailureView",
    "ForbiddenInWorkflow",
    "IllegalTransition",
    "InvalidInput",
    "Json",
    "Ledger",
    "NotYetBuilt",
    "OutcomeUnknown",
    "Permanent",
    "ProcessState",
    "Resource",
    "Retry",
    "SchemaOutdated",
    "Status",
    "Step",
    "StepCall",
    "StepDecorator",
    "StepError",
    "StepFailed",
    "StepView",
    "StoreError",
    "Supervision",
    "SyncApp",
    "SyncConvoy",
    "SyncStep",
    "SyncTask",
    "SyncTasks",
    "Task",
    "TaskCompensated",
    "TaskFailed",
    "TaskView",
    "Tasks",
    "TransactionConflict",
    "Transient",
    "Undo",
    "UnknownTask",
    "UnreadableRow",
    "VerbRefused",
    "Workflow",
    "WorkflowCall",
    "WorkflowDecorator",
    "connect",
    "convoy_state",
    "keep_convoy_state",
    "now",
    "random",
    "sleep",
    "start",
    "transaction",
    "uuid",
    "workflow",
]
