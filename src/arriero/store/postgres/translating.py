"""The one place that translates PostgreSQL's errors into ours, each with its remedy."""

import psycopg

from ...errors import InvalidInput, SchemaOutdated, StoreError
from ..contract import MissingRight
from ..migrate import UNRELEASED_BUILD

CONFLICTS = frozenset({"40001", "40P01"})  # serialisation failure, deadlock: the transaction is to be run again
LOCK_NOT_AVAILABLE = "55P03"
NO_TABLES = frozenset({"3F000", "42P01", "42703", "42883"})  # no such schema, table, column, function
NO_COLUMN = "42703"
READ_ONLY = "25006"
MISSING_RIGHT = "42501"

_BY_STATE = {
    "28P01": "the password is wrong: mend the URL, PGPASSWORD or the .pgpass file",
    "28000": "this user may not log in so: mend the URL, or the server's pg_hba.conf",
    "3D000": "there is no such database: create it, or name another",
    "42501": "this user lacks a right: the owner grants it, arriero migrate --role submit|read|run|purge NAME",
    "42P07": "the schema holds another owner's tables: name another one in the URL, ?schema=NAME",
    "42710": "the schema holds another owner's things: name another one in the URL, ?schema=NAME",
    "42723": "the schema holds another owner's functions: name another one in the URL, ?schema=NAME",
    "25006": (
        "the server is a standby: name all hosts in the URL, or promote it; or default_transaction_read_only is on for this"
        " database, user or server: turn it off (ALTER DATABASE ... SET default_transaction_read_only = off)"
    ),
    "53100": "the server's disk is full: free space there; nothing that was accepted is lost",
    "53200": "the server is out of memory: give it more, or fewer connections",
    "53300": "the server has no connection left: raise max_connections, or put a pooler before it",
    "53400": "a limit of the server is reached: see its log",
    "55P03": "another program keeps rows locked: end its transaction (arriero doctor names it)",
    "57014": "it took too long and was cut off: see what else the server is doing (arriero doctor)",
    "57P01": "the server is shutting down or ended the connection: it is tried again",
    "57P02": "the server has crashed and recovers: it is tried again",
    "57P03": "the server is starting or stopping: it is tried again",
    "25P03": "the connection stood idle in a transaction for too long and was ended: it is tried again",
}
_BY_TEXT = (
    ("password authentication failed", _BY_STATE["28P01"]),
    ("no password supplied", "the server wants a password: put it into the URL, PGPASSWORD or the .pgpass file"),
    ("does not exist", "look at the names in the URL; what is missing must be created"),
    ("could not translate host name", "no such host is known: look at the URL and the name service"),
    ("failed to resolve host", "no such host is known: look at the URL and the name service"),
    ("Name or service not known", "no such host is known: look at the URL and the name service"),
    ("Connection refused", "nobody listens there: start the server, or look at host and port in the URL"),
    ("session is read-only", _BY_STATE["25006"]),
    ("remaining connection slots", _BY_STATE["53300"]),
    ("too many clients", _BY_STATE["53300"]),
    (
        "too many connections",
        "a limit of this user or database is reached: raise its CONNECTION LIMIT, or end others' connections",
    ),
    ("no more connections allowed", _BY_STATE["53300"]),
    ("starting up", _BY_STATE["57P03"]),
    ("shutting down", _BY_STATE["57P03"]),
    ("timeout expired", "the host does not answer: look at the network, the firewall and the URL"),
    ("no pg_hba.conf entry", _BY_STATE["28000"]),
)


def translate_error(error: psycopg.Error, shown: str) -> StoreError:
    """A driver's error as ours, naming store and remedy in one line."""
    text = _text(error)
    state = error.sqlstate or ""
    if state in NO_TABLES:
        if state == NO_COLUMN:
            return SchemaOutdated(f"store {shown}: {text}; {UNRELEASED_BUILD}")
        return SchemaOutdated(f"store {shown}: {text}; its tables are not arriero's: run arriero migrate --store URL")
    remedy = _BY_STATE.get(state) or next((remedy for part, remedy in _BY_TEXT if part in text), None)
    kind = MissingRight if state == MISSING_RIGHT else StoreError
    return kind(f"store {shown}: {text}; {remedy or 'see the message of PostgreSQL'}")


def unfit(error: psycopg.DataError | UnicodeError, shown: str) -> InvalidInput:
    """A value that no text or number of PostgreSQL can hold: to repeat it is of no use, unlike after a StoreError."""
    text = _text(error) if isinstance(error, psycopg.Error) else " ".join(str(error).split())
    return InvalidInput(f"store {shown}: {text}; PostgreSQL cannot keep this value, give another")


def _text(error: psycopg.Error) -> str:
    """The server's message, without the statement."""
    return " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__
