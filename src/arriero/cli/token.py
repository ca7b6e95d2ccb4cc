"""``arriero token``: who may use the HTTP API."""

import asyncio
from typing import Any

import click

from ..client.app import App
from ..client.tokens import CreatedToken, TokenView
from ..model.tokens import Scope
from ..operations import tokens
from ..text.escaping import one_line
from ..text.format import format_count
from .operation_commands import add_act, add_listing, build_group
from .options import find_login_name, json_option, parse_duration, store_option
from .output import format_time, print_json
from .stores import load_store_configuration, open_client

SCOPES = f"{', '.join(Scope)}, agent:NAME, replies:QUEUE, agent:* or replies:*"


token = build_group("token", "Manage the tokens of the HTTP API.")


@token.command("create", short_help="Create a token. Its secret is shown once.")
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    required=True,
    help=f"A scope of the token: {SCOPES}. Can be repeated.",
)
@click.option(
    "--app-name",
    "apps",
    metavar="NAME",
    multiple=True,
    help="Restrict the token to tasks of this App. Can be repeated.",
)
@click.option(
    "--workflow",
    "workflows",
    metavar="NAME",
    multiple=True,
    help="Restrict the token to tasks of this workflow. Can be repeated.",
)
@click.option(
    "--open-tasks-max", metavar="N", type=int, help="Maximum number of open tasks of its holder. By default any number."
)
@click.option(
    "--expires-in",
    metavar="DURATION",
    type=parse_duration,
    help="How long the token is valid, like 90d or 12h. By default it never expires.",
)
@click.option("--by", metavar="NAME", help="Your name. By default your login name.")
@store_option
@json_option
def create_token(
    name: str,
    scopes: tuple[str, ...],
    apps: tuple[str, ...],
    workflows: tuple[str, ...],
    open_tasks_max: int | None,
    expires_in: float | None,
    by: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Create a token under a NAME, which signs in the history what its holder does.

    The token alone goes to standard output, so that it can be piped into a secret store. It is kept nowhere: who loses it
    creates another one. With --app-name and --workflow everything else is not there for its holder.
    """
    wanted = [scope.strip() for given in scopes for scope in given.split(",")]
    options = {"scopes": wanted, "apps": apps, "workflows": workflows, "expires_in": expires_in}
    options["open_tasks_max"] = open_tasks_max
    created = asyncio.run(_create(store, name, by=by or find_login_name(), **options))
    about = created.about
    if as_json:
        print_json(created)
        return
    click.echo(created.token)
    until = "never expires" if about.expires_at is None else f"expires at {format_time(about.expires_at)}"
    restriction = _format_restriction(about)
    within = f", restricted to {restriction}," if restriction else ""
    said = f"token {about.id} of {about.name} may {', '.join(about.scopes)}{within} and {until}; it is not shown again"
    click.echo(f"arriero: {one_line(said)}", err=True)


def _format_restriction(view: TokenView) -> str:
    named = (("App", view.apps), ("workflow", view.workflows))
    parts = [f"{what} {', '.join(names)}" for what, names in named if names]
    cap = view.open_tasks_max
    return "; ".join(parts if cap is None else [*parts, format_count(cap, "open task")])


async def _create(store: str | None, name: str, **options: Any) -> CreatedToken:
    operator, url = App("operator"), load_store_configuration(store).store
    async with open_client(operator, url):  # on a store that may not be there yet
        return await operator.tokens.create(name, **options)


def _format_cells(view: TokenView) -> tuple[str, ...]:
    created, expires, used = map(format_time, (view.created_at, view.expires_at, view.last_used_at))
    revoked = f"{view.revoked_by}: {view.revoked_reason}" if view.revoked_by else ""
    return (
        view.id,
        view.name,
        view.state,
        " ".join(view.scopes),
        _format_restriction(view),
        created,
        view.created_by,
        expires,
        used,
        revoked,
    )


COLUMNS = ("id", "name", "state", "scopes", "restricted to", "created", "by", "expires", "last used", "revoked by")
add_listing(token, tokens.LIST, COLUMNS, _format_cells)
add_act(token, tokens.REVOKE)
