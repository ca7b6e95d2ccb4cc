"""Takes that polls have caused: a poll waits for its own, and for the requests that it brings."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from ..model import StepRow
from .report_verdicts import AttemptIdentity


class TakeNumbers(Protocol):
    """The Takes of the process. ``answered``: how many have their answer."""

    answered: int

    def find_asking(self) -> int: ...


class TakeHost(Protocol):
    """The process whose Takes are awaited."""

    taker: TakeNumbers


class WaitingPoll(Protocol):
    """A poll. ``asked_with``: the Take that asks for it; 0: none is under way."""

    agent: str
    asked_with: int
    arrived: asyncio.Event


class AwaitedTakes:
    """Takes, and requests of theirs that cannot be handed out yet. ``polls``: those that are open, by Agent."""

    def __init__(self, host: TakeHost, polls: "Mapping[str, Iterable[WaitingPoll]]") -> None:
        self._host = host
        self._polls = polls
        self._coming: defaultdict[str, set[AttemptIdentity]] = defaultdict(set)

    def note_taken(self, step: StepRow) -> None:
        """Note a request that a Take has brought: its attempt begins within moments, and waits for a poll then."""
        if self._polls[step.agent]:
            self._coming[step.agent].add((step.step_no, step.fence))

    def note_begun(self, step: StepRow) -> None:
        """Note that a request of a Take was handed out, or that its attempt has ended before that."""
        coming = self._coming[step.agent]
        coming.discard((step.step_no, step.fence))
        if not coming:
            self._wake(self._polls[step.agent])

    def note_take_answered(self) -> None:
        """Let polls go whose time is over, and which only waited for the Take that they have caused."""
        asking, answered = self._host.taker.find_asking(), self._host.taker.answered
        for polls in self._polls.values():
            over = [poll for poll in polls if poll.asked_with and (answered >= poll.asked_with or not asking)]
            for poll in over:
                poll.asked_with = 0
            self._wake(over)

    @staticmethod
    def _wake(polls: Iterable[WaitingPoll]) -> None:
        for poll in polls:
            poll.arrived.set()

    def is_awaited_by(self, poll: WaitingPoll) -> bool:
        return poll.asked_with > 0 or bool(self._coming[poll.agent])
