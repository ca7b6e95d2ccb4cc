"""The lint of workflow code, as a function of modules: what is found in them, and what is not."""

import importlib
import itertools
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arriero import Workflow
from arriero.lint import LintReport, find_hazards
from arriero.lint.rules import FUNCTIONS, METHODS

NUMBERS = itertools.count()
BEFORE = """
import warnings
warnings.simplefilter("ignore")
import asyncio, os, random, time, uuid
import datetime as dt
from datetime import date, datetime
from pathlib import Path
import arriero
from arriero import Agent, workflow

bank = Agent("bank")

@bank.step(effect_free=True)
async def charge(pence: int) -> int:
    return random.randint(1, pence)
"""

Load = Callable[..., types.ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write a module, with others that it imports, and import it; `NAME` in their texts is made unique."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(text: str, *, encoding: str = "utf-8", head: str = BEFORE, **others: str) -> types.ModuleType:
        name = f"linted{next(NUMBERS)}"
        for other, body in others.items():
            Path(f"{name}_{other}.py").write_text(textwrap.dedent(body).replace("NAME", name))
        Path(f"{name}.py").write_text(head + textwrap.dedent(text).replace("NAME", name), encoding=encoding)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("linted"):
            del sys.modules[name]


def lint(module: types.ModuleType) -> LintReport:
    """Lint all workflows of a module."""
    found = [one for one in vars(module).values() if issubclass(type(one), Workflow)]
    return find_hazards([(one.name, one.function) for one in found])


def names(report: LintReport) -> list[str]:
    """The names of what was found, in the order of the lines."""
    return [one.calls for one in report.findings]


def in_workflow(*lines: str) -> str:
    """A workflow with these lines."""
    body = "\n".join(f"    {line}" for text in lines for line in text.splitlines())
    return f"@workflow\nasync def one(pence: int) -> None:\n{body}\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("dt.datetime.now()", "datetime.datetime.now"),
        ("datetime.utcnow()", "datetime.datetime.utcnow"),
        ("date.today()", "datetime.date.today"),
        ("datetime.today()", "datetime.datetime.today"),
        ("from time import time as t; t()", "time.time"),
        ("time.monotonic(); 1", "time.monotonic"),
        ("clock = time.perf_counter; clock()", "time.perf_counter"),
        ("getattr(time, 'time_ns')()", "time.time_ns"),
        ("__import__('time').time()", "time.time"),
        ("time.strftime('%Y')", "time.strftime"),
        ("time.sleep(1)", "time.sleep"),
        ("await asyncio.sleep(1)", "asyncio.sleep"),
        ("async with asyncio.timeout(60): pass", "asyncio.timeout"),
        ("await asyncio.wait_for(charge(1), 60)", "asyncio.wait_for"),
        ("await asyncio.wait([], timeout=pence)", "asyncio.wait"),
        ("random.shuffle([1])", "random.shuffle"),
        ("random.Random()", "random.Random"),
        ("random.Random(None)", "random.Random"),
        ("random.SystemRandom()", "random.SystemRandom"),
        ("import secrets; secrets.token_hex()", "secrets.token_hex"),
        ("uuid.uuid4()", "uuid.uuid4"),
        ("from uuid import uuid1 as u; u()", "uuid.uuid1"),
        ("os.urandom(3)", "os.urandom"),
        ("os.environ.get('HOME')", "os.environ"),
        ("os.getenv('HOME')", "os.getenv"),
        ("open('x')", "open"),
        ("p = Path('a') / 'b'; p.read_text()", "pathlib.Path.read_text"),
        ("Path('a').joinpath('b').exists()", "pathlib.Path.exists"),
        ("import socket; socket.create_connection(('x', 1))", "socket.create_connection"),
        ("from urllib import request; request.urlopen('x')", "urllib.request.urlopen"),
        ("import urllib.request; urllib.request.urlopen('x')", "urllib.request.urlopen"),
        ("import requests_that_nobody_has as r, requests; requests.get('x')", "requests.get"),
        ("import subprocess as s; s.run(['ls'])", "subprocess.run"),
        ("import sqlite3; sqlite3.connect('x')", "sqlite3.connect"),
        ("from threading import Thread; Thread(target=print)", "threading.Thread"),
        ("from concurrent.futures import ThreadPoolExecutor as E; E()", "concurrent.futures.ThreadPoolExecutor"),
        ("await asyncio.to_thread(print)", "asyncio.to_thread"),
        ("asyncio.get_running_loop().run_in_executor(None, print)", "asyncio.AbstractEventLoop.run_in_executor"),
        ("import functools; functools.partial(random.choice, [1])()", "random.choice"),
        ("sorted([1], key=lambda _: random.random())", "random.random"),
        ("[time.time() async for _ in charge]", "time.time"),
        ("f'{time.time()}'", "time.time"),
        ("def inner():\n    return time.time()\ninner()", "time.time"),
        ("match time.time():\n    case _: pass", "time.time"),
        ("print(time.time)", "time.time"),
        ("for name in {'a', 'b'}:\n    await charge(1)", "a set of texts"),
        ("await asyncio.gather(*(charge(1) for name in {'a', 'b'}))", "a set of texts"),
    ],
)  # fmt: skip
def test_a_call_that_a_replay_cannot_repeat_is_found(load: Load, line: str, name: str) -> None:
    report = lint(load(in_workflow(line)))
    assert set(names(report)) == {name}
    assert report.findings[0].workflows == ("one",)


