"""Limits of Agents in a world: each process start declares some of them, so the newest ones hold, whichever those are."""

from random import Random

import msgspec

from arriero.declare.limits import Concurrent, Limit, Rate, encode_policies
from arriero.declare.steps import Agent
from arriero.model.processes import ProcessAbout

SHARE = 0.3  # of the seeds with operators

_of_part = Concurrent(1, key=lambda n, *_: f"part-{n % 2}", name="of part")
VARIANTS: dict[str, tuple[tuple[Limit, ...], ...]] = {
    "left": ((Concurrent(3), Rate(6, per=2)), (Concurrent(2),), ()),
    "right": ((Concurrent(2), _of_part), (_of_part, Rate(2, per=1)), (Concurrent(1),)),
}


class LimitedAgents:
    """The limits of one world. ``random``: draws what each process start declares."""

    def __init__(self, agents: tuple[Agent, ...], random: Random, *, is_limited: bool) -> None:
        self._agents = agents
        self._random = random
        self._is_limited = is_limited
        # In some worlds the code that opens steps knows of no limits: it is of the release before.
        knows = is_limited and random.random() < 0.7
        for agent in agents:
            variants = VARIANTS.get(agent.name, ())
            agent.limits = next((one for one in variants if len(one) > 1), ()) if knows else ()

    def describe(self, app: str, workflows: tuple[str, ...]) -> str:
        """What a process start says of itself, as JSON text."""
        about = ProcessAbout(app=app, workflows=workflows)
        if self._is_limited:
            chosen = {name: self._random.choice(variants) for name, variants in VARIANTS.items()}
            steps = tuple((agent.name, step) for agent in self._agents for step in agent.steps)
            limits = {name: encode_policies(one) for name, one in chosen.items() if one}
            about = msgspec.structs.replace(about, steps=steps, limits=limits)
        return msgspec.json.encode(about).decode()


def draw_limits(agents: tuple[Agent, ...], seed: int, *, may_be_limited: bool) -> LimitedAgents:
    """Draw whether the Agents of a world have limits. A source of its own leaves worlds without them as they were."""
    random = Random(f"limits-{seed}")
    return LimitedAgents(agents, random, is_limited=random.random() < SHARE and may_be_limited)
