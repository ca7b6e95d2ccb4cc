"""The schema: numbered files, applied in order under a lock, recorded, all or nothing.

What is executed here and what a database administrator is given to execute are the same statements: ``Plan`` has them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from importlib import resources
from typing import Any, TypeVar

import msgspec
import psycopg

from ...errors import SchemaOutdated, StoreError
from ..columns import load_statements
from ..migrate import RIGHTS, Grant, Migration, SchemaState, migrations, refuse_newer
from .pipeline import PendingAnswer
from .session import PostgresSession, Statements, Transaction, TransactionLimits
from .target import Target, target_of
from .translating import translate_error

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
LIMITS = TransactionLimits(lock=10.0, statement=10.0)  # of a transaction of the session; here there is none


def ask_once(target: Target, work: Callable[[Connection], T]) -> T:
    """Run ``work`` on a new connection in autocommit mode, and close that.

    Raises: StoreError - it cannot be reached, or refuses; SchemaOutdated. Both name the store.
    """
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)
    try:
        return work(session.get_connection())
    except SchemaOutdated as error:
        raise SchemaOutdated(f"store {target.shown}: {error}") from error
    except psycopg.Error as error:
        raise translate_error(error, target.shown) from error
    finally:
        session.close()


Cursor = psycopg.Cursor[tuple[Any, ...]]
Execute = Callable[[str, Mapping[str, Any]], Cursor | PendingAnswer]
SECONDS_MAX = 60.0  # how long a migration waits for another one, and
LOCK_SECONDS_MAX = 10.0  # for a table, while everybody else waits behind it

HOW = (
    '-- Run it so that the first error ends it: psql -v ON_ERROR_STOP=1 -d "postgresql://OWNER@HOST/DATABASE" -f SCRIPT'
)
NO_ROLE = (
    "-- A process needs no right to change the schema: add --role run NAME for what the role that it runs as needs."
)


FUNCTIONS_FROM = 3  # the first migration after which ``functions.sql`` is applied: older ones make separate functions
KINDS = ("TABLES", "SEQUENCES", "FUNCTIONS")
# Rows that only a purge removes.
_PURGED = (
    "{schema}.history, {schema}.edit, {schema}.late_answer, {schema}.signal, {schema}.published, {schema}.step,"
    " {schema}.convoy, {schema}.convoy_tail"
)
_RUN = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};",
    "REVOKE UPDATE ON {schema}.history, {schema}.edit, {schema}.late_answer, {schema}.signal FROM {role};",
    "GRANT UPDATE (step, reply, replied_at) ON {schema}.signal TO {role};",
    "REVOKE UPDATE ON {schema}.task_tag FROM {role};",  # a trigger writes it, with the rights of who writes the task
    f"REVOKE DELETE ON {_PURGED} FROM {{role}};",
    # A token is made, used and revoked: nothing else of it ever changes, and its row stays.
    "REVOKE UPDATE, DELETE ON {schema}.token FROM {role};",
    "GRANT UPDATE (last_used_at, revoked_at, revoked_by, revoked_reason) ON {schema}.token TO {role};",
    "REVOKE INSERT, UPDATE, DELETE ON {schema}.migration FROM {role};",
    "GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};",
)
_SUBMIT_OPTIONS = (
    "text, integer, double precision, text, text, bigint, boolean, text, text"  # after workflow and arguments
)
# What a grant of each of RIGHTS is. Who submits reads only what opening a store asks: its number, its id, its clock.
STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "submit": (
        "GRANT SELECT ON {schema}.migration, {schema}.meta TO {role};",
        "GRANT SELECT (renewed_at) ON {schema}.process TO {role};",
        "GRANT EXECUTE ON FUNCTION {schema}.keep_task TO {role};",
        *(
            f"GRANT EXECUTE ON FUNCTION {{schema}}.submit(text, {of}, {_SUBMIT_OPTIONS}) TO {{role}};"
            for of in ("text", "jsonb")
        ),
        "GRANT EXECUTE ON FUNCTION {schema}.keep_signal TO {role};",
        *(
            f"GRANT EXECUTE ON FUNCTION {{schema}}.signal(text, text, {of}, text, text, text) TO {{role}};"
            for of in ("text", "jsonb")
        ),
    ),
    "read": (
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};",
        "REVOKE ALL ON {schema}.secret FROM {role};",  # who may only look must not sign
    ),
    "run": _RUN,
    "purge": (*_RUN, f"GRANT DELETE ON {_PURGED} TO {{role}};"),
}


def known_migrations() -> list[Migration]:
    """The migrations that this release knows, in order."""
    return migrations(__package__)


def read_functions() -> str:
    """The functions of the schema, which are applied after migrations."""
    return resources.files(__package__).joinpath("functions.sql").read_text()


# --- what is there
class FoundSchema(msgspec.Struct, frozen=True):
    """The database's schema of our name. ``number``: of the last migration applied; None: no tables of ours."""

    has_schema: bool
    number: int | None


