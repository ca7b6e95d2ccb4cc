"""``arriero lead``: runs a program only while this process holds a lease."""

import asyncio
import shutil
from pathlib import Path

import click

from ..config import load_configuration
from ..errors import InvalidInput
from ..leases import DistributedMutex, Leadership, Lease
from ..leases.program import LedProgram, Readiness
from ..operations.problems import ExitCode
from ..runtime.ports import LoopClock
from .lease import lease_option, open_named_lease
from .options import parse_duration
from .run import StopSignal, log_to_standard_error


@click.command(short_help="Run a program only while this process leads.")
@click.argument("name", metavar="NAME")
@click.argument("command", metavar="-- COMMAND ...", nargs=-1, required=True)
@lease_option
@click.option(
    "--duration", type=parse_duration, default="15s", show_default=True, metavar="DURATION", help="Lease duration."
)
@click.option(
    "--grace",
    type=parse_duration,
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait after SIGTERM before SIGKILL.",
)
@click.option(
    "--wait", type=parse_duration, metavar="DURATION", help="Give up after this long and exit with 75. 0 tries once."
)
@click.option(
    "--at-least",
    type=parse_duration,
    default="0",
    metavar="DURATION",
    help="Minimum time to hold the lease, even if the program exits earlier.",
)
@click.option("--restart", is_flag=True, help="Contend again when the program has ended.")
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="A file that exists while this process leads."
)
def lead(
    name: str,
    command: tuple[str, ...],
    lease: str | None,
    duration: float,
    grace: float,
    wait: float | None,
    at_least: float,
    restart: bool,
    ready_file: Path | None,
) -> None:
    """Run a program only while this process holds the lease NAME. Of all that run this command, one runs its program.

    The program finds the term in ARRIERO_TERM. It gets SIGTERM when the lease is lost, and SIGKILL before the lease lapses;
    then this waits to lead again. SIGTERM and Ctrl-C stop the program, give the lease back and end this with 0. When the
    program ends by itself, this exits with its exit code.

    Two cron jobs on two machines: arriero lead report --wait 0 --at-least 60s -- ./report
    """
    if shutil.which(command[0]) is None:
        raise InvalidInput(f"the program {command[0]!r} is not found; name it as a shell would find it")
    stop = StopSignal()
    stop.listen()
    log_to_standard_error(load_configuration().log_format)
    leading = _Leading(
        open_named_lease(name, lease),
        LedProgram(command, name, duration, grace),
        duration,
        at_least,
        Readiness(ready_file),
    )
    code = asyncio.run(leading.run(stop, wait, restart=restart))
    raise click.exceptions.Exit(code)


class _Leading:
    """One run of the command."""

    def __init__(
        self, lease: Lease, program: LedProgram, duration: float, at_least: float, readiness: Readiness
    ) -> None:
        self._program = program
        self._at_least = at_least
        self._readiness = readiness
        self._clock = LoopClock()
        self._elected = asyncio.Event()
        self._mutex = DistributedMutex(
            lease,
            duration=duration,
            on_elected=self._note_election,
            on_lost=lambda leadership, why: readiness.tell_waiting(lease.name),
        )

    def _note_election(self, leadership: Leadership) -> None:
        self._elected.set()
        self._readiness.tell_leading(leadership.name, leadership.term)

    async def run(self, stop: StopSignal, wait: float | None, *, restart: bool) -> int:
        """Returns the exit code."""
        self._readiness.tell_waiting(self._mutex.name)
        running = asyncio.create_task(
            self._mutex.run(self._work_and_wait) if restart else self._mutex.run_once(self._work)
        )
        others = [asyncio.create_task(stop.wait()), asyncio.create_task(self._readiness.feed_watchdog())]
        try:
            if wait is not None and not await self._is_elected_within(wait, running):
                return ExitCode.TIME_OVER
            await asyncio.wait((running, others[0]), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return 0
            return running.result() or 0
        finally:
            self._readiness.tell_stopping()
            for task in (running, *others):
                task.cancel()
            await asyncio.wait((running, *others))

    async def _is_elected_within(self, seconds: float, running: "asyncio.Task[int | None]") -> bool:
        """Returns False if another one leads, or the provider gave no answer, for so long; it looks at least once."""
        looking = asyncio.create_task(self._mutex.has_looked.wait())
        elected = asyncio.create_task(self._elected.wait())
        try:
            await asyncio.wait((elected, running), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((looking, elected, running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            elected.cancel()
        return self._elected.is_set() or running.done()

    async def _work_and_wait(self, leadership: Leadership) -> None:
        """The work, after which this contends again."""
        await self._work(leadership)
        self._readiness.tell_waiting(leadership.name)

    async def _work(self, leadership: Leadership) -> int:
        began = self._clock.monotonic()
        code = await self._program(leadership)
        await self._clock.sleep(max(0.0, began + self._at_least - self._clock.monotonic()))
        return code
