"""Events of a convoy in a task's timeline, in plain words."""

from typing import assert_never

from ..events.convoy import (
    ConvoyClosed,
    ConvoyLeft,
    ConvoyMended,
    ConvoyMoved,
    ConvoyOpened,
    ConvoyPlaced,
    ConvoyReturned,
    ConvoySetAside,
    ConvoyStopped,
    EventOfTurn,
)
from ..text.format import format_instant


def describe_turn(event: EventOfTurn) -> str:
    """Describe the event for the task in whose history it stands."""
    match event:
        case ConvoyPlaced(sequence=number):
            where = f"at place {event.place}" if number is None else f"with sequence {number}"
            return f"it stands in convoy {event.key} {where}{', which nothing comes after' if event.end else ''}"
        case ConvoyOpened():
            return f"it is its turn in the convoy, from {format_instant(event.not_before)} on"
        case ConvoyClosed(turn="ended"):
            return "its turn in the convoy is over"
        case ConvoyClosed():
            return "it is set aside: its convoy goes on without it"
        case ConvoyStopped(parked=parked):
            return f"its convoy stands still on it{' and is parked' if parked else ''}"
        case ConvoyMended():
            return "its convoy goes on with it"
        case ConvoyReturned(place_lost=is_lost):
            lost = ": others have gone before it, its place is lost" if is_lost else ""
            return f"it waits for its turn in the convoy again{lost}"
        case ConvoyLeft():
            return "it leaves its convoy before its turn, with nothing done"
        case ConvoySetAside(why=why):
            return f"it is set aside without its turn: {_WHY_SET_ASIDE.get(why, 'it failed while it waited')}"
        case ConvoyMoved():
            return "it comes before all others that wait in its convoy"
        case _:
            assert_never(event)


_WHY_SET_ASIDE = {"late": "it came too late", "ledger": "its convoy takes it no more"}
