"""Takes requests of the Agents of one process from the store, as many as there are free places, one Take at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from ..core.capacity import Room
from ..model.answers import Answer, Dispatch, Taken
from ..model.commands import Take
from ..store.contract import Busy, Unwritten
from .hosted_agent import HostedAgent
from .ports import Timer
from .process_context import ProcessContext


class ReservedRoom(NamedTuple):
    """Places of one Agent that are kept for a Take, and that no other work may use meanwhile."""

    hosted: HostedAgent
    room: Room


class RequestTaker:
    """Takes requests from the store, one Take at a time. It keeps the places that a Take asks for until the Take is answered.

    Args:
        hosted: the Agents of this process by name, all there before the first Take.
        siblings: for each Agent of this process, those whose requests it may take over; an Agent without any is left out.
        find_suspect: finds a task on probation that has an attempt here, if there is one.
        on_taken: begins the attempt of a request that was taken.
        on_answered: called after each Take, when its answer was acted on.
    """

    def __init__(
        self,
        context: ProcessContext,
        hosted: Mapping[str, HostedAgent],
        *,
        siblings: Mapping[str, tuple[str, ...]],
        find_suspect: Callable[[], int | None],
        on_taken: Callable[[Dispatch], None],
        on_answered: Callable[[], None],
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._siblings = siblings
        self._find_suspect = find_suspect
        self._on_taken = on_taken
        self._on_answered = on_answered
        self._is_draining = False
        self._next_turn: set[HostedAgent] = set()  # Agents to ask for in the next turn of the event loop
        self._take_again = False
        self._timer: Timer | None = None  # until a rate lets the next call through, of whichever Agent
        self._timer_at = 0.0  # monotonic
        self._begun = 0  # Takes
        self.answered = 0  # of them, also those whose answer is lost
        self.asked: tuple[ReservedRoom, ...] = ()  # by the Take running
        self.unsure: tuple[ReservedRoom, ...] = ()  # by Takes whose answer was lost; the store is asked what those took

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(
            sorted({name for one in self._hosted.values() for name in one.agent.steps.keys() - one.without_url})
        )

    def drain(self) -> None:
        """Take nothing any longer."""
        self._is_draining = True

    def take_in_next_turn(self, hosted: HostedAgent) -> None:
        """Ask for requests of an Agent in the commit that opens one, or that reports the end of an attempt.

        What is put within one turn of the event loop is written with one commit. The Take stands behind it, so it finds the
        new request and the free slot.
        """
        if not self._next_turn:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._next_turn.add(hosted)

    def _begin_turn(self) -> None:
        for hosted in self._next_turn:
            hosted.note_news()
        self._next_turn.clear()
        self.take_soon()

    def take_soon(self) -> None:
        """Ask the store for requests, one Take at a time."""
        if self.asked:
            self._take_again = True
            return
        waiting = [one for one in self._hosted.values() if one.has_backlog and one.may_ask()]
        waiting.sort(key=lambda one: one.name)
        asked = tuple(one for one in map(self._build_asked_room, waiting) if one.room.total)
        if self._is_draining or not asked or not self._context.is_trusted():
            return
        self.asked, self._begun = asked, self._begun + 1
        retries: list[tuple[str, int]] = []
        for hosted, room in asked:
            hosted.keep(room)
            hosted.note_asked()
            if (allowed := hosted.retries.keep_for_take(room.total)) is not None:
                retries.append((hosted.name, allowed))
        command = Take(
            actor=self._context.actor,
            process_no=self._context.process_no,
            room=tuple((hosted.name, room.open) for hosted, room in asked),
            urgent=tuple((hosted.name, room.urgent) for hosted, room in asked if room.urgent),
            names=self._names,
            probation=self._find_suspect(),
            app=self._context.app,
            retries=tuple(retries),
            siblings=tuple(
                (hosted.name, self._siblings[hosted.name]) for hosted, _ in asked if hosted.name in self._siblings
            ),
        )
        self._context.committer.put(command, lambda answer: self._process_answer(asked, answer))

    def find_asking(self) -> int:
        """Return the number of the Take that asks for all that is wanted by now; 0: none is running."""
        return self._begun + self._take_again if self.asked else 0

    def _build_asked_room(self, hosted: HostedAgent) -> ReservedRoom:
        room, limit = hosted.compute_room(), self._context.settings.batch_max
        return ReservedRoom(hosted, Room(min(room.open, limit), min(room.urgent, limit)))

    def _process_answer(self, asked: tuple[ReservedRoom, ...], answer: Answer | BaseException) -> None:
        self.asked = ()
        self.answered += 1
        for hosted, room in asked:
            hosted.kept = 0
            if isinstance(answer, Busy | Unwritten):  # nothing was taken; the next poll asks again
                hosted.free(room)
                hosted.retries.settle_take(())
            elif not isinstance(answer, Taken):
                hosted.retries.lose_take()
        if isinstance(answer, Taken):
            self._process_taken(asked, answer)
        elif not isinstance(answer, Busy | Unwritten):
            self.unsure += asked  # what was taken, if anything, is found by reconciling; until then its place is kept
        self._on_answered()

    def _process_taken(self, asked: tuple[ReservedRoom, ...], answer: Taken) -> None:
        dispatches = answer.dispatches
        steps = [dispatch.step for dispatch in dispatches]
        for hosted, room in asked:
            hosted.breakers.learn(answer.breakers)
            hosted.retries.settle_take(steps)
            hosted.free(room)
        for step in steps:
            self._hosted[step.agent].use(step.priority)
        got, limited = Counter(step.agent for step in steps), {one.agent: one for one in answer.limited}
        may_wait: list[HostedAgent] = []
        for hosted, room in asked:
            if hosted.learn_limits(limited.get(hosted.name), has_got=got[hosted.name] > 0):
                continue  # its limits hold requests back, so it may have got fewer than it has room for
            if got[hosted.name] < room.open:
                hosted.has_backlog = False  # nothing waits for it any longer
            if got[hosted.name]:
                may_wait.append(hosted)
        waits = [one.next_in for one in answer.limited if one.is_full and one.next_in is not None]
        if waits:
            self._take_later(min(waits))
        for dispatch in dispatches:
            self._on_taken(dispatch)
        again, self._take_again = self._take_again, False
        if again or any(hosted.has_backlog for hosted in may_wait):
            self.take_soon()

    def _take_later(self, seconds: float) -> None:
        """Take again when a rate lets the next call through. A pending timer that ends earlier is kept."""
        at = self._context.clock.monotonic() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._context.clock.call_later(seconds, self._end_wait)

    def _end_wait(self) -> None:
        self._timer = None
        for hosted in self._hosted.values():
            if hosted.is_limited:
                hosted.note_news()
        self.take_soon()

    def free_reconciled_places(self, known: tuple[ReservedRoom, ...]) -> None:
        """Free the places kept for these lost answers: what they had taken is running by now.

        Others may have been lost since the store was asked: their places are kept until it is asked again.
        """
        for hosted, room in known:
            hosted.free(room)
        self.unsure = self.unsure[len(known) :]
        self.take_soon()
