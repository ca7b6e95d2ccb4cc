"""``arriero migrate``: bring a store's schema to this release's, or say what that would do."""

import sys
from collections.abc import Sequence

import click
import msgspec

from ..errors import InvalidInput
from ..operations.problems import ExitCode
from ..store import existing_store, schema_of
from ..store.migrate import RIGHTS, Grant, Schema, SchemaState
from ..text.escaping import one_line
from .options import json_option, store_option
from .output import print_json
from .stores import load_store_configuration, refuse_memory_store


class MigrateOutput(msgspec.Struct, frozen=True):
    """The output of ``migrate --json``: names of the migrations that were applied, and the schema's number now."""

    store: str
    number: int
    applied: list[str]


class MigrateCheckOutput(msgspec.Struct, frozen=True):
    """The output of ``migrate --check --json``: ``number`` null where there is no schema; ``missing`` by name."""

    store: str
    number: int | None
    number_known: int
    missing: list[str]


class MigrateScriptOutput(msgspec.Struct, frozen=True):
    """The output of ``migrate --sql --json``."""

    store: str
    sql: str


@click.command(short_help="Bring a store's schema to this release's.")
@click.option("--sql", is_flag=True, help="Print the SQL, one transaction, for a database administrator to run.")
@click.option(
    "--check", "checks", is_flag=True, help="Only print which migrations are missing, and exit with 1 if any is."
)
@click.option(
    "--role",
    "grants",
    type=(click.Choice(tuple(RIGHTS)), str),
    metavar="RIGHTS NAME",
    multiple=True,
    help="On PostgreSQL, the role NAME, which must exist, has these RIGHTS in the schema afterwards, and no others: submit,"
    " read, run (what a process needs) or purge (the same, and `arriero purge`). May be given several times.",
)
@store_option
@json_option
def migrate(sql: bool, checks: bool, grants: tuple[tuple[str, str], ...], store: str | None, as_json: bool) -> None:
    """Bring a store's schema to this release's, all or nothing; a store that is not there yet is made.

    Do it before the processes of a new release are started; those of the release before continue. On PostgreSQL a process
    makes a schema that is not there, but changes no older one. On SQLite, opening the file does it.
    """
    if checks and (sql or grants):
        raise InvalidInput("--check only looks: leave out --sql and --role")
    url = refuse_memory_store(load_store_configuration(store).store)
    schema = schema_of(url)
    wanted = [Grant(*grant) for grant in grants]
    if checks:
        if url.startswith("sqlite:"):
            existing_store(url)  # a wrong path must not look like a missing migration
        _check(schema, as_json)
    elif sql:
        text = schema.script(wanted)
        if as_json:
            print_json(MigrateScriptOutput(schema.url, text))
        else:
            click.echo(text, nl=False)
    else:
        _migrate(schema, wanted, as_json)


def _migrate(schema: Schema, grants: Sequence[Grant], as_json: bool) -> None:
    applied = schema.migrate(grants)
    number = schema.state().number or 0
    if as_json:
        print_json(MigrateOutput(schema.url, number, applied))
        return
    for name in applied:
        click.echo(f"applied {name}")
    did = "" if applied else "nothing was to do: "
    click.echo(one_line(f"{did}the schema of store {schema.url} is number {number}"))
    for grant in grants:
        click.echo(one_line(f"role {grant.role} {RIGHTS[grant.rights]}"))


def _check(schema: Schema, as_json: bool) -> None:
    state = schema.state()
    missing = [migration.name for migration in state.missing]
    if as_json:
        print_json(MigrateCheckOutput(schema.url, state.number, state.known[-1].number, missing))
    else:
        click.echo(one_line(f"store {schema.url}: {_describe_schema(state)}"))
        for name in missing:
            click.echo(f"missing {name}")
    if missing:
        sys.exit(ExitCode.NO)


def _describe_schema(state: SchemaState) -> str:
    known = state.known[-1].number
    if state.number is None:
        return f"there is no schema yet; arriero migrate makes it, number {known}"
    if state.missing:
        return f"the schema is number {state.number}; arriero migrate brings it to number {known}"
    newer = ", one more than this release knows, which works with it" if state.number > known else ", up to date"
    return f"the schema is number {state.number}{newer}"
