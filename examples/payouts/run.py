"""A file of 5,000 payouts, one child task for each line, while the worker is killed. Three lines are refused and resubmitted alone.

    python examples/payouts/run.py
    python examples/payouts/run.py --lines 500
    python examples/payouts/run.py --pay-twice    # a bank that pays one line twice is found out

About 60 s. Exit code 1: something is not as promised.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import Task  # noqa: E402
from examples.payouts.payouts import Line, Report, app, open_books, pay_file  # noqa: E402
from examples.worker import Worker  # noqa: E402

PATIENCE = 300  # seconds for the file
KILLS = 3
BETWEEN_KILLS = 6.0  # seconds
REFUSED = 3


def draw_lines(count: int) -> list[Line]:
    """Draw the file. Three of its lines name an account that the bank does not know."""
    wrong = {count // 4, count // 2, count - 1}
    return [
        Line(f"line-{number:05}", f"{'??' if number in wrong else 'DE'}{number:08}", 100 + number * 7 % 9_000)
        for number in range(count)
    ]


async def kill_now_and_then(worker: Worker, file: Task[Report]) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(BETWEEN_KILLS)
        if (await file.view()).ended_at is None:
            worker.kill_and_restart()


async def correct(line: Line) -> int:
    """What an operator does about a line that was refused: correct it, and resubmit it alone."""
    task = app.task(line.reference)
    account = line.account.replace("??", "DE")
    arguments = {"line": {"reference": line.reference, "account": account, "cents": line.cents}}
    await task.resubmit(by="ana", reason="the account was mistyped", arguments=arguments)
    paid: int = await task.result(timeout=PATIENCE)
    return paid


def find_errors(lines: Sequence[Line], report: Report) -> list[str]:
    """Find what is not as promised: in the report, and in the books of the bank."""
    errors = []
    with open_books() as books:
        entries = books.execute("SELECT reference, count(*), sum(cents) FROM paid GROUP BY reference").fetchall()
    found = {reference: (count, cents) for reference, count, cents in entries}
    for line in lines:
        if found.get(line.reference) != (1, line.cents):
            errors.append(f"{line.reference} of {line.cents} cents was paid {found.get(line.reference, (0, 0))}")
    refused = [line.reference for line in lines if line.account.startswith("??")]
    if (report.refused, report.paid) != (refused, len(lines) - REFUSED):
        errors.append(f"the file says that {report.paid} lines were paid and {', '.join(report.refused)} were refused")
    return errors


async def run(folder: Path, count: int, *, pays_twice: bool) -> list[str]:
    """Pay the file. Returns: what is not as promised."""
    lines = draw_lines(count)
    worker = Worker("examples.payouts.payouts:app", folder / "worker.log")
    try:
        async with app:
            file = await app.submit(pay_file(lines), task_id="file-1")
            killing = asyncio.create_task(kill_now_and_then(worker, file))
            report = await file.result(timeout=PATIENCE)
            await killing
            print(f"{report.paid:,} lines were paid, refused: {', '.join(report.refused)}")
            wrong = [line for line in lines if line.reference in report.refused]
            await asyncio.gather(*map(correct, wrong))
            if pays_twice:
                with open_books() as books:
                    books.execute("INSERT INTO paid SELECT 'again', reference, account, cents FROM paid LIMIT 1")
            errors = find_errors(lines, report)
    finally:
        worker.kill()
    print(f"the refused lines were corrected and resubmitted alone; the worker was killed {worker.kills} times")
    return errors


def main(arguments: Sequence[str]) -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description="A file of payouts, one child task for each line.")
    parser.add_argument("--lines", type=int, default=5_000, help="of the file (default: 5000)")
    parser.add_argument("--pay-twice", action="store_true", help="the bank pays one line twice: it is found out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="arriero-payouts-") as folder:
        os.environ["ARRIERO_STORE"] = f"sqlite:///{folder}/payouts.db"
        os.environ["PAYOUTS_BOOKS"] = f"{folder}/books.db"
        errors = asyncio.run(run(Path(folder), options.lines, pays_twice=options.pay_twice))
    for error in errors:
        print(f"WRONG: {error}", file=sys.stderr)
    print("not as promised" if errors else "as promised: every line was paid once, to the cent")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
