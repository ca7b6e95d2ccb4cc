"""Three processes work, one of them leads; leaders are killed and frozen, and the sum is right.

    python examples/leader/run.py                            # about 45 s, leases in a SQLite file
    python examples/leader/run.py --provider etcd            # a server is started, if it is installed
    python examples/leader/run.py --provider azure --lease azure+https://...   # or name yours
    python examples/leader/run.py --unguarded                # what happens without the guard

Exits with 1 if a write was accepted from a past term, or if the sum is wrong.
"""

from __future__ import annotations

import argparse
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero.core.lease import build_settings  # noqa: E402
from examples.leader import table  # noqa: E402  # found from the repository's root
from examples.leader.contender import PAUSE  # noqa: E402
from examples.leader.servers import SECONDS, start_provider  # noqa: E402
from lab.lease_servers import Unavailable  # noqa: E402

CONTENDERS = 3
STUCK_SECONDS = 180.0  # after which a wait counts as stuck


class Line(NamedTuple):
    """A line that a contender printed."""

    contender: Contender
    text: str


class Contender:
    """One process."""

    def __init__(self, command: list[str], lines: queue.Queue[Line]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.leader.contender", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: queue.Queue[Line]) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            lines.put(Line(self, text.strip()))
        lines.put(Line(self, "ended"))


class Run:
    """One run of the example."""

    def __init__(self, path: Path, url: str, options: argparse.Namespace) -> None:
        self._path = path
        self._options = options
        guard = "unguarded" if options.unguarded else "guarded"
        self._command = [str(path), url, str(options.duration), guard]
        self._lines: queue.Queue[Line] = queue.Queue()
        self._contenders = [Contender(self._command, self._lines) for _ in range(CONTENDERS)]
        self._leader, self._term = self._wait_for_leader()
        self.take_overs: list[float] = []
        self.refused = 0

    def close(self) -> None:
        """Kill all processes."""
        for contender in self._contenders:
            contender.process.kill()

    # --- waiting
    def _read_lines(self) -> Iterator[Line]:
        give_up_at = time.monotonic() + STUCK_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, give_up_at - time.monotonic()))
                if line.text == "ended" and line.contender in self._contenders:
                    raise SystemExit("a contender ended by itself; what it said stands above")
                yield line
            except queue.Empty:
                raise SystemExit(f"nothing happened for {STUCK_SECONDS:.0f} s") from None

    def _wait_for(self, word: str, of: Contender | None = None) -> Line:
        for line in self._read_lines():
            if line.text.split()[0] == word and of in (None, line.contender):
                return line
        raise AssertionError("lines never end")

    def _wait_for_leader(self) -> tuple[Contender, int]:
        line = self._wait_for("leads")
        return line.contender, int(line.text.split()[1])

    # --- faults
    def kill_leader(self, number: int) -> None:
        """Kill the leader at its work; a new contender comes in its place."""
        self._wait_for("gathered", self._leader)
        began = time.monotonic()
        self._leader.process.kill()
        self._contenders.remove(self._leader)
        self._contenders.append(Contender(self._command, self._lines))
        before = self._term
        self._leader, self._term = self._wait_for_leader()
        self.take_overs.append(time.monotonic() - began)
        print(
            f"  {number:2} kill    term {before:>3} -> {self._term:<3} after {self.take_overs[-1]:5.2f} s", flush=True
        )

    def freeze_leader(self, number: int) -> None:
        """Freeze the leader between its read and its write, until another one leads; then let it write."""
        pause, zombie, before = self._path.with_name(PAUSE), self._leader, self._term
        pause.touch()
        waited = {"read", "rests"}
        for line in self._read_lines():
            waited -= {line.text} if line.contender is zombie else set()
            if not waited:
                break
        began = time.monotonic()
        self._stop_outside_of_transactions(zombie)
        pause.unlink()
        self._leader, self._term = self._wait_for_leader()
        seconds = time.monotonic() - began
        zombie.process.send_signal(signal.SIGCONT)
        verdict = next(line.text.split()[0] for line in self._read_lines() if _is_verdict(line, zombie))
        self.refused += verdict == "refused"
        print(
            f"  {number:2} freeze  term {before:>3} -> {self._term:<3} after {seconds:5.2f} s; the old leader woke up and wrote:"
            f" {'it was refused' if verdict == 'refused' else 'it was ACCEPTED'}",
            flush=True,
        )

    def _stop_outside_of_transactions(self, zombie: Contender) -> None:
        """Stop a process while it holds no lock of the file: a renewal that is frozen in its commit would stop all others, too."""
        while True:
            zombie.process.send_signal(signal.SIGSTOP)
            if table.may_be_written(self._path):
                return
            zombie.process.send_signal(signal.SIGCONT)

    def finish(self) -> bool:
        """Wait until all parts are in the sum. Returns True if everything is as it must be."""
        connection = table.connect(self._path)
        goal = table.set_goal(connection)
        for contender in self._contenders:
            contender.process.wait(timeout=STUCK_SECONDS)
        right, found = sum(map(table.compute, range(1, goal + 1))), table.read_total(connection)
        terms = table.read_writing_terms(connection)
        connection.close()
        past = sum(late < early for early, late in pairwise(terms))
        print(
            f"writes: {len(terms):,} accepted in {len(set(terms))} terms, {past} of them from a past term, {self.refused} refused"
        )
        print(
            f"the sum of {goal:,} parts is {found:,}: {'right' if found == right else f'wrong, it must be {right:,}'}"
        )
        return (found, past) == (right, 0)


def _is_verdict(line: Line, of: Contender) -> bool:
    return line.contender is of and line.text.split()[0] in ("refused", "gathered")


def spread(kills: int, freezes: int) -> list[bool]:
    """The order of the faults: freezes, which are True, between kills."""
    count = kills + freezes
    return [number * freezes // count > (number - 1) * freezes // count for number in range(1, count + 1)]


def main() -> int:
    """Run it. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Three processes work, one leads; leaders are killed and frozen.")
    parser.add_argument("--provider", choices=sorted(SECONDS), default="store")
    parser.add_argument("--lease", metavar="URL", help="where leases are kept; else a server is started here")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--freezes", type=int, default=2)
    parser.add_argument("--duration", type=float, help="of the lease, in seconds; else as short as the provider allows")
    parser.add_argument("--unguarded", action="store_true", help="write without the guard, and see the sum go wrong")
    options = parser.parse_args()
    options.duration = options.duration or SECONDS[options.provider]
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-leader-", ignore_cleanup_errors=True))
        )
        path = folder / "leader.db"
        table.make(path)
        try:
            url = options.lease or stack.enter_context(start_provider(options.provider, folder))
        except Unavailable as error:
            print(f"examples/leader: {error}", file=sys.stderr)
            return 2
        print(f"{CONTENDERS} contenders, leases of {options.duration:g} s at {options.provider}", flush=True)
        run = Run(path, url, options)
        stack.callback(run.close)
        for number, is_freeze in enumerate(spread(options.kills, options.freezes), 1):
            (run.freeze_leader if is_freeze else run.kill_leader)(number)
        settings = build_settings(options.duration, None, "aggregator")
        print(
            f"take-over after a kill, of {len(run.take_overs)}: half within {median(run.take_overs):.2f} s, all within"
            f" {max(run.take_overs):.2f} s; a lease and a look are {options.duration + settings.poll_every:.2f} s"
        )
        return 0 if run.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
