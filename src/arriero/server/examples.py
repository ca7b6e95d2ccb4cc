"""Examples of answers for the OpenAPI document: each member has the value that ``TEXTS`` names, or an empty one of its type.

Tools that read the document send the id in an example as the id in a path, so none is empty.
"""

from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from ..client.agent_metrics import AgentMetrics
from ..client.agents import AgentView
from ..client.alerts import AlertCause, ListedAlert
from ..client.convoy import ConvoyView
from ..client.leases import LeaderView
from ..client.ledger import Ledger
from ..client.ledger_handle import LedgerView
from ..client.operator_acts import ActView
from ..client.overview import AgentRoom, HeldTask, LiveProcess, RetriedTask
from ..client.processes import ProcessView
from ..client.schedules import AskedRun, ScheduleView
from ..client.tokens import CreatedToken, TokenView
from ..core.alerts import Alert
from ..leases import LeaseView
from ..operations.convoys import ConvoyActAnswer

TEXTS: dict[type[msgspec.Struct], dict[str, Any]] = {
    AgentView: {"agent": "bank", "app": "shop", "state": "closed", "running": 2},
    AgentMetrics: {"agent": "bank", "app": "shop"},
    ConvoyActAnswer: {"key": "customer-7"},
    ConvoyView: {
        "no": 1,
        "key": "customer-7",
        "state": "open",
        "waiting_for": "task order-1001",
        "waiting": 2,
        "open_task": "order-1001",
        "next_tasks": ["order-1002", "order-1003"],
    },
    HeldTask: {"id": "order-1001", "workflow": "fulfil", "step": "charge", "reason": "the card has expired"},
    RetriedTask: {"id": "order-1002", "agent": "bank", "step": "charge", "attempt": 2, "failure_count": 1},
    AgentRoom: {"agent": "bank", "app": "shop", "health": 1.0, "free": 18, "places": 20},
    LiveProcess: {"no": 1, "name": "worker-1", "app": "shop", "roles": ["agents", "scheduler"], "is_alive": True},
    ActView: {"by": "ana", "verb": "resubmit", "kind": "task", "subject": "order-1001", "reason": "the card is valid"},
    ProcessView: {"process": 1, "name": "worker-1", "state": "alive", "app": "shop", "roles": ["agents", "scheduler"]},
    TokenView: {
        "id": "8c1f0a5e9b7d4c32",
        "name": "ci",
        "scopes": ["read", "submit"],
        "state": "valid",
        "created_by": "ana",
    },
    CreatedToken: {"token": "arriero_8c1f0a5e9b7d4c32_..."},
    LeaseView: {"name": "nightly", "provider": "store", "holder": "worker-1", "term": 3, "duration": 15.0},
    LeaderView: {"process": "worker-1", "term": 3, "until": "2026-11-20T14:20:17.5Z"},
    Alert: {"id": "alert-1-open", "task_id": "order-1001", "workflow": "fulfil", "cause": "step", "step": "charge"},
    ListedAlert: {
        "id": "alert-1-open",
        "task_id": "order-1001",
        "workflow": "fulfil",
        "cause": "step",
        "step": "charge",
        "number": 1,
        "delivered_to": ["log"],
        "command": "arriero task explain order-1001",
    },
    AlertCause: {
        "workflow": "fulfil",
        "cause": "bug",
        "code": "bug",
        "count": 180,
        "first_task": "order-1001",
        "reason": "TypeError: a release has a typo",
        "select": "--state held --workflow fulfil --code bug",
        "command": "arriero task resubmit --state held --workflow fulfil --code bug",
        "filter": {"state": "held", "workflow": "fulfil", "code": "bug"},
    },
    Ledger: {"accepted": 1},
    LedgerView: {"ledger": "payroll-11", "state": "done", "written": 3, "accepted": 3, "let_go": 3, "ended": True},
    ScheduleView: {
        "name": "nightly",
        "app": "shop",
        "workflow": "fulfil",
        "arguments": None,
        "cron": "0 3 * * *",
        "timezone": "UTC",
        "overlap": "skip",
        "priority": 5,
        "declared_in_code": True,
        "state": "active",
    },
    AskedRun: {"at": "2026-11-20T03:00:00Z", "task_id": "shop/nightly@2026-11-20T03:00:00Z", "outcome": "submitted"},
}
_ZERO: dict[Any, Any] = {
    str: "",
    int: 0,
    float: 0.0,
    bool: False,
    datetime: "2026-11-20T14:15:17.5Z",
    timedelta: "PT0S",
    tuple: [],
    list: [],
    dict: {},
}


def build_example(of: Any) -> Any:
    """Build a plain JSON value of a type, as an answer may hold it."""
    origin = get_origin(of)
    if origin is Annotated:
        return build_example(get_args(of)[0])
    if origin is Literal:
        return get_args(of)[0]
    if origin in (Union, UnionType):
        return None if NoneType in get_args(of) else build_example(get_args(of)[0])
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        values = {name: value for kind in of.__mro__ for name, value in TEXTS.get(kind, {}).items()}
        return {
            field.encode_name: values[field.name] if field.name in values else build_example(field.type)
            for field in msgspec.structs.fields(of)
            if field.name in values or field.required
        }
    if origin is tuple or origin is list:
        (kind, *_) = get_args(of)
        return [build_example(kind)] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []
    return _ZERO.get(origin or of)
