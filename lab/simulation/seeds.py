"""The world of each seed."""

from .stream import StreamWorld, is_stream
from .world import Result, World


def run_seed(seed: int) -> Result:
    """Run one seed."""
    return (StreamWorld(seed) if is_stream(seed) else World(seed)).run()
