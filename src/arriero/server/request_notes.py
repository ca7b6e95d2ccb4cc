"""Notes about a request for the access log and the metrics."""

from starlette.types import Scope

_KEY = "arriero.note"  # shared by all copies of the scope


class RequestNote:
    """``operation``: its name; ``caller``: who sends it; ``problem``: the code of its refusal. Empty: not known, or none."""

    def __init__(self) -> None:
        self.operation = ""
        self.caller = ""
        self.problem = ""


def attach_note(scope: Scope) -> tuple[Scope, RequestNote]:
    """Return the scope of a request with a note in it, and the note. A note that is there already stays."""
    note = get_note(scope)
    return {**scope, _KEY: note}, note


def get_note(scope: Scope) -> RequestNote:
    """Return the note of a request; a new one if nobody wants it."""
    found = scope.get(_KEY)
    return found if isinstance(found, RequestNote) else RequestNote()
