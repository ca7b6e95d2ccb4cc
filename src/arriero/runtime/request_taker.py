"""Takes requests of the Agents of one process from the store, as many as there are free places, one Take at a time."""

from collections import Counter
from collections.abc import Callable, Mapping

from ..answers import Answer, Dispatch, Taken
from ..commands import AnyCommand, Take
from ..core.reserve import Room
from ..store.committer import Committer
from ..store.contract import Busy, Unwritten
from .agent_places import AgentPlaces, ReservedRoom
from .retry_budgets import RetryBudgets


class RequestTaker:
    """Takes requests from the store, one Take at a time. It keeps the places that a Take asks for until the Take is answered.

    Args:
        batch_max: requests of one Agent in one Take.
        siblings: for each Agent of this process, those whose requests it may take over; an Agent without any is left out.
        find_suspect: finds a task on probation that has an attempt here, if there is one.
        on_taken: begins the attempt of a request that was taken.
        on_answered: called after each Take, when its answer was acted on.
    """

    def __init__(
        self,
        places: AgentPlaces,
        *,
        committer: Committer[AnyCommand, Answer],
        actor: str,
        process_no: int,
        app: str,
        batch_max: int,
        retries: RetryBudgets,
        siblings: Mapping[str, tuple[str, ...]],
        is_trusted: Callable[[], bool],
        find_suspect: Callable[[], int | None],
        on_taken: Callable[[Dispatch], None],
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._places = places
        self._committer = committer
        self._actor = actor
        self._process_no = process_no
        self._app = app
        self._batch_max = batch_max
        self._retries = retries
        self._siblings = siblings
        self._is_trusted = is_trusted
        self._find_suspect = find_suspect
        self._on_taken = on_taken
        self._on_answered = on_answered
        self._names = tuple({name for agent in places.agents.values() for name in agent.steps})
        self._take_again = False
        self._begun = 0  # Takes
        self.answered = 0  # of them, also those whose answer is lost
        self.asked: tuple[ReservedRoom, ...] = ()  # by the Take under way
        self.unsure: tuple[ReservedRoom, ...] = ()  # by Takes whose answer was lost; the store is asked what those took

    def take_soon(self) -> None:
        """Ask the store for requests, one Take at a time."""
        if self.asked:
            self._take_again = True
            return
        places = self._places
        waiting = [
            name
            for name in sorted(places.backlog & places.agents.keys())
            if places.limits.may_ask(name) and places.breakers.may_ask(self._app, name)
        ]
        asked = tuple(map(self._build_asked_room, waiting))
        asked = tuple(one for one in asked if one.places)
        if not places.is_taking or not asked or not self._is_trusted():
            return
        self.asked, self._begun = asked, self._begun + 1
        places.keep(asked)
        for one in asked:
            places.limits.note_asked(one.agent)
        command = Take(
            actor=self._actor,
            process_no=self._process_no,
            room=tuple((one.agent, one.room.open) for one in asked),
            urgent=tuple((one.agent, one.room.urgent) for one in asked if one.room.urgent),
            names=self._names,
            probation=self._find_suspect(),
            app=self._app,
            retries=self._retries.keep_for_take((one.agent, one.places) for one in asked),
            siblings=tuple((one.agent, self._siblings[one.agent]) for one in asked if one.agent in self._siblings),
        )
        self._committer.put(command, lambda answer: self._process_answer(asked, answer))

    def find_asking(self) -> int:
        """Return the number of the Take that asks for all that is wanted by now; 0: none is under way."""
        return self._begun + self._take_again if self.asked else 0

    def _build_asked_room(self, agent: str) -> ReservedRoom:
        room, limit = self._places.compute_room(agent), self._batch_max
        return ReservedRoom(agent, Room(min(room.open, limit), min(room.urgent, limit)))

    def _process_answer(self, asked: tuple[ReservedRoom, ...], answer: Answer | BaseException) -> None:
        self.asked = ()
        self.answered += 1
        self._act_on(asked, answer)
        self._on_answered()

    def _act_on(self, asked: tuple[ReservedRoom, ...], answer: Answer | BaseException) -> None:
        if isinstance(answer, Busy | Unwritten):  # nothing was taken; the next poll asks again
            self._places.free(asked)
            self._retries.settle_take(())
        elif isinstance(answer, Taken):
            self._process_taken(asked, answer)
        else:
            self._retries.lose_take()
            self.unsure += asked  # what was taken, if anything, is found by reconciling; until then its place is kept

    def _process_taken(self, asked: tuple[ReservedRoom, ...], answer: Taken) -> None:
        places, dispatches = self._places, answer.dispatches
        places.breakers.learn([one.agent for one in asked], answer.breakers)
        self._retries.settle_take([dispatch.step for dispatch in dispatches])
        got = Counter(dispatch.step.agent for dispatch in dispatches)
        places.free(asked)
        for dispatch in dispatches:
            places.use(dispatch.step.agent, dispatch.step.priority)
        full = places.limits.learn([one.agent for one in asked], answer.limited)
        emptied = {one.agent for one in asked if got[one.agent] < one.room.open}  # nothing waits for them any more
        places.backlog.difference_update(emptied - full)
        for dispatch in dispatches:
            self._on_taken(dispatch)
        again, self._take_again = self._take_again, False
        if again or any(one.agent in places.backlog - full for one in asked if got[one.agent]):
            self.take_soon()

    def free_reconciled_places(self, known: tuple[ReservedRoom, ...]) -> None:
        """Free the places kept for these lost answers: what they had taken is under way by now.

        Others may have been lost since the store was asked: their places are kept until it is asked again.
        """
        self._places.free(known)
        self.unsure = self.unsure[len(known) :]
        self.take_soon()
