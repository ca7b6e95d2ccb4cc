"""Refusal of an App whose code has the names of another App's, the same for all stores."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..core.apps import find_name_conflict
from ..errors import AppCollision
from ..events.store import AppRenamed, ProcessStarted
from ..processes import ProcessAbout

read_about = msgspec.json.Decoder(ProcessAbout).decode


def refuse_collision(
    about: str, known: Iterable[str], count_unsaid: Callable[[Sequence[str]], Mapping[str, int]]
) -> None:
    """Raises AppCollision: see ``core.apps.find_name_conflict``, whose arguments these are, as JSON texts."""
    why = find_name_conflict(read_about(about), [_as_told(text) for text in set(known)], count_unsaid)
    if why is not None:
        raise AppCollision(why)


def _as_told(about: str) -> ProcessAbout:
    """A row that cannot be read tells of no App: it must not keep others from starting."""
    try:
        return read_about(about)
    except msgspec.MsgspecError:
        return ProcessAbout()


def process_started(process_no: int, about: str) -> ProcessStarted:
    """The event of a process start; with its App, where it names one."""
    return ProcessStarted(process_no, read_about(about).app)


def app_renamed(old: str, new: str, count: int, reason: str) -> AppRenamed:
    """The event of a store whose tasks of one App are another's from now on."""
    return AppRenamed(old, new, count, reason)
