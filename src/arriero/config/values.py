"""One setting, and the kinds of values that settings have: how each is read, checked and shown.

A check that refuses raises UnfitValue, without the value: who calls it names the setting, where the value came from and what
it must be, and hides it when it is a secret.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ..core.lease import PROBATION_FROM
from ..errors import InvalidInput
from ..model.commands import PERSONS_MAX
from ..model.policies import SECONDS_MAX
from ..model.processes import DEPLOYMENT
from ..model.tags import check_tag_name
from ..runtime.settings import ROLES, check_roles
from ..text.escaping import mask_url, mask_webhook

COUNT_MAX = 1_000_000  # more than any process holds, and than one transaction should touch
TEXT_SHOWN_MAX = 200
SECRET_MASKED = "whsec_..."
LOCAL_NAME = "localhost"
LOG_FORMATS = ("text", "json")
FLAGS = {"true": True, "1": True, "false": False, "0": False}
PREFIX = "ARRIERO_"  # of variables of the environment


class UnfitValue(ValueError):
    """The value is not of its kind; a text, if any, says more than ``Kind.must_be``."""


class ValueKind(msgspec.Struct, frozen=True):
    """One kind of value.

    Args:
        must_be: completes "it must be", for errors and the reference.
        checked: the value of an API, a flag or a file in its own type. Raises UnfitValue.
        parsed: what the text of an environment variable stands for, before it is checked. Raises ValueError.
        is_secret: it is never shown.
        masked: a text of it as operators may see it.
    """

    must_be: str
    checked: Callable[[object], Any]
    parsed: Callable[[str], object] = str
    is_secret: bool = False
    mask: Callable[[str], str] = mask_url


class SettingInfo(msgspec.Struct, frozen=True):
    """The declaration of a setting, beside its name, its type and its default.

    Args:
        kind: how its values are read and checked.
        help: one line for operators.
        table: of ``arriero.toml``; empty for the top of the file.
        unit: of its numbers.
        flag: on the command line, where it is not the name.
    """

    kind: ValueKind
    help: str
    table: str = ""
    unit: str = ""
    flag: str = ""


class Setting(msgspec.Struct, frozen=True):
    """One setting, for the one who reads, prints or documents them all."""

    name: str  # in Configuration
    default: Any
    about: SettingInfo

    @property
    def key(self) -> str:
        """Name in its table of the file: ``keep_seconds``."""
        return self.name.removeprefix(f"{self.about.table}_")

    @property
    def path(self) -> str:
        """The name with its table: ``replies.keep_seconds``."""
        return f"{self.about.table}.{self.key}" if self.about.table else self.key

    @property
    def variable(self) -> str:
        """Name in the environment: ``ARRIERO_REPLIES_KEEP_SECONDS``."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Name of the option on the command line, where a command has it."""
        return self.about.flag or f"--{self.name.replace('_', '-')}"


def find_nearest(given: str, known: Iterable[str]) -> str | None:
    """The name that was likely meant: the same in another table, or one spelled alike."""
    from difflib import get_close_matches  # only for a refusal

    key = given.rpartition(".")[2]
    moved = [name for name in known if name.rpartition(".")[2] == key]
    return next(iter(moved or get_close_matches(given, list(known), 1)), None)


def mask_value(value: object, kind: ValueKind) -> Any:
    """A value of the kind as operators and programs may see it: no secret, and nobody's name and password in a URL."""
    if kind.is_secret:
        return SECRET_MASKED if value else value
    if isinstance(value, str):
        return kind.mask(value)
    return type(value)(mask_value(item, kind) for item in value) if isinstance(value, tuple | list) else value


def format_refused_value(value: object, kind: ValueKind) -> str:
    """A refused value, for an error."""
    if kind.is_secret:
        return "not shown here"
    try:
        text = repr(mask_value(value, kind))
    except ValueError:  # Python writes no number of that many digits
        return "a number too long to show"
    return text if len(text) <= TEXT_SHOWN_MAX else f"{text[:TEXT_SHOWN_MAX]}..."


