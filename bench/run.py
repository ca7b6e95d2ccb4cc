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
import psycopg
from peers import BENCH, STATE, NotInstalled, python_of
from report import Row, judged, number, print_table, rows_of, write_json
from works import GOALS, PEERS, SIDES, STORES, WORKS, Work

from arriero.errors import ArrieroError
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

    Exits 2, with a line for each thing that is missing, before anything is measured. Exits 1 if a side failed, or did not keep what
    the work demands, or if the run ended early; the rows that it had are printed and written all the same.
    """
    rows: list[Row] = []
    failures: list[str] = []
    chosen = [(work, store) for work in WORKS if work.name in works for store in stores if store in work.stores]
    get_server = cache(partial(start_server, version, default_settings))
    pythons = prepare(peers, chosen, get_server, json_file)
    try:
        for work, store in chosen:
            print(f"{work.name} on {store}: {work.title}", flush=True)
            turns = min(runs, work.runs or runs)
            count = (tasks or work.tasks) if work.tasks else 0
            measure(work, store, get_server, pythons, turns, rows, failures, count)
            if json_file is not None:
                write_json(rows, json_file)
    except KeyboardInterrupt:
        failures.append("interrupted: the rows are those of the turns before")
    except OSError as error:  # such as a full disk
        failures.append(f"ended early, the rows are those of the turns before: {error}")
    if rows:
        print_table(rows, runs)
    missed = 0
    for reached, line in judged(rows, GOALS, works, stores):
        print(line)
        missed += not reached
    if require and missed:
        failures.append(f"{missed} goals were missed or not measured")
    if json_file is not None:
        try:
            write_json(rows, json_file)
        except OSError as error:
            failures.append(f"the rows are not in {json_file}: {error}")
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(1 if failures else 0)


def prepare(
    peers: Sequence[str],
    chosen: Sequence[tuple[Work, str]],
    get_server: Callable[[], Server],
    json_file: Path | None,
) -> dict[str, Path]:
    """Install the peers, start the server and find the folder of the rows, as far as the chosen works need them.

    Returns: the Python of each side. Exits 2 after a line for each thing that is missing.
    """
    works = {work.name for work, _ in chosen}
    missing: list[str] = []
    pythons: dict[str, Path] = {}
    if json_file is not None and not json_file.parent.is_dir():
        missing.append(f"--json: the folder {json_file.parent} does not exist")
    if any(store == "postgres" for _, store in chosen):
        try:
            get_server()
        except ArrieroError as error:
            missing.append(f"postgres: {error}; or leave it out with --stores sqlite")
    for side in SIDES:
        if (side.name not in PEERS or side.name in peers) and not side.ways.keys().isdisjoint(works):
            try:
                pythons[side.name] = python_of(side.name)
            except NotInstalled as error:
                rest = ",".join(peer for peer in peers if peer != side.name)
                missing.append(f"{side.name}: not installed: {error}; or leave it out with --peers '{rest}'")
    for line in missing:
        print(line, file=sys.stderr)
    if missing:
        sys.exit(2)
    return pythons


def measure(
    work: Work,
    store: str,
    get_server: Callable[[], Server],
    pythons: Mapping[str, Path],
    runs: int,
    rows: list[Row],
    failures: list[str],
    tasks: int,
) -> None:
    """Let every side that has a Python do ``work`` in turn, ``runs`` times, and add the rows, also of turns that an error ended.

    A side that fails is added to ``failures`` and has no further turn here. One with a figure that should be 0 and is not
    is added too, and has its further turns.
    """
    programs = {side.name: side.programs[store] for side in SIDES if side.name in pythons and store in side.programs}
    turns: dict[tuple[str, str], list[Turn]] = {
        (side.name, way): [] for side in SIDES if side.name in programs for way in side.ways.get(work.name, ())
    }
    try:
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
                    failures.append(
                        f"{work.name}, {side} {way}".rstrip() + f" on {store}: {', '.join(wrong)}; must be 0"
                    )
                shown = (f"{name} {number(turn.figures[name])} {unit}".rstrip() for name, unit in work.figures.items())
                print(f"{label}: {', '.join(shown)}", flush=True)
    finally:
        taken = {key: done for key, done in turns.items() if done}
        settings = {side: done[-1].settings for (side, _), done in taken.items()}
        figures = {key: [turn.figures for turn in done] for key, done in taken.items()}
        rows += rows_of(work, store, figures, settings)


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
    """URL of a store that does not exist yet, or of an empty database on the server that all sides share.

    Raises: SideFailed - the server does not answer.
    """
    if store == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    name = f"bench_{next(_numbers)}"
    try:
        url = get_server().create_database(name)
    except psycopg.Error as error:
        raise SideFailed(f"PostgreSQL does not answer: {error}") from error
    try:
        yield url
    finally:
        with suppress(psycopg.Error):  # the next turn reports a server that has died; its database goes with it
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
