"""Tags of a task: names with a value each, by which operators find it, like the tenant that it is for.

A row keeps them as JSON text, an object with its names in order; null: the task has none.
"""

import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from ..errors import InvalidInput

TAGS_MAX = 20
NAME_LENGTH_MAX = 64
VALUE_LENGTH_MAX = 256
# A name is a word of a command line: it has no "=", and no "-" at its end. PostgreSQL's judged_tags has the same form.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,62}[A-Za-z0-9_])?")
_NAME_FORM = f"1 to {NAME_LENGTH_MAX} ASCII letters, digits and _ . / -, with a letter, a digit or _ at both ends"
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters and lone surrogates
_repr = reprlib.Repr()  # bad input in errors
_repr.maxstring = _repr.maxother = 60
_repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxdict = 3
_read = msgspec.json.Decoder(dict[str, str]).decode
_write = msgspec.json.Encoder(order="sorted").encode
Tags = Mapping[str, str]
TAGS_SCHEMA: dict[str, Any] = {
    "maxProperties": TAGS_MAX,
    "additionalProperties": {"type": "string", "minLength": 1, "maxLength": VALUE_LENGTH_MAX},
}


def check_tags(tags: object, what: str = "tags") -> dict[str, str]:
    """Check the tags of a task. ``what``: their name in errors. Returns them in the order of their names. Raises InvalidInput."""
    if not isinstance(tags, Mapping):
        raise InvalidInput(f"{what} is {_shorten(tags)}; it must map names to texts, like {{'tenant': 'acme'}}")
    for name, value in tags.items():
        check_tag_name(name, what)
        _check_value(name, value)
    refuse_many_tags(len(tags), what)
    return dict(sorted(tags.items()))


def refuse_many_tags(count: int, what: str) -> None:
    """Refuse more tags than a task may have. Raises InvalidInput."""
    if count > TAGS_MAX:
        raise InvalidInput(f"{what}: {count:,} tags; a task has at most {TAGS_MAX}")


def check_tag_name(name: object, what: str = "tags") -> str:
    """Check the name of a tag. Raises InvalidInput."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"{what}: {_shorten(name)} is not the name of a tag; use {_NAME_FORM}")
    return name


def _check_value(name: str, value: object) -> None:
    limit = f"a tag has one value, a text of 1 to {VALUE_LENGTH_MAX} characters"
    if not isinstance(value, str):
        raise InvalidInput(f"tag {name!r} has the value {_shorten(value)}; {limit}")
    if not 1 <= len(value) <= VALUE_LENGTH_MAX:
        raise InvalidInput(f"tag {name!r} has a value of {len(value):,} characters; {limit}")
    if refused := _REFUSED.search(value):
        raise InvalidInput(
            f"the value of tag {name!r} holds the character {refused[0]!a}; control characters are refused"
        )


def _shorten(value: object) -> str:
    return _repr.repr(value)


def encode_tags(tags: Tags) -> str | None:
    """Encode checked tags as a row keeps them; None: there are none."""
    return _write(tags).decode() if tags else None


def read_tags(text: str | None) -> dict[str, str]:
    """Read the tags of a row. Raises msgspec.MsgspecError - the text is none of ours."""
    return {} if text is None else _read(text)


def check_tag_change(put: object, remove: object, name: Callable[[str], str] = str) -> None:
    """Check a change of tags. ``name``: how ``put`` and ``remove`` are called where they were given. Raises InvalidInput."""
    checked = check_tags(put, name("put"))
    if isinstance(remove, str) or not isinstance(remove, Collection):
        raise InvalidInput(f"{name('remove')} is {_shorten(remove)}; give a list of the names of tags")
    for each in remove:
        if check_tag_name(each, name("remove")) in checked:
            raise InvalidInput(f"tag {each!r} is given a value and removed; do one of them")
    refuse_many_tags(len(remove), name("remove"))
    if not checked and not remove:
        raise InvalidInput(f"no tag is named; give {name('put')}, {name('remove')} or both")


def encode_changes(put: Tags, remove: tuple[str, ...]) -> str:
    """Encode a change of tags: an object with the new value of each name, null for a tag that is removed."""
    changes: dict[str, Any] = {**put, **dict.fromkeys(remove)}
    return _write(changes).decode()


def parse_tag(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``. Raises InvalidInput."""
    name, is_there, value = text.partition("=")
    if not is_there:
        raise InvalidInput(f"{_shorten(text)} is not a tag; write NAME=VALUE, like tenant=acme")
    _check_value(check_tag_name(name), value)
    return name, value


def gather_tags(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Gather tags that were given one by one. Raises InvalidInput - two values for one name."""
    tags: dict[str, str] = {}
    for name, value in pairs:
        if tags.setdefault(name, value) != value:
            raise InvalidInput(
                f"tag {name!r} is given twice, as {_shorten(tags[name])} and {_shorten(value)}; a tag has one value"
            )
    return tags


def format_tags(tags: Tags) -> str:
    """Format tags as a command line writes them: ``region=eu tenant=acme``."""
    return " ".join(f"{name}={value}" for name, value in sorted(tags.items()))


def format_change(before: Tags, after: Tags) -> str:
    """Format a change of tags with the old values: ``tenant=acme was globex; old=1 is removed``."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    parts = [_format_one_change(name, before.get(name), after.get(name)) for name in names]
    return "; ".join(parts) or "its tags stay as they were"


def _format_one_change(name: str, before: str | None, after: str | None) -> str:
    if after is None:
        return f"{name}={before} is removed"
    return f"{name}={after} {'is new' if before is None else f'was {before}'}"
