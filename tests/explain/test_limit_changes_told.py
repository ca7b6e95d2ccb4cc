"""What an explanation tells of limits that operators changed."""

import msgspec

from arriero.events import encode_events
from arriero.events.step import StepAdjusted, StepOpened
from arriero.events.task import OperatorAction
from arriero.explain.past import TaskPast
from arriero.model import HistoryRow, Instant

AT = Instant(1_767_225_600_000_000)


def test_an_act_has_each_limit_that_it_changed_with_its_old_value() -> None:
    action = OperatorAction(
        verb="adjust", by="ana", reason="why", before="processing", after="processing", incarnation=1, fence=2,
        not_before=None, complete_by=AT, complete_by_before=None,
    )  # fmt: skip
    opened = StepOpened(1, "step", "charge", "#1")
    adjusted = StepAdjusted(1, limits={"attempts": 9}, before={"attempts": 3})
    events = (opened, action, adjusted)
    raw = msgspec.Raw(encode_events(events).encode())
    (act,) = TaskPast([HistoryRow(1, 1, "order", 1, AT, "operator", raw, "")]).acts
    assert act.changes == ("to be done by 2026-01-01 00:00:00Z (none before)", "step charge: attempts 9 (3 before)")
