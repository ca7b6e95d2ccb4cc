"""What the stores share about Apps that come to a store together."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..core.apps import NOT_SAID, why_not_alone
from ..core.telling import Event
from ..errors import AppCollision
from ..model import ProcessAbout

_read_about = msgspec.json.Decoder(ProcessAbout).decode


def refuse_collision(
    about: str, known: Iterable[str], count_unsaid: Callable[[Sequence[str]], Mapping[str, int]]
) -> None:
    """Raises AppCollision: see ``core.apps.why_not_alone``, whose arguments these are, as JSON texts."""
    why = why_not_alone(_read_about(about), [_as_told(text) for text in set(known)], count_unsaid)
    if why is not None:
        raise AppCollision(why)


def _as_told(about: str) -> ProcessAbout:
    """A row that cannot be read tells of no App: it must not keep others from starting."""
    try:
        return _read_about(about)
    except msgspec.MsgspecError:
        return ProcessAbout()


def process_started(process_no: int, about: str) -> Event:
    """The event of a process start; with its App, where it names one."""
    app = _read_about(about).app
    event: Event = {"type": "process.started", "process": process_no}
    return event if app == NOT_SAID else {**event, "app": app}


def app_renamed(old: str, new: str, count: int, reason: str) -> Event:
    """The event of a store whose tasks of one App are another's from now on."""
    return {"type": "app.renamed", "from": old, "app": new, "tasks": count, "reason": reason}
