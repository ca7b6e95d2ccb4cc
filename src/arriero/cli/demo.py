"""``arriero demo``: the shop of examples/orders, its remote services, its faults and its books."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from ..errors import describe_install
from .options import json_option, parse_duration

EXTRAS = ("fastapi", "httpx2", "starlette", "uvicorn")
PACKAGE = Path(__file__).resolve().parents[1]
ROOTS = (PACKAGE / "_examples", PACKAGE.parents[1])  # in an installed wheel; in the repository


def parse_outage(text: str) -> tuple[str, float]:
    """Parse ``payments:20s`` into the name of an Agent and seconds; the type of an option.

    Raises: BadParameter - names what was typed and how to write it.
    """
    agent, colon, duration = text.partition(":")
    if not agent or not colon:
        raise click.BadParameter(
            f"{text!r} is not an outage; write an Agent, a colon and how long it is down, like payments:20s"
        )
    seconds = parse_duration(duration)
    if seconds == 0:
        raise click.BadParameter(f"{text!r} lasts no time; write a duration above 0, like {agent}:20s")
    return agent, seconds


@click.command(short_help="Run a shop whose services fail, and balance its books.")
@click.option(
    "--orders",
    metavar="N",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Number of orders in the generated ledger.",
)
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read this ledger instead, CSV, gzipped or plain.",
)
@click.option(
    "--faults",
    type=click.Choice(["none", "some", "storm"]),
    default="some",
    show_default=True,
    help="How much the services fail.",
)
@click.option(
    "--outage",
    metavar="AGENT:DURATION",
    type=parse_outage,
    help="Stop the service of an Agent for a duration, like payments:20s, after a tenth of the orders.",
)
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of worker processes that share the tasks.",
)
@click.option(
    "--kills",
    metavar="N",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="How often a worker with work in flight is killed by SIGKILL.",
)
@click.option(
    "--supervisors",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of processes that supervise instead of the workers. The leader is killed 3 times.",
)
@click.option(
    "--seed", metavar="N", type=int, default=1, show_default=True, help="The seed of the ledger and of every fault."
)
@click.option(
    "--break",
    "broken",
    type=click.Choice(["dedup", "refund", "fence", "order"]),
    help="Inject a bug. The demo must detect it and exit with 1.",
)
@click.option(
    "--store",
    metavar="URL",
    help="A new file, sqlite:///PATH, or a database on PostgreSQL, postgresql://..., in which a schema of the demo's own "
    "is made and dropped; by default a temporary file, whatever ARRIERO_STORE says.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep all files in this new folder, and the schema in the database.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="Also serve the console and the HTTP API until Ctrl-C, and print a link with a token.",
)
@json_option
def demo(
    orders: int,
    ledger: Path | None,
    faults: str,
    outage: tuple[str, float] | None,
    processes: int,
    kills: int,
    supervisors: int,
    seed: int,
    broken: str | None,
    store: str | None,
    keep: Path | None,
    serve: bool,
    as_json: bool,
) -> None:
    """Run a shop whose services fail and whose processes are killed, and balance its books.

    Exits with 0 when every order happened as a whole or left no trace, each customer's in the ledger's order, and the
    recorded history is clean.
    """
    _need_extras()
    sys.path.insert(0, str(_root()))
    run_demo = importlib.import_module("examples.orders.demo").run_demo
    sys.exit(
        run_demo(
            orders=orders,
            ledger=ledger,
            faults=faults,
            outage=outage,
            processes=processes,
            kills=kills,
            supervisors=supervisors,
            seed=seed,
            broken=broken,
            as_json=as_json,
            store=store,
            keep=keep,
            serve=serve,
        )
    )


def _need_extras() -> None:
    missing = [name for name in EXTRAS if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {', '.join(missing)}: {describe_install('demo')}, or `uvx --from '.[demo]' arriero demo` there"
        )


def _root() -> Path:
    """The folder that holds ``examples/orders``."""
    for root in ROOTS:
        if (root / "examples" / "orders" / "demo.py").is_file():
            return root
    raise click.ClickException(
        "this installation carries no examples/orders: install the wheel of arriero, or work in its repository"
    )
