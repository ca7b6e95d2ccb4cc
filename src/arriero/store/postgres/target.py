"""A store's address: one URL, without the parameters that are arriero's own.

The URL is cut by hand, by libpq's rules and not by those of the web: a host may be empty or several, ``+`` is a plus.
What could be cut in two ways is refused without showing it, for a password may be in it.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from ...errors import InvalidInput

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
# What PostgreSQL takes unquoted as anything but a name.
RESERVED = frozenset(
    (
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "binary",
    "both", "case", "cast", "check", "collate", "collation", "column", "concurrently", "constraint", "create",
    "cross", "current_catalog", "current_date", "current_role", "current_schema", "current_time",
    "current_timestamp", "current_user", "default", "deferrable", "desc", "distinct", "do", "else", "end", "except",
    "false", "fetch", "for", "foreign", "freeze", "from", "full", "grant", "group", "having", "ilike", "in",
    "initially", "inner", "intersect", "into", "is", "isnull", "join", "lateral", "leading", "left", "like",
    "limit", "localtime", "localtimestamp", "natural", "not", "notnull", "null", "offset", "on", "only", "or",
    "order", "outer", "overlaps", "placing", "primary", "references", "returning", "right", "select",
    "session_user", "similar", "some", "symmetric", "system_user", "table", "tablesample", "then", "to", "trailing",
    "true", "union", "unique", "user", "using", "variadic", "verbose", "when", "where", "window", "with",
    "information_schema",
    )
)  # fmt: skip
_HOST = r"(?:\[[0-9A-Fa-f:.%]*\]|[^@/?,:\[\]]*)(?::[0-9]*)?"
_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?)://"
    r"(?:(?P<user>[^@:/?]*)(?::(?P<password>[^@/?]*))?@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?:/(?P<database>[^@/?]*))?"
    r"(?:\?(?P<query>(?:[A-Za-z_]+=[^&]*(?:&|$))*))?"
)
_NO_CODE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00|\0|[\ud800-\udfff]")
_SECRET = re.compile(r"pass|secret|scram", re.IGNORECASE)
_OURS = ("schema", "listen", "listen_url", "prepare")
_SWITCH = {"on": True, "off": False}

# What bounds a wait for a host that does not answer, unless the URL says otherwise.
DEFAULTS: Mapping[str, str] = {
    "application_name": "arriero",
    "connect_timeout": "5",
    "client_encoding": "utf8",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A store on a server.

    Args:
        conninfo: for the driver, with arriero's defaults.
        shown: the URL as errors may show it, without a password.
        schema: in which arriero's tables are.
        listen: whether other processes' wake-ups are listened for; polling is the truth behind them.
        listen_conninfo: for that connection; a pooler in transaction mode cannot carry it.
        prepare: whether statements are prepared; None: on a connection without a pooler in between, since one in
            transaction mode cannot carry them before PgBouncer 1.21.
    """

    conninfo: str
    shown: str
    schema: str
    listen: bool
    listen_conninfo: str
    prepare: bool | None

    def __repr__(self) -> str:  # without a password, in whatever trace or log it comes to stand
        return f"<target {self.shown}>"

    @property
    def channel(self) -> str:
        """The channel of wake-ups."""
        return f"{self.schema}_wake_up"


class _Cut(msgspec.Struct, frozen=True):
    """A URL in two parts: all before its parameters, and those, as they are written."""

    place: str
    place_shown: str
    parameters: tuple[tuple[str, str], ...]

    def get_parameter(self, name: str) -> str | None:
        """The value of a parameter; the last one counts."""
        found = [unquote(value) for key, value in self.parameters if key == name]
        return found[-1] if found else None

    def without_ours(self) -> str:
        return _join_url(self.place, [pair for pair in self.parameters if pair[0] not in _OURS])

    def mask(self) -> str:
        return _join_url(self.place_shown, [(name, _mask_parameter(name, value)) for name, value in self.parameters])


def target_of(url: str) -> Target:
    """The target that a URL means.

    Args:
        url: ``postgresql://user@host1,host2/database?schema=arriero&listen=on&listen_url=...&prepare=off`` and all that
            libpq takes besides.
    Raises: InvalidInput - it cannot be read.
    """
    cut = _cut(url, "store")
    shown = cut.mask()
    schema = cut.get_parameter("schema")
    if schema is None:
        schema = "arriero"
    if not SCHEMA.fullmatch(schema) or schema in RESERVED or schema.startswith("pg_"):
        raise InvalidInput(
            f"store {shown}: schema={schema!r} is not a name for a schema; use up to 48 small letters, digits and underscores,"
            " and no word that SQL keeps for itself"
        )
    plain = cut.without_ours()
    listen_url = cut.get_parameter("listen_url")
    conninfo = _with_defaults(plain, shown)
    return Target(
        conninfo=conninfo,
        shown=shown,
        schema=schema,
        listen=_switch(cut, "listen", True),
        listen_conninfo=conninfo if listen_url is None else _listen_conninfo(listen_url),
        prepare=None if cut.get_parameter("prepare") is None else _switch(cut, "prepare", False),
    )


def _cut(url: str, what: str) -> _Cut:
    found = None if _NO_CODE.search(url) else _URL.fullmatch(url)
    if found is None:
        raise InvalidInput(
            f"{what}: its URL cannot be read (it is not shown, as a password may be in it); use"
            " postgresql://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE with each @ / ? & % in a name, password or value"
            " as %40 %2F %3F %26 %25"
        )
    part = {name: text or "" for name, text in found.groupdict().items()}
    has_password, has_user = found["password"] is not None, found["user"] is not None
    user = part["user"] + (f":{part['password']}" if has_password else "") + ("@" if has_user else "")
    shown = part["user"] + (":***" if has_password else "") + ("@" if has_user else "")
    rest = part["hosts"] + ("" if found["database"] is None else f"/{part['database']}")
    pairs = [pair.partition("=") for pair in part["query"].split("&") if pair]
    return _Cut(
        f"{part['scheme']}://{user}{rest}",
        f"{part['scheme']}://{shown}{rest}",
        tuple((name, value) for name, _, value in pairs),
    )


def _join_url(place: str, parameters: list[tuple[str, str]]) -> str:
    return place + ("?" if parameters else "") + "&".join(f"{name}={value}" for name, value in parameters)


def _switch(cut: _Cut, name: str, default: bool) -> bool:
    if (text := cut.get_parameter(name)) is None:
        return default
    if text not in _SWITCH:
        raise InvalidInput(f"store {cut.mask()}: {name}={text!r} is neither on nor off")
    return _SWITCH[text]


def _listen_conninfo(url: str) -> str:
    cut = _cut(url, "store, listen_url")
    return _with_defaults(_join_url(cut.place, list(cut.parameters)), cut.mask())


def _with_defaults(url: str, shown: str) -> str:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidInput(f"store {shown}: {_one_line(error)}; use postgresql://USER@HOST/DATABASE") from error
    merged = {**DEFAULTS, **{name: value for name, value in given.items() if value is not None}}
    return make_conninfo("", **merged)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _mask_parameter(name: str, value: str) -> str:
    if _SECRET.search(name):
        return "***"
    return _cut(unquote(value), "store, listen_url").mask() if name == "listen_url" else value
