"""Telling alerts: every sink knows at last, each is told once, and nothing that fails is lost or holds up the others."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import random
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from runtime_world import until, within

from arriero.core.alert_groups import WINDOW_SECONDS_MAX
from arriero.core.alerts import Alert
from arriero.errors import DefinitionError, InvalidInput, StoreError
from arriero.model import AlertRow, Instant, later, seconds_between
from arriero.runtime.alert_sinks import AlertSink, CommandSink, FunctionSink, LogSink, WebhookSink
from arriero.runtime.alerts import REST_SECONDS, TELLINGS_MAX, Alerting
from arriero.runtime.ports import SystemPorts
from arriero.testing.clock import VirtualClock
from arriero.text.escaping import escape_text

DAY_SECONDS = 86_400
SECRET = "whsec_" + base64.b64encode(b"twenty-four random bytes").decode()
UNIX_TIME = 1_767_225_600.75


class Ports(SystemPorts):
    """The real machine, its time apart: that one stands still until a test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = VirtualClock()
        self.clock = self.virtual
        self.random = random.Random(7)

    def advance(self, seconds: float) -> None:
        self.virtual.jump_to(self.virtual.monotonic() + seconds)


class Store:
    """The two methods of a store that tell alerts, by their contract; and what a task does to its alerts."""

    store_id = "store"

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.rows: dict[int, AlertRow] = {}
        self.takes = 0
        self.holds: list[float] = []
        self.broken: list[str] = []  # names of methods whose next call fails

    def now(self) -> Instant:
        return Instant(round(self._ports.virtual.monotonic() * 1_000_000))

    def open_alert(self, **fields: Any) -> int:
        no = len(self.rows) + 1
        row = AlertRow(
            no=no,
            task_no=no,
            task_id=f"order-{no}",
            workflow="orders",
            incarnation=1,
            cause="step",
            reason="card declined",
            step="charge",
            code="declined",
            opened_at=self.now(),
            closed_at=None,
            told=(),
            attempts=0,
            next_at=self.now(),
            error="",
        )
        self.rows[no] = msgspec.structs.replace(row, **fields)
        return no

    def close_alert(self, no: int) -> None:
        row = self.rows[no]
        self.rows[no] = msgspec.structs.replace(
            row, closed_at=self.now(), told=(), attempts=row.attempts + 1, next_at=self.now()
        )

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        self._break("take_alerts")
        self.takes += 1
        self.holds.append(hold_seconds)
        due = [row for row in self.rows.values() if row.next_at is not None and row.next_at <= self.now()]
        taken = []
        for row in due[:limit]:
            held_until = later(self.now(), hold_seconds)
            self.rows[row.no] = msgspec.structs.replace(row, attempts=row.attempts + 1, next_at=held_until)
            taken.append(self.rows[row.no])
        return taken

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        self._break("settle_alert")
        row = self.rows[no]
        if row.attempts != attempts:
            return False
        next_at = None if again_in is None else later(self.now(), again_in)
        self.rows[no] = msgspec.structs.replace(row, told=tuple(told), next_at=next_at, error=error)
        return True

    def _break(self, method: str) -> None:
        if method in self.broken:
            self.broken.remove(method)
            raise StoreError(f"{method}: the file is busy")

    def seconds_until_due(self, no: int) -> float:
        next_at = self.rows[no].next_at
        assert next_at is not None
        return seconds_between(self.now(), next_at)


class Receiver:
    """A sink that remembers, and fails or waits when it is told to."""

    def __init__(self, name: str, timeout_seconds: float = 10.0) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.told: list[str] = []
        self.ids: list[str] = []
        self.alerts: list[Alert] = []
        self.asked = 0
        self.at_once = 0
        self.at_once_most = 0
        self.trouble: BaseException | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def tell(self, alert: Alert) -> None:
        self.asked += 1
        self.at_once += 1
        self.at_once_most = max(self.at_once_most, self.at_once)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        if self.trouble is not None:
            raise self.trouble
        self.told.append(f"{alert.task_id} {alert.state}")
        self.ids.append(alert.id)
        self.alerts.append(alert)


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


@pytest.fixture
def store(ports: Ports) -> Store:
    return Store(ports)