def find_schema(execute: Execute, schema: str) -> FoundSchema:
    """Read the schema. Raises SchemaOutdated: it holds another program's tables; psycopg.Error."""
    row = execute(load_statements(__package__)["find_schema"], {"schema": schema}).fetchone()
    assert row is not None
    has_schema, holds_something, is_ours = row
    if not is_ours:
        if holds_something:
            raise SchemaOutdated(
                f"the schema {schema} holds tables that are not arriero's: name another one in the URL, ?schema=NAME"
            )
        return FoundSchema(has_schema, None)
    row = execute(f"SELECT coalesce(max(number), 0) FROM {schema}.migration", {}).fetchone()
    return FoundSchema(has_schema, 0 if row is None else int(row[0]))


def read_applied_number(transaction: Transaction, schema: str) -> int | None:
    """The number of the last migration applied; None: there are no tables of ours. Raises as ``find_schema``."""
    return find_schema(transaction.plain, schema).number


def refuse_unfit(number: int) -> None:
    """Raises SchemaOutdated: the schema is older than this release, or newer by more than one."""
    known = known_migrations()
    if number < known[-1].number:
        raise SchemaOutdated(
            f"its schema is number {number}, this release of arriero needs {known[-1].number}: run arriero migrate"
        )
    refuse_newer(number, known)


# --- what is to be done
class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The statements that bring a schema to this release's, in one transaction.

    Args:
        channel: where wake-ups are notified.
        grants: what roles have afterwards.
    """

    schema: str
    channel: str
    found: FoundSchema
    grants: tuple[Grant, ...] = ()

    @property
    def missing(self) -> list[Migration]:
        """The migrations to apply, in order."""
        return SchemaState(self.found.number, tuple(known_migrations())).missing

    def changes(self) -> Iterator[str]:
        """Scripts of one or more statements, in order."""
        if not self.found.has_schema:
            yield f"CREATE SCHEMA {self.schema};"
        for migration in self.missing:
            yield fill(migration.sql, self.schema, self.channel)
            yield self._record(migration)
        if self.missing and self.missing[-1].number >= FUNCTIONS_FROM:
            yield fill(read_functions(), self.schema, self.channel)
        if self.found.number is None:
            yield self._first_meta()
        for role in dict.fromkeys(grant.role for grant in self.grants):
            yield self._rights(role, {grant.rights for grant in self.grants if grant.role == role})

    def _record(self, migration: Migration) -> str:
        return (
            f"INSERT INTO {self.schema}.migration (number, name, applied_at)"
            f" VALUES ({migration.number}, '{migration.name}', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);"
        )

    def _first_meta(self) -> str:
        return (
            f"INSERT INTO {self.schema}.meta (name, value)"
            " VALUES ('store_id', substr(replace(gen_random_uuid()::text, '-', ''), 1, 16)), ('epoch', '1');"
        )

    def _rights(self, role: str, rights: Set[str]) -> str:
        """All that the role has in the schema; what it had is taken away first."""
        granted = [
            *(f"REVOKE ALL ON ALL {kind} IN SCHEMA {{schema}} FROM {{role}};" for kind in KINDS),
            "REVOKE CREATE ON SCHEMA {schema} FROM {role};",
            "GRANT USAGE ON SCHEMA {schema} TO {role};",
            *(statement for each in RIGHTS if each in rights for statement in STATEMENTS[each]),
        ]
        text = "\n".join(granted).replace("{schema}", self.schema).replace("{role}", _quote_name(role))
        return f"{self._refuse_owner(role)}\n{text}"

    def _refuse_owner(self, role: str) -> str:
        """Build a statement that refuses to limit the rights of the schema's owner."""
        return (
            "DO $$ BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner\n"
            f"    WHERE n.nspname = '{self.schema}' AND r.rolname = {_literal(role)}) THEN\n"
            f"    RAISE EXCEPTION 'the role owns the schema {self.schema}, so it may do everything there'\n"
            "        USING HINT = 'name another role than the one that migrates', ERRCODE = 'invalid_grant_operation';\n"
            "END IF; END $$;"
        )


