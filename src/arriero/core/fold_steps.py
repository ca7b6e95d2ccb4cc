"""What the events of steps and compensations say, and the invariants they show."""

from ..model import StepState, TaskState, Turn
from .fold import Event, StepFold, TaskFold


def opened(task: TaskFold, event: Event) -> None:
    step = StepFold(event)
    if step.ordinal != len(task.steps) + 1:
        task.convict("I22", f"step {step.ordinal} was opened after {len(task.steps)}")
    if step.idempotency_key:
        before = task.keys.setdefault(step.idempotency_key, step.ordinal)
        if before != step.ordinal:
            task.convict("I18", f"steps {before} and {step.ordinal} share an idempotency key")
    if step.kind != "compensation" and task.undo_began:
        task.convict("I31", f"step {step.ordinal} was opened after the undo began")
    task.steps[step.ordinal] = step


def dispatched(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    task.refuse_after_end(f"step {step.ordinal} dispatched")
    if step.state is StepState.PLANNED and step.kind == "compensation":
        step.state = StepState.PENDING  # its turn came in the same commit
    if step.state is not StepState.PENDING:
        task.convict("I7", f"step {step.ordinal} was dispatched while {step.state}")
    if event["fence"] <= step.fence:
        task.convict(
            "I11", f"step {step.ordinal} was dispatched under fence {event['fence']}, the highest was {step.fence}"
        )
    if task.paused:
        task.convict("I10", f"step {step.ordinal} was dispatched while a person kept the task paused")
    if task.turn is Turn.WAITING:
        task.convict("I40", f"step {step.ordinal} was dispatched while the task waited for its turn")
    if step.not_before is not None and task.at < step.not_before:
        task.convict("I10", f"step {step.ordinal} was dispatched at {task.at}, due at {step.not_before}")
    if event["attempt"] != step.attempt:
        task.convict("I22", f"step {step.ordinal}: attempt {event['attempt']} was dispatched, {step.attempt} was due")
    if event["key"] != step.idempotency_key:
        task.convict("I18", f"step {step.ordinal} was dispatched under another key than it was opened with")
    if event["complete_by"] <= task.at:
        task.convict("I19", f"step {step.ordinal} was dispatched with a deadline that had passed")
    if step.kind == "compensation":
        _judge_undo_order(task, step)
    elif task.undo_began:
        task.convict("I31", f"step {step.ordinal} was dispatched after the undo began")
    step.state, step.fence, step.complete_by = (
        StepState.RUNNING,
        max(step.fence, event["fence"]),
        event["complete_by"],
    )
    step.dispatched.add(event["fence"])


def _judge_undo_order(task: TaskFold, step: StepFold) -> None:
    plan = task.plan or []
    if step.ordinal not in plan:
        task.convict("I27", f"compensation {step.ordinal} was dispatched before it was planned")
        return
    for before in plan[: plan.index(step.ordinal)]:
        if task.steps[before].state is not StepState.COMPLETED:
            task.convict("I28", f"compensation {step.ordinal} was dispatched before {before} was done")


def report(task: TaskFold, event: Event) -> None:
    verdict, fence = event["verdict"], event["fence"]
    if verdict not in ("applied", "late", "stale", "duplicate", "unknown", "malformed"):
        task.convict("I16", f"a report has the verdict {verdict!r}")
    if verdict != "applied":
        return
    if event.get("kept"):
        task.convict("I13", f"a report of step {event['step']} was applied, and kept as a late answer besides")
    step = task.steps[event["step"]]
    if fence not in step.dispatched:
        task.convict("I16", f"a report of step {step.ordinal} under fence {fence} matches no dispatch")
    if fence != step.fence:
        task.convict(
            "I8", f"a report of step {step.ordinal} under fence {fence} was applied, the highest was {step.fence}"
        )
    if fence in step.applied:
        task.convict("I15", f"a report of step {step.ordinal} under fence {fence} was applied twice")
    if step.complete_by is not None and task.at >= step.complete_by:
        task.convict("I13", f"a report of step {step.ordinal} was applied after its deadline")
    step.applied.add(fence)


def recorded(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    _end_step(task, step, "recorded")
    step.state, step.in_doubt = StepState.COMPLETED, False


def failed(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    _end_step(task, step, "failed")
    if step.state is StepState.RUNNING:
        _count_failure(task, step, event)
    if event["failure"]["cause"] != "permanent" and event["failure"].get("code") not in (
        "not_taken",
        "unrecordable_result",
    ):
        _judge_rounds(task, step, "failed")
    _keep_doubt(task, step, event, "failed")
    step.failure_code = event["failure"].get("code", "")
    step.state = StepState.FAILED


def _end_step(task: TaskFold, step: StepFold, what: str) -> None:
    if step.state is StepState.COMPLETED:
        task.convict("I14" if what == "recorded" else "I20", f"step {step.ordinal} was {what} after it had a result")
    if task.state in (TaskState.PROCESSED, TaskState.COMPENSATED):
        task.convict("I2", f"step {step.ordinal} was {what} after the task was {task.state}")
    task.lost_count = 0
    step.complete_by = None
    task.news()


def _count_failure(task: TaskFold, step: StepFold, event: Event) -> None:
    step.failure_count += 1
    task.failure_count += 1
    if event["failure_count"] != step.failure_count:
        task.convict(
            "I23",
            f"step {step.ordinal}: failure_count is {event['failure_count']}, {step.failure_count} failures are recorded",
        )
    step.fence = max(step.fence, event["fence"])


def _judge_rounds(task: TaskFold, step: StepFold, what: str) -> None:
    """After ``step.failure_count`` failures: a plain retry inside a round, a cool-off after it, the end after the last."""
    if step.policy is None:
        return
    rounds, in_round = divmod(step.failure_count, step.policy.supervision.attempts)
    due = "retry" if in_round else "cool_off" if rounds < step.policy.supervision.rounds else "failed"
    if what != due:
        task.convict("I25", f"step {step.ordinal}: {what} after {step.failure_count} failures, its policy says {due}")


def expired_step(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    if event["why"] == "expired" and (step.complete_by is None or step.complete_by > task.at):
        task.convict("I24", f"step {step.ordinal} was recovered before its deadline")
    if event["fence"] <= step.fence:
        task.convict(
            "I6", f"step {step.ordinal} was recovered under fence {event['fence']}, the highest was {step.fence}"
        )
    step.fence = max(step.fence, event["fence"])


def recovered(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    fence, what = event["fence"], event["what"]
    if fence in step.recovered:
        task.convict("I24", f"step {step.ordinal} was recovered twice under fence {fence}")
    step.recovered.add(fence)
    _count_failure(task, step, event)
    if event["failure"]["cause"] == "permanent":
        task.convict("I26", f"step {step.ordinal} is retried after a permanent failure")
    step.attempt += 1
    _keep_doubt(task, step, event, "tried again")
    step.complete_by = None
    step.not_before = event["not_before"]
    if what != "error":
        _judge_rounds(task, step, what)
        step.state = StepState.PENDING


def lost_step(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    if event["fence"] <= step.fence:
        task.convict("I6", f"step {step.ordinal} was freed under fence {event['fence']}, the highest was {step.fence}")
    step.not_before = None
    step.lost_count += 1
    if event["lost_count"] != step.lost_count:
        task.convict(
            "I23",
            f"step {step.ordinal}: lost_count is {event['lost_count']}, {step.lost_count} losses are recorded",
        )
    step.fence, step.in_doubt, step.complete_by = max(step.fence, event["fence"]), True, None
    step.state = StepState.PENDING


def _keep_doubt(task: TaskFold, step: StepFold, event: Event, what: str) -> None:
    """Only a result, or a person, settles a doubt."""
    if step.in_doubt and not event["in_doubt"]:
        task.convict("I30", f"step {step.ordinal} was {what} and its doubt forgotten")
    step.in_doubt = event["in_doubt"]


def withdrawn(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    _keep_doubt(task, step, event, "withdrawn")
    step.state, step.complete_by = StepState.WITHDRAWN, None
    task.news()


def parked(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    step.state, step.complete_by = StepState.PLANNED, None


def reached(task: TaskFold, event: Event) -> None:
    task.steps[event["step"]].state = StepState.PENDING


def fired(task: TaskFold, event: Event) -> None:
    step = task.steps[event["step"]]
    task.refuse_after_end(f"timer {step.ordinal} fired")
    step.state = StepState.COMPLETED
