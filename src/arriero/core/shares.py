"""Division of a process's room for tasks between workflows that compete for it."""

from collections.abc import Mapping


def divide_room(room: int, weights: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Divide free places by weight, so that what each holds afterwards is as near to its weight as possible.

    Each place goes to the one that holds the least for its weight; of two that hold the same, to the one that comes first.

    Args:
        room: free places.
        weights: of those that want places, each at least 1.
        held: how many places each has already.
    Returns: how many of the free places each gets; all of them are given if anybody wants one.
    """
    granted = dict.fromkeys(weights, 0)
    for _ in range(room if weights else 0):
        poorest = min(weights, key=lambda name: (held.get(name, 0) + granted[name]) / weights[name])
        granted[poorest] += 1
    return granted