@pytest.mark.parametrize(
    "line",
    [
        "random.Random(5).choice([1])",
        "arriero.random().choice([1]); arriero.uuid(); arriero.now()",
        "datetime(2026, 1, 1); datetime.fromisoformat('2026-01-01'); datetime.min",
        "when: datetime | None = None; rng: random.Random",
        "def inner(rng: random.Random, now: datetime = datetime.min) -> time.struct_time: ...",
        "random = arriero.random(); random.choice([1])",
        "time = arriero.now(); time.time()",
        "for time in (1, 2): time.time()",
        "[time.time() for time in (1, 2)]",
        "(lambda time: time.time())(arriero.now())",
        "try: pass\nexcept OSError as time: time.time()",
        "await asyncio.sleep(0); await asyncio.wait_for(charge(1), None); await asyncio.wait([])",
        "await asyncio.wait_for(charge(1), timeout=None)",
        "time.strftime('%Y', time.gmtime(0))",
        "Path('a').name; Path('a').with_suffix('.b').parts",
        "isinstance(pence, uuid.UUID); uuid.UUID(int=5); uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
        "import threading; isinstance(pence, threading.Thread); threading.Lock()",
        "await charge(1); await charge.options",
        "print('x'); len([1])",
        "for name in sorted({'a', 'b'}):\n    await charge(1)",
        "for name in {'a', 'b'}:\n    print(name)",
        "for number in {1, 2}:\n    await charge(number)",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    time.time()",
        "'time.time()'",
        "os.path.join('a', 'b'); os.sep",
    ],
)
def test_what_a_replay_repeats_is_not_found(load: Load, line: str) -> None:
    report = lint(load(in_workflow(line)))
    assert (names(report), report.unread) == ([], ())


def test_a_finding_names_its_place_in_characters_the_fact_and_the_replacement(load: Load) -> None:
    module = load(in_workflow("ünïcode = 'ä'; b = time.time()"))
    (found,) = lint(module).findings
    assert (found.path, found.column) == (f"{module.__name__}.py", 24)
    line = Path(found.path).read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert line[found.column - 1 :] == "time.time()"
    assert found.fact == "reads a clock, which has moved when arriero runs the code again"
    assert found.instead == "use arriero.now()"


def test_helpers_are_entered_also_in_other_modules_and_in_a_cycle(load: Load) -> None:
    module = load(
        """
        from NAME_prices import price, Order
        import NAME_prices as prices

        @workflow
        async def one() -> None:
            price(3)

        @workflow
        async def two() -> None:
            prices.HANDLERS["x"]()
            await prices.later()

        @workflow
        async def three() -> None:
            order = Order()
            order.total
            super_order = prices.Special()
            super_order.special()
        """,
        prices="""
        import time, os, random, functools, contextlib
        from dataclasses import dataclass, field
        from uuid import uuid4

        def price(n): return rate(n) if n else 0
        def rate(n): return price(n - 1) + time.time()
        HANDLERS = {"x": lambda: os.getenv("X"), "y": price}

        def timed(fn):
            @functools.wraps(fn)
            async def wrapper(*args):
                begin = time.monotonic()
                return await fn(*args)
            return wrapper

        @timed
        async def later(): return random.random()

        class Order:
            @property
            def total(self): return self._rate()
            @staticmethod
            def _rate(): return random.choice([1])
            def special(self): return cached()

        @dataclass
        class Special(Order):
            id: object = field(default_factory=uuid4)
            def special(self): return super().special()

        @functools.lru_cache
        def cached(): return random.randint(1, 2)
        """,
    )
    report = lint(module)
    found = {(one.calls, one.workflows, one.through) for one in report.findings}
    assert found == {
        ("time.time", ("one",), ("price", "rate")),
        ("os.getenv", ("two",), ("<lambda>",)),
        ("time.monotonic", ("two",), ("timed.wrapper",)),
        ("random.random", ("two",), ("timed.wrapper", "later")),
        ("random.choice", ("three",), ("Order.total", "Order._rate")),
        ("Special.id by uuid.uuid4", ("three",), ()),
        ("random.randint", ("three",), ("Special.special", "Order.special", "cached")),
    }


