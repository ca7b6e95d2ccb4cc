"""`arriero lead`: a program that runs only while its process leads, whatever happens to that process."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import Call, Run, arriero

Lead = Callable[..., Run]
LONG = "60s"  # no lease lapses during a test
SHORT = "2s"

# Says that it began, and tells by the end of its output that it is gone: the test waits for that, not for a time.
FOREVER = (
    sys.executable,
    "-c",
    "import os, time; print('began', os.environ['ARRIERO_TERM'], os.getpid(), flush=True); time.sleep(900)",
)
STUBBORN = (
    *(sys.executable, "-c"),
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('began', flush=True)\nwhile True: time.sleep(900)",
)
OBEDIENT = (
    *(sys.executable, "-c"),
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); print('began', flush=True)\n"
    "signal.sigwait([signal.SIGTERM]); print('asked to stop', flush=True); print('ended by itself', flush=True)",
)


@pytest.fixture
def lead(shop: Path) -> Iterator[Lead]:
    """Start the command in a process of its own."""
    started: list[Run] = []

    def start(*words: str, duration: str = LONG, command: tuple[str, ...] = FOREVER) -> Run:
        started.append(Run(shop, command=("lead", "nightly", "--duration", duration, *words, "--", *command)))
        return started[-1]

    yield start
    for run in started:
        run.close()


def test_a_program_finds_its_term_and_its_exit_code_is_the_command_s(shop: Path) -> None:
    says = "import os, sys; print(os.environ['ARRIERO_LEASE'], os.environ['ARRIERO_TERM'], os.environ['ARRIERO_HOLDER'] > ''); sys.exit(7)"
    for term in (1, 2):
        done = arriero(shop, "lead", "nightly", "--", sys.executable, "-c", says)
        assert (done.returncode, done.stdout) == (7, f"nightly {term} True\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_program_and_gives_the_lease_back(lead: Lead, shop: Path, number: int) -> None:
    one = lead()
    one.until("began 1")
    one.signal(number)
    code, output, errors = one.ended()
    assert (code, output) == (0, "")
    assert "was stopped" in errors
    assert arriero(shop, "lead", "nightly", "--wait", "0", "--", "true").returncode == 0, "nobody has to wait"


def test_a_program_is_asked_to_stop_before_it_is_killed(lead: Lead) -> None:
    one = lead("--grace", LONG, command=OBEDIENT)
    one.until("began")
    one.signal(signal.SIGTERM)
    one.until("asked to stop")
    one.until("ended by itself")
    assert one.ended()[0] == 0


def test_a_program_that_does_not_stop_is_killed_after_the_grace(lead: Lead) -> None:
    one = lead("--grace", "0.2s", command=STUBBORN)
    one.until("began")
    one.signal(signal.SIGTERM)
    assert one.ended()[:2] == (0, "")


def test_a_program_ends_when_its_lead_is_killed(lead: Lead) -> None:
    one = lead(duration=SHORT, command=STUBBORN)
    one.until("began")
    one.signal(signal.SIGKILL)
    code, output, _ = one.ended()  # its output has ended, so the program is gone
    assert (code, output) == (-signal.SIGKILL, "")


def test_a_program_ends_when_its_lead_is_frozen_for_longer_than_the_lease(lead: Lead, shop: Path) -> None:
    one = lead(duration="10s")  # a margin of two seconds, for a machine that is busy
    program = one.until("began 1").split()[-1]
    one.signal(signal.SIGSTOP)
    try:
        other = lead(duration="10s")
        other.until("began 2")
        assert not Path("/proc", program).exists(), "the guardian has ended it in time"
    finally:
        one.signal(signal.SIGCONT)
    one.signal(signal.SIGTERM)
    assert one.ended()[0] == 0


def read_parent(process: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_program_ends_when_its_lead_and_its_guardian_are_killed_together(lead: Lead) -> None:
    one = lead()
    guardian = read_parent(int(one.until("began 1").split()[-1]))
    one.signal(signal.SIGKILL)
    os.kill(guardian, signal.SIGKILL)
    code, output, _ = one.ended()  # its output has ended, so the program is gone
    assert (code, output) == (-signal.SIGKILL, "")


def test_a_program_ends_when_its_lead_is_killed_while_its_guardian_is_frozen(lead: Lead) -> None:
    one = lead()
    guardian = read_parent(int(one.until("began 1").split()[-1]))
    os.kill(guardian, signal.SIGSTOP)
    one.signal(signal.SIGKILL)
    try:
        code, output, _ = one.ended()  # its output has ended, so the program is gone
    finally:
        with suppress(ProcessLookupError):
            os.kill(guardian, signal.SIGCONT)
    assert (code, output) == (-signal.SIGKILL, "")


def test_a_program_whose_guardian_is_frozen_ends_when_the_lease_is_lost(lead: Lead, call: Call) -> None:
    one = lead(duration=SHORT)
    os.kill(read_parent(int(one.until("began 1").split()[-1])), signal.SIGSTOP)
    result = call("lease", "break", "nightly", "--reason", "it hangs", "--at-once")
    assert result.exit_code == 0, result.output
    one.until("began 2")


def test_a_program_whose_lease_is_broken_is_stopped_and_led_again_later(lead: Lead, call: Call) -> None:
    one = lead(duration=SHORT)
    one.until("began 1")
    result = call("lease", "break", "nightly", "--reason", "it hangs", "--at-once")
    assert result.exit_code == 0, result.output
    one.until("began 2")


def test_what_the_program_has_started_ends_with_it(lead: Lead) -> None:
    one = lead(command=("sh", "-c", f"{sys.executable} -c 'import time; time.sleep(900)' & echo began; wait"))
    one.until("began")
    one.signal(signal.SIGTERM)
    code, output, _ = one.ended()  # both have closed their output
    assert (code, output) == (0, "")


def test_another_one_waits_and_takes_over_under_the_next_term(lead: Lead, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    one = lead()
    one.until("began 1")
    other = lead("--ready-file", str(ready))
    one.signal(signal.SIGTERM)
    other.until("began 2")
    assert ready.read_text() == "2\n"
    other.signal(signal.SIGTERM)
    assert other.ended()[0] == 0
    assert not ready.exists()


def test_who_does_not_wait_exits_with_75_while_another_one_leads(lead: Lead, shop: Path) -> None:
    lead().until("began 1")
    done = arriero(shop, "lead", "nightly", "--duration", LONG, "--wait", "0", "--", "echo", "never")
    assert (done.returncode, done.stdout) == (75, "")


def test_a_lease_is_kept_for_a_time_however_soon_the_program_ends(lead: Lead, shop: Path) -> None:
    one = lead("--at-least", "500s", command=("echo", "began"))
    one.until("began")
    done = arriero(shop, "lead", "nightly", "--duration", LONG, "--wait", "0", "--", "echo", "never")
    assert (done.returncode, done.stdout) == (75, "")
    one.signal(signal.SIGTERM)
    assert one.ended()[0] == 0


def test_with_restart_it_contends_again_when_the_program_has_ended(lead: Lead) -> None:
    one = lead("--restart", command=("sh", "-c", "echo began $ARRIERO_TERM"))
    for term in (1, 2, 3):
        one.until(f"began {term}")
    one.signal(signal.SIGTERM)
    assert one.ended()[0] == 0


def test_systemd_is_told_when_it_contends_leads_and_stops(
    lead: Lead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        says = "import os, time; print('NOTIFY_SOCKET' in os.environ, flush=True); time.sleep(900)"
        one = lead(command=(sys.executable, "-c", says))
        one.until("False")
        one.signal(signal.SIGTERM)
        assert one.ended()[0] == 0
        systemd.setblocking(False)
        told = []
        with pytest.raises(BlockingIOError):
            while True:
                told.append(systemd.recv(4096).decode())
    assert "WATCHDOG=1" in told
    told.remove("WATCHDOG=1")
    assert told == [
        "READY=1\nSTATUS=waits for the lease nightly",
        "READY=1\nSTATUS=leads nightly in term 1",
        "STOPPING=1",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lead", "nightly", "--", "no-such-program"), "the program 'no-such-program' is not found"),
        (("lead", "nightly", "--duration", "0.1s", "--", "true"), "store takes 1 to 86400 s"),
        (("lead", "supervisor", "--", "true"), "the lease 'supervisor' is that of the Supervisors"),
        (("lead", "nightly", "--lease", "ftp://host", "--", "true"), "no lease can be kept at 'ftp://host'"),
        (("lead", "nightly"), "Missing argument"),
        (("lead", "nightly", "--lease", "sqlite:///no/such/folder/x.db", "--wait", "0", "--", "true"), None),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_2(shop: Path, words: tuple[str, ...], message: str | None) -> None:
    done = arriero(shop, *words)
    if message is None:  # a provider that does not answer may answer later
        assert done.returncode == 75
        assert "the provider cannot be reached" in done.stderr
        return
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_program_that_cannot_be_started_is_named(lead: Lead, shop: Path) -> None:
    broken = shop / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    done = arriero(shop, "lead", "nightly", "--", str(broken))
    assert done.returncode == 127
    assert "broken cannot be started" in done.stderr