def format_setting(setting: Setting, value: Any) -> str:
    """A value as an operator would write it; secrets masked, nothing as two quotation marks."""
    value = mask_value(value, setting.about.kind)
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return msgspec.json.encode(value).decode()


def _seconds(value: object) -> float:
    # The bounds come before float(): a file may hold a whole number that no float can. NaN fails them too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= SECONDS_MAX:
        raise UnfitValue
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_MAX:
        raise UnfitValue
    return value


def _losses(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not PROBATION_FROM < value <= COUNT_MAX:
        raise UnfitValue
    return value


def _persons(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PERSONS_MAX:
        raise UnfitValue
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UnfitValue
    return value


def _flag_of(text: str) -> bool:
    if text.lower() not in FLAGS:
        raise UnfitValue
    return FLAGS[text.lower()]


def _log_format(value: object) -> str:
    if not isinstance(value, str) or value not in LOG_FORMATS:
        raise UnfitValue
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _store(value: object) -> str:
    if not isinstance(value, str) or not _is_text(value) or not value:
        raise UnfitValue
    return value


def _app(value: object) -> str:
    if not isinstance(value, str) or not _is_text(value):
        raise UnfitValue
    module, _, attribute = value.partition(":")
    if value and not (module and attribute):
        raise UnfitValue
    return value


def _role_names(value: object) -> tuple[str, ...]:
    names = _read_items(value)
    if names is None or not all(map(_is_text, names)):
        raise UnfitValue
    try:
        chosen = check_roles(names)
    except InvalidInput as error:
        raise UnfitValue(str(error)) from error
    return tuple(role for role in ROLES if role in chosen)


def _role_names_of(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _program(value: object) -> tuple[str, ...]:
    words = _read_items(value)
    if words is None or not all(map(_is_text, words)) or (words and not words[0]):
        raise UnfitValue
    return words


def _program_of(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise UnfitValue from error


def _read_items(value: object) -> tuple[Any, ...] | None:
    """The items of what may stand for a list: a text and a table are none."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return None
    return tuple(value)


def _webhook_url(value: object) -> str:
    if not isinstance(value, str) or (value and not _is_safe_url(value)):
        raise UnfitValue
    return value


def _public_url(value: object) -> str:
    if not isinstance(value, str) or (value and not _is_plain_url(value)):
        raise UnfitValue
    return value.rstrip("/")


def _is_plain_url(url: str) -> bool:
    """Returns True for a URL to which a path can be added. Behind a proxy within a network it may be plain http."""
    return (
        url.startswith(("https://", "http://"))
        and not {"?", "#"} & set(url)
        and _is_safe_url(f"https://{url.partition('://')[2]}")
    )


def _is_safe_url(url: str) -> bool:
    from urllib.parse import urlsplit

    # urlsplit forgives what HTTP clients read in other ways: line ends, spaces, a backslash before the host.
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == LOCAL_NAME or ip_address(host).is_loopback
    except ValueError:  # another name: what it stands for may change
        return False


def _webhook_secret(value: object) -> str:
    if not isinstance(value, str) or (value and not _is_secret(value)):
        raise UnfitValue
    return value


def _is_secret(text: str) -> bool:
    from ..core.alerts import parse_signing_key  # only who sends alerts pays for it

    try:
        parse_signing_key(text)
    except InvalidInput:
        return False
    return True


def _deployment(value: object) -> str:
    if not isinstance(value, str) or (value and not DEPLOYMENT.fullmatch(value)):
        raise UnfitValue
    return value


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise UnfitValue
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise UnfitValue
    return value


def _header(value: object) -> str:
    if not isinstance(value, str) or value.lower() in _FOREIGN_HEADERS or (value and not _is_header_name(value)):
        raise UnfitValue
    return value.lower()


def _names(value: object) -> tuple[str, ...]:
    names = _read_items(value)
    if names is None or not all(isinstance(name, str) and name and name.isprintable() for name in names):
        raise UnfitValue
    return names


def _tag_names(value: object) -> tuple[str, ...]:
    names = _names(value)
    try:
        return tuple(dict.fromkeys(check_tag_name(name, "it") for name in names))
    except InvalidInput as error:
        raise UnfitValue(str(error)) from error


def _origins(value: object) -> tuple[str, ...]:
    names = tuple(name.lower() for name in _names(value))
    if {"*", "null"} & set(names):
        raise UnfitValue(
            "that is any page: each could act with the rights of its visitor; name the origins of your pages"
        )
    if not all(map(_is_origin, names)):
        raise UnfitValue
    return names


def _networks(value: object) -> tuple[str, ...]:
    from ipaddress import ip_network  # only who has a proxy pays for it

    names = _names(value)
    try:
        networks = [ip_network(name) for name in names]
    except ValueError as error:
        raise UnfitValue from error
    if any(network.prefixlen == 0 for network in networks):
        raise UnfitValue("that is any address: every client that reaches the port could name itself; name the proxies")
    return names


def _scopes(value: object) -> tuple[str, ...]:
    from ..core.tokens import check_scopes  # only who has a proxy pays for it

    names = _read_items(value)
    if names is None or not all(map(_is_text, names)):
        raise UnfitValue
    try:
        return check_scopes(names) if names else ()
    except InvalidInput as error:
        raise UnfitValue(str(error)) from error


PORT_MAX = 65_535
# Headers that say something else already, or that a proxy rewrites on its own.
_FOREIGN_HEADERS = ("authorization", "connection", "content-length", "cookie", "host", "origin", "transfer-encoding")
_is_header_name = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}", re.ASCII).fullmatch
_is_origin = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII).fullmatch
SECONDS = ValueKind("a number of seconds above 0, a century at most", _seconds, float)
COUNT = ValueKind(f"a whole number from 1 to {COUNT_MAX:,}", _count, int)
LOSSES = ValueKind(
    f"a whole number from {PROBATION_FROM + 1} to {COUNT_MAX:,}; from loss {PROBATION_FROM} on a task is handled alone, and only"
    " then is it known that the task caused the loss",
    _losses,
    int,
)
PERSONS = ValueKind(f"a whole number from 1 to {PERSONS_MAX}", _persons, int)
FLAG = ValueKind("true or false", _flag, _flag_of)
LOG_FORMAT = ValueKind(" or ".join(LOG_FORMATS), _log_format)
STORE = ValueKind(
    "the URL of a state store, sqlite:///PATH (four slashes for an absolute path) or postgresql://USER@HOST/DATABASE",
    _store,
)
APP = ValueKind("MODULE:APP, like shop:app", _app)
ROLE_NAMES = ValueKind(f"a list of some of {', '.join(ROLES)}", _role_names, _role_names_of)
PROGRAM = ValueKind('a list of texts, a program and its arguments, like ["notify", "--urgent"]', _program, _program_of)
WEBHOOK_URL = ValueKind(
    "an https:// URL without user and password, or an http:// one of this machine (localhost, 127.0.0.1, [::1])",
    _webhook_url,
    mask=mask_webhook,
)
PUBLIC_URL = ValueKind("an https:// or http:// URL without user, password, ? and #", _public_url)
WEBHOOK_SECRET = ValueKind("whsec_ and the base64 of 24 to 64 random bytes", _webhook_secret, is_secret=True)
DEPLOYMENT_NAME = ValueKind("up to 64 letters, digits, and . _ + - after the first one", _deployment)
PORT = ValueKind(f"a whole number from 0 to {PORT_MAX}; 0 stands for one that is free", _port, int)
TEXT = ValueKind("a text without control characters", _text)
HEADER = ValueKind("the name of a header that says nothing else, like X-Forwarded-User", _header)
NAMES = ValueKind("a list of texts", _names, _role_names_of)
TAG_NAMES = ValueKind('a list of names of tags, like ["tenant"]', _tag_names, _role_names_of)
ORIGINS = ValueKind("a list of origins without a path, like https://desk.example.com", _origins, _role_names_of)
NETWORKS = ValueKind('a list of addresses or networks, like ["127.0.0.1", "10.0.0.0/24"]', _networks, _role_names_of)
SCOPES = ValueKind("a list of scopes of tokens", _scopes, _role_names_of)
