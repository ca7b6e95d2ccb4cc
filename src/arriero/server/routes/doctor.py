"""Findings of the doctor about a store and its surroundings."""

from typing import Any

from ...client.diagnosis import (
    Diagnosis,
    build_diagnosis,
    diagnose_machine,
    diagnose_tasks,
    list_steps_not_undoable,
)
from ...client.session import Session
from ...config import MEMORY
from ...explain.doctor import Finding
from ...store.masking import mask_url
from ..calls import Call
from ..routing import RouteGroup
from ..scopes import Needs, Scope

doctor = RouteGroup("doctor")

EXAMPLE: dict[str, Any] = {
    "store": "postgresql://shop@db.example.com/shop",
    "healthy": False,
    "findings": [
        {
            "level": "care",
            "about": "errors",
            "says": "2 tasks are in error",
            "remedy": "arriero task list --state error",
        }
    ],
}


@doctor.operation(
    "GET",
    "/v1/doctor",
    Needs(Scope.READ),
    summary="What needs care in the store, on its machine and in the processes that work on it.",
    answer=Diagnosis,
    answer_example=EXAMPLE,
)
async def diagnose(call: Call) -> Diagnosis:
    session = call.session
    findings = await _diagnose_machine(session)
    findings += await diagnose_tasks(session.store, list_steps_not_undoable(session.agents))
    return build_diagnosis(session.store.url, findings)


async def _diagnose_machine(session: Session) -> list[Finding]:
    """Diagnose the file or server of the store. A server's URL without its password is of no use to ask it."""
    shown = session.store.url
    configured = session.configure().store
    is_configured = mask_url(configured) == mask_url(shown)
    if shown == MEMORY or not (is_configured or shown.startswith("sqlite:")):
        return []
    return (await diagnose_machine(configured if is_configured else shown))[0]