def test_one_place_that_several_workflows_reach_is_one_finding(load: Load) -> None:
    module = load(
        """
        def stamp(): return time.time()
        @workflow
        async def one() -> None: stamp()
        @workflow
        async def two() -> None: stamp()
        """
    )
    (found,) = lint(module).findings
    assert found.workflows == ("one", "two")


def test_steps_other_workflows_and_installed_code_are_not_entered(load: Load) -> None:
    module = load(
        """
        import json, msgspec, uuid as ids
        @workflow
        async def child() -> int: return 1
        @workflow
        async def one() -> None:
            await charge(1)
            await child()
            json.loads("1")
            ids.UUID(int=3)
            msgspec.json.decode(b"1")
        """
    )
    report = lint(module)
    assert (report.findings, report.functions) == ((), 2)


def test_the_function_of_a_step_is_workflow_code_where_the_workflow_calls_it(load: Load) -> None:
    assert names(lint(load(in_workflow("await charge.function(1)")))) == ["random.randint"]


def test_methods_that_statements_call_are_entered_and_those_that_a_subclass_replaces_are_not(load: Load) -> None:
    module = load(
        """
        import msgspec
        class Note(msgspec.Struct):
            at: datetime = msgspec.field(default_factory=datetime.now)
        class Clock:
            def __init__(self): self.source = time.perf_counter
            def __enter__(self): return time.time()
            def __exit__(self, *raised): ...
            def __iter__(self): yield random.random()
            def __call__(self): return time.time_ns()
        class Base:
            @classmethod
            def make(cls): return cls.stamp()
            @classmethod
            def stamp(cls): return time.monotonic()
        class Child(Base):
            @classmethod
            def stamp(cls): return 3
        CLOCK = Clock()
        @workflow
        async def one() -> None:
            Note()
            Note(datetime.min); Note(at=datetime.min)
            with Clock() as opened: print(opened)
            for number in CLOCK: print(number)
            CLOCK()
            CLOCK.source()
            Child.make()
            class Inner:
                def method(self): return os.urandom(1)
        """
    )
    report = lint(module)
    assert {(one.calls, one.through) for one in report.findings} == {
        ("Note.at by datetime.datetime.now", ()),
        ("time.time", ("Clock.__enter__",)),
        ("random.random", ("Clock.__iter__",)),
        ("time.time_ns", ("Clock.__call__",)),
        ("time.perf_counter", ()),
        ("time.perf_counter", ("Clock.__init__",)),
        ("os.urandom", ()),
    }
    assert report.unread == ()


def test_the_type_of_a_parameter_or_a_result_says_which_method_is_called(load: Load) -> None:
    module = load(
        """
        from dataclasses import dataclass
        @dataclass
        class Rate:
            value: int = 0
            def current(self): return time.time() * self.value
        @dataclass
        class Order:
            rate: Rate
            other: "Rate | None" = None
        def find_rate() -> "Rate": return Rate()
        @workflow
        async def one(order: Order) -> None: order.rate.current()
        @workflow
        async def two() -> None: find_rate().current()
        """
    )
    assert [(one.calls, one.workflows) for one in lint(module).findings] == [("time.time", ("one", "two"))]


def test_a_decorator_of_an_installed_package_is_looked_through_to_the_function(load: Load) -> None:
    module = load(
        """
        import contextlib, functools
        @contextlib.asynccontextmanager
        async def opened():
            yield time.time()
        @workflow
        async def one() -> None:
            async with opened(): pass
        """
    )
    assert names(lint(module)) == ["time.time"]


