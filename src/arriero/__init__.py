"""arriero: a set of distributed actions as one operation, done as a whole or undone as a whole."""

from importlib import import_module
from typing import TYPE_CHECKING

from .client.app import App
from .client.convoy import Convoy, ConvoyOutcome, ConvoyView
from .client.external_transaction import connect, transaction
from .client.ledger import Entry, Ledger
from .client.replies import Status
from .client.row_shapes import FailureView
from .client.signals import SignalReceipt
from .client.task import Task
from .client.task_verbs import Acted
from .client.task_view import StepView, TaskView
from .client.tasks import Tasks
from .declare.attempt import Attempt, Undo
from .declare.compensation import CompensationDecorator
from .declare.context import (
    convoy_state,
    current_attempt,
    current_undo,
    keep_convoy_state,
    now,
    patched,
    publish,
    random,
    sleep,
    tags,
    uuid,
)
from .declare.limits import Concurrent, Rate
from .declare.resources import Resource
from .declare.signals import ReceivedRequest, Request, RequestValue, Signal, SignalValue, collect
from .declare.steps import (
    Agent,
    AsyncStep,
    AsyncStepWithoutAttempt,
    Step,
    StepCall,
    StepDecorator,
    SyncStep,
    SyncStepWithoutAttempt,
)
from .declare.workflows import ContinueAs, Workflow, WorkflowCall, WorkflowDecorator, workflow
from .errors import (
    AgentRequestRefused,
    AppCollision,
    ApprovalNeeded,
    ArrieroError,
    AttemptOver,
    CallbackRefused,
    ConvoyRefused,
    DefinitionError,
    ForbiddenInWorkflow,
    IdempotencyKeyBarred,
    IdempotencyKeyReused,
    IllegalTransition,
    InDoubt,
    InvalidArguments,
    InvalidInput,
    LeadershipLost,
    LeaseAccessDenied,
    LeaseRefused,
    LeaseUnavailable,
    MissingCompensationWarning,
    NotAllowed,
    OutcomeUnknown,
    Permanent,
    RequestRefused,
    SchemaOutdated,
    SequenceUsed,
    SignalRefused,
    SignalTimeout,
    StepError,
    StepFailed,
    StoreError,
    TaskCompensated,
    TaskExists,
    TaskFailed,
    TaskHeld,
    TooManyOpenTasks,
    TransactionConflict,
    Transient,
    UnknownDefinition,
    UnknownName,
    UnknownTask,
    UnreadableRow,
    VerbRefused,
    WorkflowPaused,
)
from .model import Json, ProcessState
from .model.policies import Adaptive, Breaker, ConvoyPolicy, Duration, Retry, Supervision
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .client.children import ChildView
    from .client.guarded import guarded, guarded_sync
    from .client.ledger_handle import LedgerView
    from .client.replaying import HeldOnReplay, ReplayReport
    from .client.sync import SyncApp, SyncConvoy, SyncTask, SyncTasks
    from .core.alerts import Alert
    from .declare.callbacks import Callback, callback
    from .declare.children import map
    from .declare.questions import ask
    from .idempotency import idempotent
    from .leases import DistributedMutex, Leadership
    from .payloads.upcasts import upcast
else:
    _LOADED_WHEN_USED = {
        "Alert": "core.alerts",
        "Callback": "declare.callbacks",
        "ChildView": "client.children",
        "DistributedMutex": "leases.mutex",
        "HeldOnReplay": "client.replaying",
        "Leadership": "leases.mutex",
        "LedgerView": "client.ledger_handle",
        "ReplayReport": "client.replaying",
        "callback": "declare.callbacks",
        "ask": "declare.questions",
        "map": "declare.children",
        "guarded": "client.guarded",
        "guarded_sync": "client.guarded",
        "SyncApp": "client.sync",
        "SyncConvoy": "client.sync",
        "SyncTask": "client.sync",
        "SyncTasks": "client.sync",
        "idempotent": "idempotency",
        "upcast": "payloads.upcasts",
    }

    def __getattr__(name: str) -> object:
        """Load a name that most programs do not use. Type checkers see the imports above instead."""
        if name not in _LOADED_WHEN_USED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_LOADED_WHEN_USED[name]}", __name__), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LOADED_WHEN_USED})


__all__ = [
    "Acted",
    "Adaptive",
    "Agent",
    "AgentRequestRefused",
    "Alert",
    "App",
    "AppCollision",
    "ApprovalNeeded",
    "ArrieroError",
    "AsyncStep",
    "AsyncStepWithoutAttempt",
    "Attempt",
    "AttemptOver",
    "Breaker",
    "Callback",
    "CallbackRefused",
    "ChildView",
    "CompensationDecorator",
    "Concurrent",
    "ContinueAs",
    "Convoy",
    "ConvoyOutcome",
    "ConvoyPolicy",
    "ConvoyRefused",
    "ConvoyView",
    "DefinitionError",
    "DistributedMutex",
    "Duration",
    "Entry",
    "FailureView",
    "ForbiddenInWorkflow",
    "HeldOnReplay",
    "IdempotencyKeyBarred",
    "IdempotencyKeyReused",
    "IllegalTransition",
    "InDoubt",
    "InvalidArguments",
    "InvalidInput",
    "Json",
    "Leadership",
    "LeadershipLost",
    "LeaseAccessDenied",
    "LeaseRefused",
    "LeaseUnavailable",
    "Ledger",
    "LedgerView",
    "MissingCompensationWarning",
    "NotAllowed",
    "OutcomeUnknown",
    "Permanent",
    "ProcessState",
    "Rate",
    "ReceivedRequest",
    "ReplayReport",
    "Request",
    "RequestRefused",
    "RequestValue",
    "Resource",
    "Retry",
    "SchemaOutdated",
    "SequenceUsed",
    "Signal",
    "SignalReceipt",
    "SignalRefused",
    "SignalTimeout",
    "SignalValue",
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
    "SyncStepWithoutAttempt",
    "SyncTask",
    "SyncTasks",
    "Task",
    "TaskCompensated",
    "TaskExists",
    "TaskFailed",
    "TaskHeld",
    "TaskView",
    "Tasks",
    "TooManyOpenTasks",
    "TransactionConflict",
    "Transient",
    "Undo",
    "UnknownDefinition",
    "UnknownName",
    "UnknownTask",
    "UnreadableRow",
    "VerbRefused",
    "Workflow",
    "WorkflowCall",
    "WorkflowDecorator",
    "WorkflowPaused",
    "ask",
    "callback",
    "collect",
    "connect",
    "convoy_state",
    "current_attempt",
    "current_undo",
    "guarded",
    "guarded_sync",
    "idempotent",
    "keep_convoy_state",
    "map",
    "now",
    "patched",
    "publish",
    "random",
    "sleep",
    "tags",
    "transaction",
    "upcast",
    "uuid",
    "workflow",
]
