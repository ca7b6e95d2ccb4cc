"""Answers that hold payloads or reasons and are of the server alone."""

from datetime import datetime

import msgspec

from ..client.task_explanation import ShownAct, ShownReason, ShownResult
from ..operations.declaration import Payloads


class EndAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a task. A processed task has an ``output``; others have ``public``, ``reason``, ``step`` and ``code``.

    ``public``: what a customer may read of the failure. ``reason``: for operators; empty if the token lacks the scope read.
    ``payloads``: ``withheld`` if the token lacks the scope read-payloads; then there is no output.
    """

    state: str
    ended_at: datetime | None = None
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""
    step: str = ""
    code: str = ""
    open_compensations: tuple[str, ...] = ()
    payloads: str = "included"
    public: str = ""


class ActionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verb: what it would do to the task now, and the members of its body that are needed; or why it would be refused."""

    verb: str
    does: str
    path: str = ""
    step: str = ""
    needs: tuple[str, ...] = ()
    refused: str = ""


class ExplanationAnswer(msgspec.Struct, frozen=True):
    """Reasons for the state of a task, the most important first; acts of people; verbs that would move it."""

    id: str
    workflow: str
    state: str
    incarnation: int
    now: datetime
    reasons: tuple[ShownReason, ...]
    people: tuple[ShownAct, ...]
    verbs: tuple[ActionAnswer, ...]
    payloads: Payloads
    results: tuple[ShownResult, ...] | msgspec.UnsetType = msgspec.UNSET
    output: msgspec.Raw | msgspec.UnsetType | None = msgspec.UNSET
