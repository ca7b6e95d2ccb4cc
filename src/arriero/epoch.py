"""Epochs: the lives of a store. Restoring it from a backup opens the next one.

What happened after the backup is forgotten by the store, but not by the world: processes still run, services have seen
idempotency keys, submitters know numbers. So whoever spoke in an earlier epoch is refused, and numbers that may have
been given in the time that was lost are not given again.
"""

FIRST = 1
NUMBERS_BITS = 32  # a task's number stays below 2 ** 43, since a step's number holds it and 20 bits more


def compute_first_number(epoch: int) -> int:
    """Return the first number of tasks and processes of an epoch.

    Args:
        epoch: 1, 2, ...; up to 2,000.
    """
    return 1 if epoch == FIRST else (epoch - FIRST) << NUMBERS_BITS


def describe_epoch_refusal(spoken_in: int, epoch: int) -> str:
    """Return why a process that speaks in one epoch is refused in another."""
    return f"this process is of epoch {spoken_in}, the store is in epoch {epoch} since it was restored"
