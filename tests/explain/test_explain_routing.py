"""What people are told of a request that several Agents could take."""

import msgspec
from core_rows import NOW, loaded, step_row

from arriero.core.routing import INTERCHANGEABLE, PINNED, AgentReport, encode_reports
from arriero.explain.task import explain
from arriero.model import StepKind, StepRow, StepState, later
from arriero.model.processes import ProcessAbout, ProcessRow

GROUP = tuple(("payments", name, 1.0, 0) for name in ("payments", "payments-eu"))
FAR_PAST = later(NOW, -600)


def process(free: int = 1) -> ProcessRow:
    about = ProcessAbout(
        app="shop",
        roles=("agents", "scheduler", "supervisor"),
        workflows=("fulfil",),
        steps=(("payments-eu", "step1"),),
        providers=GROUP,
    )
    room = encode_reports({"payments-eu": AgentReport(free, 10)})
    return ProcessRow(1, "host-1-abcdef012345", later(NOW, 90), False, msgspec.json.encode(about).decode(), room)


def waiting(**changes: object) -> StepRow:
    fields: dict[str, object] = {"agent": "payments-eu", "state": StepState.PENDING, "not_before": FAR_PAST}
    return step_row(1, **(fields | {"routing": PINNED, "taken": False} | changes))


def said(step: StepRow, *processes: ProcessRow) -> str:
    task = loaded(step, locked_by=None, not_before=None)
    return next(reason.says for reason in explain(task, NOW, processes).reasons if reason.kind == "untaken")


def test_a_request_that_nobody_took_yet_tells_where_it_may_go() -> None:
    assert "; it may go to payments or payments-eu" in said(waiting(), process())


def test_one_that_was_taken_tells_why_it_stays() -> None:
    told = said(waiting(taken=True), process())
    assert "it goes to no other Agent: payments-eu took it before, and the step is not interchangeable" in told
    assert "it may go to payments or payments-eu" in said(waiting(taken=True, routing=INTERCHANGEABLE), process())


def test_a_compensation_tells_why_it_stays() -> None:
    told = said(waiting(kind=StepKind.COMPENSATION, undoes=1), process())
    assert "it goes to no other Agent: payments-eu did the step that it undoes" in told


def test_without_providers_nothing_is_said_of_them() -> None:
    assert "Agent: " not in said(waiting(agent="stock"), process()).split("hosts")[0]
    assert "may go to" not in said(waiting(agent="stock"), process())


def test_that_no_process_has_room_is_told() -> None:
    assert "no process that hosts Agent payments-eu has room: 10 places taken, or kept for more urgent ones" in said(
        waiting(), process(free=0)
    )
    assert "has no room at process 1" in said(waiting(), process(free=3)), "it does not answer"
