"""Places of Agents with adaptive concurrency, in one process: how many there are just now."""

import logging
from collections.abc import Callable, Iterable

from ..breakers import FAILED_ENDS
from ..core.adaptive_concurrency import Concurrency, add_ended_call, begin_concurrency
from ..declare.steps import Agent
from ..rate_limited_log import RateLimitedLog

logger = logging.getLogger("arriero")
TOLD_FACTOR = 1.5  # between two lines of the log about one Agent: smaller moves are everyday


class AdaptivePlaces:
    """Counts the places of Agents with adaptive concurrency. Other Agents have ``max_in_flight`` places, always."""

    def __init__(self, agents: Iterable[Agent], monotonic: Callable[[], float]) -> None:
        self._log = RateLimitedLog(logger, monotonic, logging.INFO)
        self._states: dict[str, Concurrency] = {}
        for agent in agents:
            if agent.adaptive is not None:
                self._states[agent.name] = begin_concurrency(agent.adaptive)
        self._told = {name: state.places for name, state in self._states.items()}

    def count_places(self, agent: Agent) -> int:
        """Count the places that an Agent has now."""
        state = self._states.get(agent.name)
        return agent.max_in_flight if state is None else state.places

    def note_call(self, agent: Agent, end: str, seconds: float, in_flight: int) -> None:
        """Note a call that has ended; ``end`` as of ``EndedCall``."""
        state = self._states.get(agent.name)
        if state is None or agent.adaptive is None:
            return
        state = self._states[agent.name] = add_ended_call(
            state,
            agent.adaptive,
            agent.max_in_flight,
            seconds=seconds,
            has_failed=end in FAILED_ENDS,
            in_flight=in_flight,
        )
        before = self._told[agent.name]
        if not before / TOLD_FACTOR < state.places < before * TOLD_FACTOR:
            self._told[agent.name] = state.places
            why = (
                "its service answers as fast as always" if state.places > before else "its service slows down or fails"
            )
            self._log.tell(
                agent.name,
                f"Agent {agent.name} now makes {state.places} calls at once in this process, before {before}: {why}; its"
                f" bounds are {agent.adaptive.minimum} and {agent.max_in_flight}",
            )

    def flush(self) -> None:
        """Write what is due of the log; to be called again and again."""
        self._log.flush()
