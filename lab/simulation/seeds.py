"""The world of each seed."""

from .leaderless import LeaderlessWorld
from .stream import StreamWorld, is_stream
from .world import Result, World


def run_seed(seed: int, *, has_election: bool = True) -> Result:
    """Run one seed. Without ``has_election`` every Supervisor acts, no matter who leads."""
    if not has_election:
        return LeaderlessWorld(seed).run()
    return (StreamWorld(seed) if is_stream(seed) else World(seed)).run()
