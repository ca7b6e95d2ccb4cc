"""Bisection of a failed batch: it is written in halves until the failing command is alone."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import ArrieroError, InvalidInput, StoreError

C = TypeVar("C")
A = TypeVar("A")


def in_halves(
    batch: Sequence[C], write: Callable[[Sequence[C]], list[A]], as_answer: Callable[[ArrieroError], A]
) -> list[A]:
    """Each half in a transaction of its own; answers in order. What becomes of one half is no news of the other.

    So nothing is raised once a half may be committed: whoever sent the batch again would be told of its own commit as
    of somebody else's.

    Args:
        batch: at least two.
        write: one transaction, or several. Any error but a StoreError: nothing of it was written, and one alone is to blame.
        as_answer: of an error, what each command that it is about is told.
    """
    middle = len(batch) // 2
    answers: list[A] = []
    for half in (batch[:middle], batch[middle:]):
        try:
            answers += write(half)
        except StoreError as error:
            answers += [as_answer(error) for _ in half]
        except Exception as error:
            if len(half) > 1:
                answers += in_halves(half, write, as_answer)
                continue
            known = error if isinstance(error, ArrieroError) else InvalidInput(f"it could not be written: {error!r}")
            answers.append(as_answer(known))
    return answers
