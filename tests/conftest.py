"""For all tests: a skip that nobody expected is a failure where it counts (CI=true)."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

EXPECTED_SKIPS = ("the programs beside the repository are not here", "the real ledger is not beside the repository")

# How long an example takes says something of the machine, nothing of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


class SkipCount:
    """Collects skips, from all workers, in the process that reports."""

    def __init__(self) -> None:
        self.unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not any(expected in reason for expected in EXPECTED_SKIPS):
                self.unexpected.append(f"{report.nodeid}: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and os.environ.get("CI") == "true":
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.unexpected:
            terminalreporter.write_line(f"unexpected skip: {line}")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCount())
