"""Retry for callers without a committer: they wait while another transaction holds the task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..answers import Answer, Refusal
from ..commands import AnyCommand
from ..errors import ArrieroError
from .committer import BUSY_SECONDS, BUSY_SECONDS_LONGEST, BUSY_SECONDS_MAX
from .contract import Busy

if TYPE_CHECKING:  # it loads the operations, which only who opens a store pays for
    from .state_store import StateStore


class RetryClock(Protocol):
    """The clock that a retry waits by."""

    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


async def apply_patiently(store: "StateStore", commands: Sequence[AnyCommand], clock: RetryClock) -> list[Answer]:
    """The answers, in order. Raises StoreError, Busy when another transaction keeps all of them."""
    since, pause = clock.monotonic(), BUSY_SECONDS
    answers = list(await store.apply(commands))
    while waiting := [at for at, answer in enumerate(answers) if isinstance(answer, Busy)]:
        if clock.monotonic() - since > BUSY_SECONDS_MAX:
            break
        await clock.sleep(pause)
        pause = min(pause * 2, BUSY_SECONDS_LONGEST)
        for at, answer in zip(waiting, await store.apply([commands[at] for at in waiting]), strict=True):
            answers[at] = answer
    return _collect_answers(answers)


def _collect_answers(answers: Sequence[Answer | ArrieroError]) -> list[Answer]:
    """An error is raised only where there is nothing else to tell: what was done is not kept from whoever asked."""
    errors = [answer for answer in answers if isinstance(answer, ArrieroError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    return [Refusal("busy", str(one)) if isinstance(one, ArrieroError) else one for one in answers]
