"""Places of an Agent that are kept for urgent work: a rule of how many may be used, and by what.

``URGENT_FROM`` and higher priorities may use every place. Lower ones never use more than the places that are not reserved,
so what is urgent never waits for all places to be used by others.
"""

import msgspec

URGENT_FROM = 8  # the lowest priority that may use reserved places


class Room(msgspec.Struct, frozen=True):
    """Free places of an Agent: ``open`` to any priority; ``urgent``: only to urgent ones, besides those."""

    open: int
    urgent: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.open + self.urgent


def is_urgent(priority: int) -> bool:
    """Returns True if work of the priority may use reserved places."""
    return priority >= URGENT_FROM


def compute_room(*, places: int, reserved: int, used: int, used_by_others: int) -> Room:
    """Compute the free places of an Agent.

    Args:
        places: all of them.
        reserved: those that are kept for urgent work, fewer than ``places``.
        used: places in use.
        used_by_others: of these, those in use by work that is not urgent.
    """
    free = max(places - used, 0)
    open_to_all = max(min(free, places - reserved - used_by_others), 0)
    return Room(open_to_all, free - open_to_all)