def build_beginning(schema: str) -> str:
    """Build the first statements of a migration: others that migrate wait until it ends, and then see its work.

    The lock only keeps two from failing where one can wait: that each migration is applied once is the tables' own doing.
    READ COMMITTED, whatever the database's default: else the second one would look at the tables as of before its wait.
    """
    return (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"
        "SET LOCAL client_min_messages = warning;\n"
        "SET LOCAL statement_timeout = 0;\n"
        f"SET LOCAL lock_timeout = '{round(SECONDS_MAX)}s';\n"
        f"DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('arriero migrate {schema}', 0)); END $$;\n"
        f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS_MAX)}s';"
    )


def fill(sql: str, schema: str, channel: str) -> str:
    """Statements of a file for a schema."""
    return sql.replace("{schema}", schema).replace("{channel}", channel)


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    quoted = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{quoted}'"


def make_execute(connection: Connection) -> Execute:
    """Execute texts of one or more statements; they cannot be prepared, whatever the URL says."""

    def execute(text: str, parameters: Mapping[str, Any]) -> Cursor:
        return connection.execute(text.encode(), parameters or None, prepare=False)

    return execute


def migrate(connection: Connection, schema: str, channel: str, *, grants: Sequence[Grant] = ()) -> list[str]:
    """Bring the schema to this release's; answers the names of what was applied.

    Runs in one transaction of a connection in autocommit mode. Two at the same time: the second waits, and finds nothing to do.
    Raises: SchemaOutdated - it is of a newer release, or another program's; psycopg.Error.
    """

    execute = make_execute(connection)
    with connection.transaction():
        execute(build_beginning(schema), {})
        plan = Plan(schema=schema, channel=channel, found=find_schema(execute, schema), grants=tuple(grants))
        refuse_newer(plan.found.number or 0, known_migrations())
        for change in plan.changes():
            execute(change, {})
    return [migration.name for migration in plan.missing]


def build_script(plan: Plan) -> str:
    """All that a plan does, as one transaction for a database administrator."""
    changes = list(plan.changes())
    number, hint = plan.found.number, [] if plan.grants else [NO_ROLE]
    if not changes:
        return "\n".join([f"-- nothing to do: the schema {plan.schema} is number {number}", *hint]) + "\n"
    parts = [HOW, *hint, "BEGIN;", build_beginning(plan.schema), _still(plan), *map(str.strip, changes), "COMMIT;"]
    return "\n\n".join(parts) + "\n"


def _still(plan: Plan) -> str:
    """Ends the script where the schema is not as it was when the script was made, so that it says why."""
    number = plan.found.number
    if number is None:
        is_other, what = f"to_regclass('{plan.schema}.migration') IS NOT NULL", "is there meanwhile"
    else:
        is_other = f"(SELECT coalesce(max(number), 0) FROM {plan.schema}.migration) <> {number}"
        what = f"is no longer number {number}"
    return (
        f"DO $$ BEGIN IF {is_other} THEN\n"
        f"    RAISE EXCEPTION 'the schema {plan.schema} {what}; make the script again: arriero migrate --sql';\n"
        "END IF; END $$;"
    )


# --- the schema at a URL
class PostgresSchema:
    """See ``store.migrate.Schema``."""

    def __init__(self, url: str) -> None:
        self._target = target_of(url)
        self.url = self._target.shown

    def state(self) -> SchemaState:
        return SchemaState(self._find().number, tuple(known_migrations()))

    def migrate(self, grants: Sequence[Grant] = ()) -> list[str]:
        schema, channel = self._target.schema, self._target.channel
        return ask_once(self._target, lambda connection: migrate(connection, schema, channel, grants=grants))

    def script(self, grants: Sequence[Grant] = ()) -> str:
        schema, channel = self._target.schema, self._target.channel
        return build_script(Plan(schema=schema, channel=channel, found=self._find(), grants=tuple(grants)))

    def _find(self) -> FoundSchema:
        return ask_once(self._target, self._look)

    def _look(self, connection: Connection) -> FoundSchema:
        found = find_schema(make_execute(connection), self._target.schema)
        refuse_newer(found.number or 0, known_migrations())
        return found


def refuse_absent(url: str) -> None:
    """Check for a reader that the URL holds a store. Raises StoreError: there are no tables of arriero."""
    target = target_of(url)
    if ask_once(target, lambda connection: find_schema(make_execute(connection), target.schema)).number is None:
        raise StoreError(
            f"store {target.shown}: it holds no tasks of arriero (there are no tables in schema {target.schema});"
            " name the right one with --store or ARRIERO_STORE, or make it with arriero migrate"
        )
