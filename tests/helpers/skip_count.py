"""What becomes of skipped tests: one line for each reason, and a failure where all of them must run (CI=true)."""

import os
from collections import Counter

import pytest

EXPECTED_SKIPS = (
    "the programs beside the repository are not here",
    "the real ledger is not beside the repository",
    "before Python 3.14 annotations are evaluated where they stand",  # make test-newest runs these
    "helm's library is not installed",  # a young package with native code: nobody must have it, CI neither
)


class SkipCount:
    """Counts skips by their reason, from all workers, in the process that reports. A reason names what installs the rest."""

    def __init__(self) -> None:
        self.unexpected = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not any(expected in reason for expected in EXPECTED_SKIPS):
                self.unexpected[reason.removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and os.environ.get("CI") == "true":
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in self.unexpected.most_common():
            terminalreporter.write_line(f"unexpected skips: {count:4}  {reason}")
