"""The base of all events of a history."""

from typing import Any

import msgspec

Hash = str | None  # of a payload, see ``history_chain.payload_hash``


class HistoryEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """One event of a history, encoded as a JSON object whose first field is its ``type``.

    The text of the events is hashed, so two things must never change: the order of a class's fields, and which of them are
    left out. A field with a default is left out when it has that default. ``UNSET`` is the default of a field that may be
    ``null`` as well, and of a field that earlier releases did not write.

    A class is named as its type in CamelCase: ``TaskClaimed`` is ``task.claimed``. ``Event`` stands behind the name where
    another class of arriero has it.
    """

    @property
    def type(self) -> str:
        """The type as it stands in the JSON."""
        return str(self.__struct_config__.tag)


class UnreadableEvent(msgspec.Struct, frozen=True):
    """An event as it was found that this release cannot read.

    Args:
        type: as it stands there; empty where there is none.
        fields: all of it, with its type.
        error: what is wrong with it; empty for a type that this release does not know.
    """

    type: str
    fields: dict[str, Any]
    error: str = ""