class TestTheLoop:
    async def test_every_sink_is_told_once_and_then_nobody_again(self, store: Store, ports: Ports) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        alerting = Alerting([log, webhook], store=store, ports=ports)
        no = store.open_alert()
        assert await alerting.tick() == 1
        assert (store.rows[no].told, store.rows[no].next_at, store.rows[no].error) == (("log", "webhook"), None, "")
        ports.advance(DAY_SECONDS)
        assert await alerting.tick() == 0
        assert log.told == webhook.told == ["order-1 open"]

    async def test_a_sink_that_fails_keeps_no_other_from_being_told_and_is_repeated_alone(
        self, store: Store, ports: Ports, caplog: pytest.LogCaptureFixture
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.trouble = OSError("no route to host")
        alerting = Alerting([webhook, log], store=store, ports=ports)
        no = store.open_alert()
        await alerting.tick()
        assert store.rows[no].told == ("log",)
        assert store.rows[no].error == "webhook: OSError: no route to host"
        assert "webhook could not be sent alert store-1-1000000000-open" in caplog.text
        webhook.trouble = None
        ports.advance(store.seconds_until_due(no))
        await alerting.tick()
        assert (log.told, webhook.told) == (["order-1 open"], ["order-1 open"])
        assert store.rows[no].next_at is None
        assert store.rows[no].told == ("log", "webhook")

    async def test_a_sink_that_fails_for_a_day_is_told_again_all_day_and_then_once(
        self, store: Store, ports: Ports
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        alerting = Alerting([log, webhook], store=store, ports=ports)
        no = store.open_alert()
        ends = later(store.now(), DAY_SECONDS)
        delays = []
        while store.now() < ends:
            webhook.trouble = OSError(f"down at {store.now()}")
            assert await alerting.tick() == 1
            assert store.rows[no].error == f"webhook: OSError: down at {store.now()}"
            delays.append(store.seconds_until_due(no))
            ports.advance(store.seconds_until_due(no))
        assert 2.5 <= delays[0] <= 5
        assert all(1_800 <= delay <= 3_600 for delay in delays[11:])
        assert all(after >= before for before, after in zip(delays[:10:2], delays[2:12:2], strict=True))
        assert len(set(delays[11:])) > 1  # drawn, so that alerts that failed together do not come back together
        webhook.trouble = None
        await alerting.tick()
        ports.advance(DAY_SECONDS)
        await alerting.tick()
        assert (log.told, webhook.told) == (["order-1 open"], ["order-1 open"])
        assert webhook.asked == len(delays) + 1
        assert "OSError: down at" in store.rows[no].error  # it says why the alert came late

    async def test_an_alert_closed_before_it_was_ever_told_is_told_as_closed(self, store: Store, ports: Ports) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.trouble = OSError("down")
        alerting = Alerting([log, webhook], store=store, ports=ports)
        no = store.open_alert()
        await alerting.tick()
        webhook.trouble = None
        store.close_alert(no)
        await alerting.tick()
        assert (log.told, webhook.told) == (["order-1 open", "order-1 closed"], ["order-1 closed"])
        assert store.rows[no].next_at is None

    async def test_an_alert_closed_while_it_is_told_is_told_to_everybody_once_more(
        self, store: Store, ports: Ports
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.open.clear()
        alerting = Alerting([log, webhook], store=store, ports=ports)
        no = store.open_alert()
        telling = asyncio.create_task(alerting.tick())
        await until(lambda: webhook.asked and log.told)
        store.close_alert(no)
        webhook.open.set()
        await within(telling)
        assert store.rows[no].told == ()
        await alerting.tick()
        assert log.told == webhook.told == ["order-1 open", "order-1 closed"]
        assert store.rows[no].next_at is None

    async def test_two_processes_tell_an_alert_once(self, store: Store, ports: Ports) -> None:
        mine, theirs = Receiver("webhook"), Receiver("webhook")
        mine.open.clear()
        first = Alerting([mine], store=store, ports=ports)
        second = Alerting([theirs], store=store, ports=ports)
        store.open_alert()
        telling = asyncio.create_task(first.tick())
        await until(lambda: mine.asked)
        ports.advance(mine.timeout_seconds - 0.001)
        assert await second.tick() == 0
        mine.open.set()
        await within(telling)
        ports.advance(DAY_SECONDS)
        assert await second.tick() == 0
        assert (mine.told, theirs.told) == (["order-1 open"], [])

    async def test_an_alert_is_held_for_longer_than_the_slowest_sink_may_take(self, store: Store, ports: Ports) -> None:
        sinks = [Receiver("quick", timeout_seconds=1), Receiver("slow", timeout_seconds=500)]
        await Alerting(sinks, store=store, ports=ports).tick()
        assert min(store.holds) > 500

    async def test_what_was_told_and_not_settled_is_told_again_under_the_same_id(
        self, store: Store, ports: Ports, caplog: pytest.LogCaptureFixture
    ) -> None:
        webhook = Receiver("webhook")
        alerting = Alerting([webhook], store=store, ports=ports)
        no, other = store.open_alert(), store.open_alert(step="refund")
        store.broken.append("settle_alert")
        assert await alerting.tick() == 2
        assert "could not be settled" in caplog.text
        assert sorted(row.next_at is None for row in store.rows.values()) == [False, True]
        ports.advance(max(store.holds))
        await alerting.tick()
        assert store.rows[no].next_at is store.rows[other].next_at is None
        assert sorted(webhook.told) == ["order-1 open", "order-1 open", "order-2 open"]
        assert len(set(webhook.ids)) == 2

    async def test_a_store_that_does_not_answer_is_asked_again_at_the_next_pass(
        self, store: Store, ports: Ports, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = Receiver("log")
        store.open_alert()
        store.broken.append("take_alerts")
        running = asyncio.create_task(Alerting([log], store=store, ports=ports).run())
        await until(lambda: "alerts could not be read: take_alerts: the file is busy" in caplog.text)
        assert log.told == []
        ports.virtual.poke()
        await until(lambda: log.told)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def test_without_sinks_alerts_are_left_for_a_process_that_has_some(self, store: Store, ports: Ports) -> None:
        no = store.open_alert()
        assert await Alerting([], store=store, ports=ports).tick() == 0
        assert (store.takes, store.rows[no].attempts) == (0, 0)
        log = Receiver("log")
        await Alerting([log], store=store, ports=ports).tick()
        assert log.told == ["order-1 open"]

    async def test_a_sink_that_hangs_is_given_up_at_its_timeout_and_the_others_know(
        self, store: Store, ports: Ports
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook", timeout_seconds=20)
        webhook.open.clear()
        no = store.open_alert()
        telling = asyncio.create_task(Alerting([webhook, log], store=store, ports=ports).tick())
        await until(lambda: webhook.asked and log.told)
        ports.advance(19)
        assert webhook.at_once == 1
        ports.advance(1)
        await within(telling)
        assert store.rows[no].told == ("log",)
        assert store.rows[no].error == "webhook: it took longer than 20 s"

    async def test_a_sink_that_hung_rests_so_that_the_others_are_told_at_once(self, store: Store, ports: Ports) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.open.clear()
        alerting = Alerting([webhook, log], store=store, ports=ports)
        store.open_alert()
        telling = asyncio.create_task(alerting.tick())
        await until(lambda: webhook.asked)
        ports.advance(webhook.timeout_seconds)
        await within(telling)
        second = store.open_alert(step="refund")
        await within(alerting.tick())
        assert log.told == ["order-1 open", "order-2 open"]
        assert webhook.asked == 1
        assert "left alone" in store.rows[second].error
        webhook.open.set()
        ports.advance(REST_SECONDS)
        await alerting.tick()
        assert webhook.told == ["order-1 open", "order-2 open"]

    async def test_a_storm_of_alerts_becomes_no_storm_of_tellings(self, store: Store, ports: Ports) -> None:
        sinks = [Receiver("log"), Receiver("webhook")]
        for sink in sinks:
            sink.open.clear()
        for number in range(50):
            store.open_alert(step=f"step-{number}")
        running = asyncio.create_task(Alerting(sinks, store=store, ports=ports).run())
        await until(lambda: sum(sink.at_once for sink in sinks) == TELLINGS_MAX)
        for sink in sinks:
            sink.open.set()
        await until(lambda: all(len(sink.told) == 50 for sink in sinks))  # without a pause between full passes
        assert sum(sink.at_once_most for sink in sinks) == TELLINGS_MAX
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def test_tasks_held_by_one_cause_are_one_message_and_each_alert_is_settled(
        self, store: Store, ports: Ports
    ) -> None:
        log = Receiver("log")
        for _ in range(180):
            store.open_alert(cause="replay", step="reserve", code="replay")
        store.open_alert()
        alerting = Alerting([log], store=store, ports=ports)
        assert await alerting.tick() == 181
        assert sorted((alert.count, alert.cause) for alert in log.alerts) == [(1, "step"), (180, "replay")]
        assert all(row.next_at is None and row.told == ("log",) for row in store.rows.values())
        assert alerting.told == 181

    async def test_alerts_that_follow_are_collected_for_longer_while_they_keep_coming(
        self, store: Store, ports: Ports
    ) -> None:
        log = Receiver("log")
        alerting = Alerting([log], store=store, ports=ports)
        for _ in range(240):
            store.open_alert()
            await alerting.tick()
            ports.advance(1)
        assert len(log.told) <= 10
        ports.advance(WINDOW_SECONDS_MAX)
        await alerting.tick()
        assert sum(alert.count for alert in log.alerts) == 240
        assert all(row.next_at is None for row in store.rows.values())
        ports.advance(2 * WINDOW_SECONDS_MAX)
        no = store.open_alert()
        await alerting.tick()  # after a quiet time the next one is told immediately
        assert store.rows[no].next_at is None

    async def test_a_group_whose_telling_fails_is_told_again_to_that_sink_alone(
        self, store: Store, ports: Ports
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.trouble = OSError("down")
        alerting = Alerting([log, webhook], store=store, ports=ports)
        for _ in range(3):
            store.open_alert()
        await alerting.tick()
        webhook.trouble = None
        ports.advance(store.seconds_until_due(1))
        await alerting.tick()
        assert [[alert.count for alert in sink.alerts] for sink in (log, webhook)] == [[3], [3]]
        assert log.ids == webhook.ids

    async def test_a_group_that_grew_before_it_was_settled_is_another_message(self, store: Store, ports: Ports) -> None:
        log = Receiver("log")
        alerting = Alerting([log], store=store, ports=ports)
        store.open_alert()
        store.open_alert()
        store.broken += ["settle_alert"]
        await alerting.tick()
        ports.advance(max(store.holds))
        store.open_alert()
        await alerting.tick()
        assert [alert.count for alert in log.alerts] == [2, 3]
        assert len(set(log.ids)) == 2  # or a receiver would drop what it has not seen

    async def test_the_ends_of_alerts_of_one_cause_are_one_message_too(self, store: Store, ports: Ports) -> None:
        log = Receiver("log")
        alerting = Alerting([log], store=store, ports=ports)
        numbers = [store.open_alert() for _ in range(5)]
        await alerting.tick()
        for no in numbers:
            store.close_alert(no)
        await alerting.tick()
        assert [(alert.state, alert.count) for alert in log.alerts] == [("open", 5), ("closed", 5)]

    @pytest.mark.parametrize(
        "trouble", [asyncio.CancelledError("by itself"), SystemExit(3), TimeoutError("its own"), KeyError("a")]
    )
    async def test_whatever_a_sink_raises_is_a_failure_of_that_sink(
        self, store: Store, ports: Ports, trouble: BaseException
    ) -> None:
        log, webhook = Receiver("log"), Receiver("webhook")
        webhook.trouble = trouble
        no = store.open_alert()
        assert await within(Alerting([webhook, log], store=store, ports=ports).tick()) == 1
        assert store.rows[no].told == ("log",)
        assert type(trouble).__name__ in store.rows[no].error

    async def test_an_alert_in_hand_when_the_process_stops_is_told_by_the_next_one(
        self, store: Store, ports: Ports
    ) -> None:
        mine, theirs = Receiver("webhook"), Receiver("webhook")
        mine.open.clear()
        store.open_alert()
        running = asyncio.create_task(Alerting([mine], store=store, ports=ports).run())
        await until(lambda: mine.asked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(running)
        assert mine.at_once == 0
        ports.advance(max(store.holds))
        await Alerting([theirs], store=store, ports=ports).tick()
        assert (mine.told, theirs.told) == ([], ["order-1 open"])

    async def test_two_sinks_of_one_name_are_refused(self, store: Store, ports: Ports) -> None:
        with pytest.raises(DefinitionError, match="twice to 'log'"):
            Alerting([LogSink(), LogSink()], store=store, ports=ports)

    @pytest.mark.parametrize(
        "numbers",
        [
            {"retry_seconds": 0},
            {"retry_seconds": 10, "retry_seconds_max": 5},
            {"retry_seconds_max": float("inf")},
            {"poll_seconds": float("nan")},
        ],
    )
    async def test_numbers_that_cannot_work_are_refused(
        self, store: Store, ports: Ports, numbers: dict[str, float]
    ) -> None:
        with pytest.raises(DefinitionError, match="must be above 0"):
            Alerting([LogSink()], store=store, ports=ports, **numbers)

    async def test_a_timeout_that_cannot_work_is_refused(self, store: Store, ports: Ports) -> None:
        with pytest.raises(DefinitionError, match="the timeout of webhook is inf"):
            Alerting([Receiver("webhook", timeout_seconds=float("inf"))], store=store, ports=ports)


async def told_to(sink: AlertSink, store: Store, ports: Ports) -> AlertRow:
    """The alert after one pass with this sink alone."""
    no = max(store.rows, default=0) or store.open_alert()
    await within(Alerting([sink], store=store, ports=ports).tick())
    return store.rows[no]


class TestTheLog:
    async def test_an_open_alert_is_a_warning_and_a_closed_one_an_info(
        self, store: Store, ports: Ports, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "arriero.alerts")
        await told_to(LogSink(), store, ports)
        store.close_alert(1)
        await told_to(LogSink(), store, ports)
        opened, closed = [record for record in caplog.records if record.name == "arriero.alerts"]
        assert (opened.levelno, closed.levelno) == (logging.WARNING, logging.INFO)
        assert "task order-1 of orders needs an operator: card declined" in opened.getMessage()
        assert "needs no operator any longer" in closed.getMessage()


HEARD: list[tuple[Alert, int]] = []


@pytest.fixture
def heard() -> Iterator[list[tuple[Alert, int]]]:
    HEARD.clear()
    yield HEARD
    HEARD.clear()


def plain(alert: Alert) -> None:
    HEARD.append((alert, threading.get_ident()))


async def waiting(alert: Alert) -> None:
    await asyncio.sleep(0)
    HEARD.append((alert, threading.get_ident()))


class Callee:
    """A callable object that is async, which nobody can see from outside."""

    async def __call__(self, alert: Alert) -> None:
        await waiting(alert)


class TestFunctions:
    async def test_a_plain_function_is_called_in_a_thread(
        self, store: Store, ports: Ports, heard: list[tuple[Alert, int]]
    ) -> None:
        row = await told_to(FunctionSink(plain, ports=ports), store, ports)
        assert row.told == ("function:test_alert_sinks.plain",)
        ((alert, thread),) = heard
        assert (alert.id, alert.task_id, alert.state) == ("store-1-1000000000-open", "order-1", "open")
        assert thread != threading.get_ident()

    @pytest.mark.parametrize("function", [waiting, Callee()])
    async def test_an_async_function_is_awaited_on_the_event_loop(
        self, store: Store, ports: Ports, heard: list[tuple[Alert, int]], function: Callable[[Alert], Any]
    ) -> None:
        row = await told_to(FunctionSink(function, ports=ports), store, ports)
        assert row.next_at is None
        assert [thread for _, thread in heard] == [threading.get_ident()]

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_what_a_function_raises_is_kept_with_the_alert(
        self, store: Store, ports: Ports, is_async: bool
    ) -> None:
        def plainly(alert: Alert) -> None:
            raise LookupError(f"no pager for {alert.workflow}")

        async def later_on(alert: Alert) -> None:
            plainly(alert)

        row = await told_to(FunctionSink(later_on if is_async else plainly, ports=ports), store, ports)
        assert row.told == ()
        assert row.next_at is not None
        assert row.error.endswith("LookupError: no pager for orders")

    @pytest.mark.parametrize("trouble", [SystemExit(1), StopIteration()])
    async def test_a_plain_function_that_exits_takes_nobody_along(
        self, store: Store, ports: Ports, trouble: BaseException
    ) -> None:
        def leave(_: Alert) -> None:
            raise trouble

        row = await told_to(FunctionSink(leave, ports=ports), store, ports)
        assert type(trouble).__name__ in row.error

    async def test_a_plain_function_that_hangs_fails_at_its_timeout(self, store: Store, ports: Ports) -> None:
        entered, leave = threading.Event(), threading.Event()

        def hang(_: Alert) -> None:
            entered.set()
            leave.wait()

        telling = asyncio.create_task(told_to(FunctionSink(hang, ports=ports, timeout_seconds=30), store, ports))
        await until(entered.is_set)
        ports.advance(30)
        row = await within(telling)
        leave.set()
        assert row.error.endswith("it took longer than 30 s")


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-I", "-c", program, *map(str, arguments)]


def is_running(pid: int) -> bool:
    """Whether it runs; a zombie nobody has collected does not."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it has just ended, or this machine has no /proc
        return not Path("/proc/self").exists()


class TestCommands:
    async def test_a_command_reads_the_event_on_its_standard_input(
        self, store: Store, ports: Ports, tmp_path: Path
    ) -> None:
        kept = tmp_path / "event.json"
        command = CommandSink(
            python("import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())", kept, "; rm -rf $HOME")
        )
        row = await told_to(command, store, ports)
        assert (row.told, row.next_at) == ((command.name,), None)
        event = json.loads(kept.read_bytes())
        assert (event["type"], event["data"]["id"]) == ("task.alert.opened", "store-1-1000000000-open")

    async def test_a_command_gets_the_environment_without_the_secrets_in_it(
        self, store: Store, ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = {
            "ARRIERO_ALERTS_WEBHOOK_SECRET": "whsec_c2VzYW1l",
            "ARRIERO_ALERTS_WEBHOOK_URL": "https://hooks.example/services/sesame",
            "PGPASSWORD": "sesame",
            "ARRIERO_STORE": "postgresql://anna:sesame@here/shop",
            "DATABASE_URL": "postgresql://here/shop?listen_url=postgresql%3A%2F%2Fanna%3Asesame%40here",
            "PLACE": "host=here password=sesame",
        }
        harmless = {"TEAM": "night", "SHOP_URL": "https://shop.example/", "ANOTHER": "postgresql://anna@here/shop"}
        for name, value in (secret | harmless).items():
            monkeypatch.setenv(name, value)
        kept = tmp_path / "environment"
        program = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
        assert (await told_to(CommandSink(python(program, kept)), store, ports)).next_at is None
        passed = json.loads(kept.read_text())
        assert not set(passed) & set(secret)
        assert passed.items() >= harmless.items()
        assert passed["PATH"] == os.environ["PATH"]

    async def test_a_command_that_reads_nothing_has_been_told_too(self, store: Store, ports: Ports) -> None:
        assert (await told_to(CommandSink(python("pass")), store, ports)).next_at is None

    async def test_a_command_that_fails_is_told_again_and_the_end_of_its_complaint_kept(
        self, store: Store, ports: Ports
    ) -> None:
        program = "import sys; sys.stderr.write('x' * 100_000 + ' no such room'); sys.exit(3)"
        row = await told_to(CommandSink(python(program)), store, ports)
        assert row.told == ()
        assert "exited with 3: ..." in row.error
        assert row.error.endswith("x no such room")
        assert len(row.error) < 1_000

    async def test_a_command_ended_by_a_signal_has_failed(self, store: Store, ports: Ports) -> None:
        row = await told_to(CommandSink(python("import os; os.kill(os.getpid(), 15)")), store, ports)
        assert "was ended by signal 15" in row.error

    async def test_a_command_that_is_not_there_has_failed(self, store: Store, ports: Ports) -> None:
        row = await told_to(CommandSink(["/no/such/program"]), store, ports)
        assert "FileNotFoundError" in row.error

    async def test_a_child_that_a_command_leaves_behind_holds_nothing_up(
        self, store: Store, ports: Ports, tmp_path: Path
    ) -> None:
        kept = tmp_path / "pid"
        program = (
            "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
            "open(sys.argv[1], 'w').write(str(child.pid)); child.returncode = 0"
        )
        row = await told_to(CommandSink(python(program, kept)), store, ports)
        pid = int(kept.read_text())
        assert is_running(pid)
        os.kill(pid, 9)
        assert row.next_at is None

    async def test_a_command_that_hangs_is_killed_at_its_timeout_with_what_it_started(
        self, store: Store, ports: Ports, tmp_path: Path
    ) -> None:
        kept = tmp_path / "pids"
        program = (
            "import os, subprocess, sys, time;"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
            "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}');"
            "os.rename(sys.argv[1] + '.new', sys.argv[1]); time.sleep(600)"
        )
        command = CommandSink(python(program, kept), timeout_seconds=30)
        telling = asyncio.create_task(told_to(command, store, ports))
        await until(kept.exists)
        pids = [int(pid) for pid in kept.read_text().split()]
        ports.advance(30)
        row = await within(telling)
        assert row.error.endswith("it took longer than 30 s")
        await until(lambda: not any(is_running(pid) for pid in pids))

    async def test_the_name_of_a_command_does_not_show_its_arguments(self) -> None:
        one, other = CommandSink(["/bin/notify", "--token", "s3cret"]), CommandSink(["/bin/notify", "--token", "other"])
        assert one.name.startswith("command:notify#")
        assert "s3cret" not in one.name
        assert one.name != other.name
        assert one.name == CommandSink(["/bin/notify", "--token", "s3cret"]).name

    @pytest.mark.parametrize("arguments", ["notify --urgent", [], ["notify", 3], ["notify", "a\0b"], [""]])
    async def test_a_command_that_is_no_list_of_texts_is_refused(self, arguments: Any) -> None:
        with pytest.raises(InvalidInput, match="the command for alerts"):
            CommandSink(arguments)


class Webserver(ThreadingHTTPServer):
    """A real receiver of webhooks: remembers what it got and answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 204
        self.headers: dict[str, str] = {}
        self.body = b""
        self.endless = False
        self.silent = False  # it takes the request and never answers
        self.cut_off = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nobody reads the rest of an answer: not worth a word."""


class Answering(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Webserver

    def do_POST(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        if server.silent:
            self.rfile.read(1)  # ends when the other side does
            server.cut_off.set()
            return
        self.send_response(server.status)
        length = {} if server.endless else {"Content-Length": str(len(server.body))}
        for name, value in {**length, **server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(server.body)
        while server.endless:  # until the other side has enough
            self.wfile.write(server.body)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def webserver() -> Iterator[Webserver]:
    with Webserver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def webhook(ports: Ports, url: str, **given: Any) -> WebhookSink:
    return WebhookSink(url, SECRET, ports=ports, unix_time=lambda: UNIX_TIME, **given)


class TestWebhooks:
    async def test_a_webhook_gets_the_event_signed_as_its_headers_say(
        self, store: Store, ports: Ports, webserver: Webserver
    ) -> None:
        row = await told_to(webhook(ports, f"{webserver.url}/alerts?team=shop"), store, ports)
        assert row.next_at is None
        ((path, headers, body),) = webserver.got
        assert path == "/alerts?team=shop"
        assert headers["content-type"] == "application/json"
        assert headers["webhook-id"] == "store-1-1000000000-open"
        assert headers["webhook-timestamp"] == "1767225600"
        assert json.loads(body)["type"] == "task.alert.opened"
        assert json.loads(body)["data"]["task_id"] == "order-1"
        digest = hmac.digest(b"twenty-four random bytes", b"store-1-1000000000-open.1767225600." + body, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"

    async def test_a_retry_has_the_same_id_and_body_and_a_time_of_its_own(
        self, store: Store, ports: Ports, webserver: Webserver
    ) -> None:
        times = iter([100.0, 105.0])
        sink = WebhookSink(webserver.url, SECRET, ports=ports, unix_time=lambda: next(times))
        webserver.status = 503
        await told_to(sink, store, ports)
        webserver.status = 200
        ports.advance(store.seconds_until_due(1))
        await told_to(sink, store, ports)
        (_, first, body), (_, second, again) = webserver.got
        assert body == again
        assert first["webhook-id"] == second["webhook-id"]
        assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("100", "105")
        assert first["webhook-signature"] != second["webhook-signature"]
        assert store.rows[1].next_at is None

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    async def test_any_status_of_success_is_one(
        self, store: Store, ports: Ports, webserver: Webserver, status: int
    ) -> None:
        webserver.status = status
        assert (await told_to(webhook(ports, webserver.url), store, ports)).next_at is None

    @pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503])
    async def test_any_other_status_is_told_again_and_kept_with_what_the_answer_says(
        self, store: Store, ports: Ports, webserver: Webserver, status: int
    ) -> None:
        webserver.status, webserver.body = status, b'{"error":\n"signature  unknown"}'
        row = await told_to(webhook(ports, webserver.url), store, ports)
        assert row.next_at is not None
        assert row.error.endswith(f'the webhook answered {status}: {{"error": "signature unknown"}}')

    @pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
    async def test_a_redirect_is_refused_and_never_followed(
        self, store: Store, ports: Ports, webserver: Webserver, status: int
    ) -> None:
        webserver.status, webserver.headers = status, {"Location": f"{webserver.url}/elsewhere"}
        row = await told_to(webhook(ports, f"{webserver.url}/alerts"), store, ports)
        assert f"answered {status}, and a redirect is never followed" in row.error
        assert [path for path, _, _ in webserver.got] == ["/alerts"]

    async def test_what_a_receiver_says_moves_no_cursor_in_the_log_or_in_the_row(
        self, store: Store, ports: Ports, webserver: Webserver, caplog: pytest.LogCaptureFixture
    ) -> None:
        webserver.status, webserver.body = 500, "\x1b[2J\u202egone\x9b31m".encode()
        row = await told_to(webhook(ports, webserver.url), store, ports)
        assert row.error.endswith("the webhook answered 500: \\x1b[2J\\u202egone\\x9b31m")
        assert "\\x1b[2J\\u202egone\\x9b31m" in caplog.text
        assert escape_text(caplog.text, keep="\n") == caplog.text

    async def test_no_part_of_the_address_is_repeated(self, store: Store, ports: Ports, webserver: Webserver) -> None:
        webserver.status, webserver.body = 404, b"no service T01234567/s%73ame-token, nor ssame-token of key=0123456789"
        url = f"{webserver.url}/services/T01234567/s%73ame-token?key=0123456789"
        row = await told_to(webhook(ports, url), store, ports)
        assert row.error.endswith("the webhook answered 404: no service .../..., nor ... of ...")

    async def test_a_webhook_that_never_answers_is_cut_off_at_its_timeout(
        self, store: Store, ports: Ports, webserver: Webserver
    ) -> None:
        webserver.silent = True
        telling = asyncio.create_task(told_to(webhook(ports, webserver.url, timeout_seconds=20), store, ports))
        await until(lambda: webserver.got)
        ports.advance(20)
        row = await within(telling)
        assert row.error.endswith("it took longer than 20 s")
        await until(webserver.cut_off.is_set)

    async def test_of_an_endless_answer_only_the_beginning_is_read_and_shown(
        self, store: Store, ports: Ports, webserver: Webserver
    ) -> None:
        webserver.status, webserver.body, webserver.endless = 500, b"trouble " * 1_000, True
        row = await told_to(webhook(ports, webserver.url), store, ports)
        assert "the webhook answered 500: trouble trouble" in row.error
        assert len(row.error) < 1_000

    async def test_nobody_listening_is_a_failure_that_says_so(self, store: Store, ports: Ports) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))  # bound and not listening: refused
            row = await told_to(webhook(ports, f"http://127.0.0.1:{free.getsockname()[1]}"), store, ports)
        assert "the webhook cannot be asked: ConnectionRefusedError" in row.error

    async def test_a_server_that_cannot_show_who_it_is_gets_nothing(
        self, store: Store, ports: Ports, webserver: Webserver
    ) -> None:
        row = await told_to(webhook(ports, webserver.url.replace("http", "https")), store, ports)
        assert "SSLError" in row.error
        assert webserver.got == []

    async def test_an_answer_that_is_no_http_is_a_failure(self, store: Store, ports: Ports) -> None:
        async def mumble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"hello\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(mumble, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            row = await told_to(webhook(ports, f"http://127.0.0.1:{port}"), store, ports)
        assert "the webhook cannot be asked: BadStatusLine" in row.error

    @pytest.mark.parametrize("before", [0, 480])  # at the end of what is shown, too
    async def test_neither_secret_nor_address_is_shown_when_a_receiver_repeats_what_it_got(
        self, store: Store, ports: Ports, webserver: Webserver, caplog: pytest.LogCaptureFixture, before: int
    ) -> None:
        caplog.set_level(logging.DEBUG)
        sink = webhook(ports, f"{webserver.url}/services/T00-B00-XYZZY?token=PLUGH")
        webserver.status = 404
        webserver.body = b"x" * before + b" POST /services/T00-B00-XYZZY?token=PLUGH is not here"
        row = await told_to(sink, store, ports)
        assert "the webhook answered 404" in row.error
        shown = f"{row.error} {caplog.text} {sink!r} {sink.name} {row.told}"
        for private in (SECRET, SECRET.removeprefix("whsec_"), "twenty-four", "T00", "XYZZY", "PLUGH"):
            assert private not in shown

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "alerts.example.org/XYZZY",
            "file:///etc/XYZZY",
            "ftp://example.org/XYZZY",
            "https:///XYZZY",
            "https://me:XYZZY@example.org/",
            "https://example.org:port/XYZZY",
            "https://example.org/XYZZY alerts",
            "https://example.org/XYZZY\r\nwebhook-id: forged",
            "https://exämple.org/XYZZY",
            "https://example.org\\XYZZY",
            None,
        ],
    )
    async def test_an_address_that_cannot_be_used_is_refused_and_not_repeated(self, ports: Ports, url: Any) -> None:
        with pytest.raises(InvalidInput, match="the address of the webhook") as refusal:
            webhook(ports, url)
        assert "XYZZY" not in str(refusal.value)

    @pytest.mark.parametrize(
        ("url", "host", "port"),
        [
            ("https://[::1]/alerts", "::1", 443),
            ("http://[::1]/alerts", "::1", 80),
            ("https://[::1]:8443/", "::1", 8443),
            ("https://example.org", "example.org", 443),
        ],
    )
    async def test_an_address_without_a_port_means_the_usual_one(
        self, ports: Ports, url: str, host: str, port: int
    ) -> None:
        connection = webhook(ports, url)._connection()
        assert (connection.host, connection.port) == (host, port)

    async def test_two_webhooks_at_one_host_have_two_names(self, ports: Ports) -> None:
        one, other = webhook(ports, "https://example.org/a"), webhook(ports, "https://example.org/b")
        assert one.name.startswith("webhook:example.org#")
        assert one.name != other.name
