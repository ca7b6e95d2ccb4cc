"""The policy that holds for a task of a convoy."""

from msgspec.structs import replace

from ..model import ConvoyRow, TaskRow
from ..policies import ConvoyPolicy
from .supervision import decode_task_policy


def resolve_convoy_policy(convoy: ConvoyRow, task: TaskRow) -> ConvoyPolicy:
    """Return the policy for a task of a convoy: the convoy's own, else that of the task's workflow."""
    policy = decode_task_policy(task.policy).convoy
    given = {"head": convoy.on_head, "gap": convoy.on_gap, "gap_within": convoy.gap_within}
    return replace(policy, **{name: value for name, value in given.items() if value is not None})
