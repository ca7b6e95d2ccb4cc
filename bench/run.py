"""Measure arriero beside its peers and the ceiling of the machine: `python bench/run.py`; README.md says what and how.

Every side is a program of its own that prints its raw figures. In each run all sides take their turn on the same
disk, so that a noisy neighbour disturbs them alike.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import click
from peers import BENCH, STATE, NotInstalled, python_of
from report import Row, judged, number, print_table, rows_of, write_json
from works import GOALS, PEERS, SIDES, STORES, WORKS, Work

from arriero.testing.postgres import Server

URL_VARIABLE = "BENCH_STORE_URL"  # where a side finds its store; see sides/common.py
SERVER_VARIABLE = "BENCH_SERVER_PID"  # whose CPU time counts beside the side's own
SERVER_VERSION = 16
SERVER_SETTINGS = {"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB"}
RUN_SECONDS_MAX = 1_800  # a side that takes longer is stuck: the slowest known one needs a minute
ERROR_LINES_MAX = 20


class SideFailed(Exception):
    """The program of a side did not deliver its figures; the text is the end of what it wrote to stderr."""


@dataclass(frozen=True)
class Turn:
    """What one side prints after one run."""

    figures: Mapping[str, float]
    settings: Mapping[str, str]


def names(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Parse an option that lists some of ``known``, separated by commas; an empty one lists none."""

    def parse(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
        asked = [name.strip() for name in value.split(",") if name.strip()]
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise click.BadParameter(f"{', '.join(unknown)} is not known; there is {', '.join(known)}")
        return asked

    return parse


WORK_NAMES = [work.name for work in WORKS]


@click.command()
@click.option("--peers", default=",".join(PEERS), show_default=True, callback=names(PEERS), help="Libraries to beat.")
@click.option("--stores", default=",".join(STORES), show_default=True, callback=names(STORES))
@click.option("--work", "works", default=",".join(WORK_NAMES), show_default=True, callback=names(WORK_NAMES))
@click.option("--postgres", "version", default=SERVER_VERSION, show_default=True, help="Major version of the server.")
@click.option("--default-settings", is_flag=True, help="Leave the server the settings of a new installation.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(min=1), help="Turns of each side.")
@click.option("--tasks", type=click.IntRange(min=1), help="Tasks of one turn, instead of each work's own number.")
@click.option("--require", is_flag=True, help="Exit 1 also if a goal is missed.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the rows here.")
def main(
    peers: list[str],
    stores: list[str],
    works: list[str],
    version: int,
    default_settings: bool,
    runs: int,
    tasks: int | None,
    require: bool,
    json_file: Path | None,
) -> None:
    """Measure arriero and its peers in turn; print medians, spread, ratios, and which goals were reached.

    Exits 1 if a side failed, or did not keep what the work demands.
    """
    rows: list[Row] = []
    failures: list[str] = []
    get_server = cache(partial(start_server, version, default_settings))
    pythons: dict[str, Path] = {}
    for side in SIDES:
        if (side.name not in PEERS or side.name in peers) and not side.ways.keys().isdisjoint(works):
            try:
                pythons[side.name] = python_of(side.name)
            except NotInstalled as missing:
                failures.append(f"{side.name}: not installed\n{missing}")
    for work in (work for work in WORKS if work.name in works):
        for store in (store for store in stores if store in work.stores):
            print(f"{work.name} on {store}: {work.title}", flush=True)
            turns = min(runs, work.runs or runs)
            rows += measure(
                work, store, get_server, pythons, turns, failures, (tasks or work.tasks) if work.tasks else 0
            )
    if rows:
        print_table(rows, runs)
    missed = 0
    for reached, line in judged(rows, GOALS, works, stores):
        print(line)
        missed += not reached
    if require and missed:
        failures.append(f"{missed} goals were missed or not measured")
    if json_file is not None:
        write_json(rows, json_file)
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(1 if failures else 0)


def measure(
    work: Work,
    store: str,
    get_server: Callable[[], Server],
    pythons: Mapping[str, Path],
    runs: int,
    failures: list[str],
    tasks: int,
) -> list[Row]:
    """Let every side that has a Python do ``work`` in turn, ``runs`` times.

    A side that fails is added to ``model.failures`` and has no further turn here; one with a figure that should be 0 and is not
    is added too, and goes on.
    """
    programs = {side.name: side.programs[store] for side in SIDES if side.name in pythons and store in side.programs}
    turns: dict[tuple[str, str], list[Turn]] = {
        (side.name, way): [] for side in SIDES if side.name in programs for way in side.ways.get(work.name, ())
    }
    for run in range(1, runs + 1):
        for side, way in tuple(turns):
            label = f"  run {run}/{runs} {side} {way}".rstrip()
            try:
                turn = take_turn(pythons[side], programs[side], work, store, get_server, way, tasks)
            except SideFailed as failed:
                print(f"{label}: failed", flush=True)
                failures.append(f"{work.name}, {side} {way}".rstrip() + f": failed\n{failed}")
                del turns[side, way]
                continue
            turns[side, way].append(turn)
            wrong = [f"{name} is {number(turn.figures[name])}" for name in work.zero if turn.figures[name] != 0]
            if wrong:
                failures.append(f"{work.name}, {side} {way}".rstrip() + f" on {store}: {', '.join(wrong)}; must be 0")
            shown = (f"{name} {number(turn.figures[name])} {unit}".rstrip() for name, unit in work.figures.items())
            print(f"{label}: {', '.join(shown)}", flush=True)
    settings = {side: taken[-1].settings for (side, _), taken in turns.items()}
    return rows_of(work, store, {key: [turn.figures for turn in taken] for key, taken in turns.items()}, settings)


def take_turn(
    python: Path, program: str, work: Work, store: str, get_server: Callable[[], Server], way: str, tasks: int
) -> Turn:
    """Run one side once, in an empty folder or database that is gone afterwards.

    Raises: SideFailed - it exited with an error, took too long, or printed no figures.
    """
    about = {SERVER_VARIABLE: str(get_server().pid)} if store == "postgres" else {}
    with empty_folder() as folder, place(store, get_server, folder) as url:
        command: list[str | Path] = [python, BENCH / "sides" / program, work.name, folder, str(tasks), way]
        stdout = output_of(command, environment() | {URL_VARIABLE: url} | about)
    try:
        printed = json.loads(stdout.splitlines()[-1])
        return Turn({name: float(printed["figures"][name]) for name in work.figures}, printed["settings"])
    except (IndexError, KeyError, TypeError, ValueError) as unreadable:
        raise SideFailed(f"printed no figures but {stdout[-500:]!r}") from unreadable


def output_of(command: Sequence[str | Path], env: Mapping[str, str]) -> str:
    """What a program prints. Whatever it leaves running ends with it.

    Raises: SideFailed - it exited with an error, or took too long.
    """
    program = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        stdout, stderr = program.communicate(timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        raise SideFailed(f"no figures within {RUN_SECONDS_MAX} seconds") from late
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    if program.returncode != 0:
        tail = "\n".join(stderr.splitlines()[-ERROR_LINES_MAX:])
        raise SideFailed(tail or f"exit status {program.returncode}")
    return stdout


@contextmanager
def place(store: str, get_server: Callable[[], Server], folder: str) -> Iterator[str]:
    """URL of a store that does not exist yet, or of an empty database on the server that all sides share."""
    if store == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    name = f"bench_{next(_numbers)}"
    try:
        yield get_server().create_database(name)
    finally:
        get_server().drop_database(name)


_numbers = itertools.count(1)


def start_server(version: int, default_settings: bool) -> Server:
    """A durable PostgreSQL of our own, with room for the peers' pools; it ends with this program."""
    if default_settings:
        return Server.start(version, tuned=False)
    return Server.start(version, settings=SERVER_SETTINGS)


def empty_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder beside the environments, hence on the same disk for every side."""
    stores = STATE / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=stores)


def environment() -> dict[str, str]:
    """The caller's environment, with compiled code kept as an installed library has it, and apart from the sources."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(STATE / "bytecode")}


if __name__ == "__main__":
    main()