def test_code_that_is_nested_too_deeply_is_named(load: Load) -> None:
    branches = "".join(f"    elif pence == {number}:\n        pass\n" for number in range(700))
    text = f"@workflow\nasync def one(pence: int) -> None:\n    if pence < 0:\n        pass\n{branches}"
    assert [one.reason for one in lint(load(text)).unread] == ["its code is nested too deeply"]


def test_names_of_a_star_import_are_known(load: Load) -> None:
    module = load(
        "from NAME_all import *\n@workflow\nasync def one() -> None:\n    t()\n", all="from time import time as t\n"
    )
    assert names(lint(module)) == ["time.time"]


def test_a_module_that_is_imported_lazily_is_read_and_one_that_fails_is_named(load: Load) -> None:
    module = load(
        """
        @workflow
        async def one() -> None:
            from NAME_lazy import stamp
            import NAME_broken
            stamp()
        """,
        lazy="import time\ndef stamp(): return time.time()\n",
        broken="1 / 0\n",
    )
    report = lint(module)
    assert names(report) == ["time.time"]
    (unread,) = report.unread
    assert unread.workflow == "one"
    assert "cannot be imported: ZeroDivisionError" in unread.reason


def test_a_comment_accepts_a_finding_on_its_line_and_needs_a_reason(load: Load) -> None:
    report = lint(
        load(
            in_workflow(
                "time.time()  # arriero: allow only logged",
                "time.time()  # arriero: allow",
                "print(1)  # arriero: allow nothing here",
                "'# arriero: allow in a text'; time.time()",
            )
        )
    )
    assert report.allowed == 1
    assert [(one.calls, one.fact) for one in report.findings[1:2]] == [("", "this comment allows nothing")]
    assert [one.calls for one in report.findings] == ["time.time", "", "time.time"]
    assert "needs a reason" in report.findings[0].instead


def test_a_workflow_without_a_source_is_named_and_the_others_are_read(load: Load) -> None:
    module = load(
        """
        exec("async def made() -> None: ...")
        made = workflow(made)
        exec("def helper(): ...")
        @workflow
        async def one() -> None:
            helper()
            time.time()
        """
    )
    report = lint(module)
    assert names(report) == ["time.time"]
    assert [one.workflow for one in report.unread] == ["made", "one"]
    assert report.unread[0].reason == "its source cannot be read: <string>"


def test_a_callable_that_is_no_python_function_is_named() -> None:
    report = find_hazards([("odd", len)])
    assert [(one.workflow, one.reason) for one in report.unread] == [("odd", "it is not written in Python")]


def test_a_file_is_read_in_the_encoding_that_it_names(load: Load) -> None:
    head = f"# -*- coding: latin-1 -*-\n{BEFORE}"
    module = load(in_workflow("name = 'Müller'; time.time()"), encoding="latin-1", head=head)
    assert [(one.calls, one.column) for one in lint(module).findings] == [("time.time", 22)]


def test_objects_that_run_code_when_they_are_asked_are_left_alone(load: Load) -> None:
    module = load(
        """
        class Proxy:
            @property
            def __class__(self): raise RuntimeError("not bound")
            def __getattr__(self, name): raise RuntimeError("not bound")
        proxy = Proxy()
        @workflow
        async def one() -> None:
            proxy.name()
            proxy()
            time.time()
        """
    )
    assert names(lint(module)) == ["time.time"]


def test_1000_workflows_with_shared_helpers_are_read_once_each(load: Load) -> None:
    helpers = "".join(f"def f{n}(): return f{n + 1}()\n" for n in range(100)) + "def f100(): return time.time()\n"
    workflows = "".join(f"@workflow\nasync def w{n}() -> None: f0()\n" for n in range(1_000))
    report = lint(load(helpers + workflows))
    assert (report.workflows, report.functions, len(report.findings)) == (1_000, 1_101, 1)
    assert len(report.findings[0].workflows) == 1_000


def test_the_rules_are_about_names_that_exist() -> None:
    newer = {"random.binomialvariate", "uuid.uuid6", "uuid.uuid7", "concurrent.futures.InterpreterPoolExecutor"}
    known = [name for name in (*FUNCTIONS, *METHODS) if name.partition(".")[0] in sys.stdlib_module_names]
    missing = set()
    for name in known:
        module, _, attribute = name.rpartition(".")
        try:
            owner = importlib.import_module(module)
        except ModuleNotFoundError:  # the method of a class
            owner = getattr(importlib.import_module(module.rpartition(".")[0]), module.rpartition(".")[2])
        if not hasattr(owner, attribute):
            missing.add(name)
    assert missing <= newer
