"""What the events of a convoy say in a task's story, in plain words."""

from collections.abc import Callable

from . import wording
from .fold import Event


def _placed(event: Event) -> str:
    number = event.get("sequence")
    where = f"at place {event['place']}" if number is None else f"with sequence {number}"
    ends = ", which nothing comes after" if event.get("end") else ""
    return f"it stands in convoy {event['key']} {where}{ends}"


def _opened(event: Event) -> str:
    return f"it is its turn in the convoy, from {wording.when(event['not_before'])} on"


def _closed(event: Event) -> str:
    return (
        "its turn in the convoy is over"
        if event["turn"] == "ended"
        else "it is set aside: its convoy goes on without it"
    )


def _stopped(event: Event) -> str:
    return f"its convoy stands still on it{' and is parked' if event['parked'] else ''}"


def _returned(event: Event) -> str:
    lost = ": others have gone before it, its place is lost" if event["place_lost"] else ""
    return f"it waits for its turn in the convoy again{lost}"


def _set_aside(event: Event) -> str:
    why = {"late": "it came too late", "ledger": "its convoy takes it no more"}.get(
        event["why"], "it failed while it waited"
    )
    return f"it is set aside without its turn: {why}"


CONVOY_SENTENCES: dict[str, Callable[[Event], str]] = {
    "convoy.placed": _placed,
    "convoy.opened": _opened,
    "convoy.closed": _closed,
    "convoy.stopped": _stopped,
    "convoy.mended": lambda event: "its convoy goes on with it",
    "convoy.returned": _returned,
    "convoy.left": lambda event: "it leaves its convoy before its turn, with nothing done",
    "convoy.set_aside": _set_aside,
    "convoy.moved": lambda event: "it comes before all others that wait in its convoy",
}
