"""``arriero store``: what is done to a store as a whole."""

import asyncio

import click
import msgspec

from .. import operating
from .assign import assign_command
from .near_misses import NearMissGroup
from .operators import login_name
from .output import one_line, print_json
from .stores import json_option, reading, store_option


class Epoch(msgspec.Struct, frozen=True):
    """What ``store new-epoch --json`` prints."""

    store: str
    epoch: int


@click.group(cls=NearMissGroup, short_help="What is done to a store as a whole.")
def store() -> None:
    """Do something to a store as a whole."""


@store.command("new-epoch", short_help="Say that a store was restored from a backup.")
@click.option("--by", metavar="NAME", help="Who asks for it; your login name by default.")
@click.option("--reason", metavar="TEXT", required=True, help="Why; kept in the store's history.")
@store_option
@json_option
def new_epoch(by: str | None, reason: str, store: str | None, as_json: bool) -> None:
    """Open a new epoch, once after a store was restored from a backup and before anything runs on it again.

    Whatever a process of before still sends is refused; processes that run begin again by themselves. Numbers that may
    have been given since the backup are not given again.
    """
    who, why = operating.signed(login_name() if by is None else by, reason)
    epoch = asyncio.run(_opened(store, f"{operating.ACTOR} {who}", why))
    if as_json:
        print_json(epoch)
    else:
        click.echo(one_line(f"store {epoch.store} is in epoch {epoch.epoch}; processes that run on it begin again"))


store.add_command(assign_command)


async def _opened(given: str | None, actor: str, reason: str) -> Epoch:
    async with reading(given) as opened:
        return Epoch(opened.url, await opened.new_epoch(actor, reason))
