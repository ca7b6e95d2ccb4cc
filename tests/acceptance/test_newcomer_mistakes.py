"""What newcomers do wrong: each mistake is answered with one line that says what to do. The lines are compared whole."""

import asyncio
import logging
import os
import random
import socket
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner, Result

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    Callback,
    Request,
    Retry,
    Signal,
    SignalRefused,
    TaskFailed,
    callback,
    workflow,
)
from arriero.cli.main import commands
from arriero.runtime.ports import LoopClock
from arriero.store.postgres.translating import translate_error as translate_postgres
from arriero.store.sqlite.connection import translate_error as translate_sqlite

MODULE = """\
from dataclasses import dataclass

from arriero import App

app = App("shop")
payments = app.service("payments")
number = 5


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int = 1


@payments.step(effect_free=True)
async def charge(order: Order) -> str:
    return "receipt"


@app.workflow
async def fulfil(order: Order, amount: int = 1) -> str:
    return await charge(order)
"""


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int = 1


class Cart:
    """A class that JSON does not know."""


class Shop:
    """An App with a step and a workflow. ``charge``: the function of the step, if it is another one."""

    def __init__(self, store: Any = None, charge: Callable[..., Any] | None = None) -> None:
        self.app = App("shop", store=store)
        self.payments = self.app.service("payments")

        async def plain(order: Order) -> str:
            return f"receipt-{order.id}"

        self.charge: Any = self.payments.step(name="charge", effect_free=True, retry=Retry(max_calls=1))(
            charge or plain
        )

        @self.app.workflow
        async def fulfil(order: Order, amount: int = 1) -> str:
            return str(await self.charge(order))

        self.fulfil: Any = fulfil

    async def run(self, body: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Run a task: the workflow, or a body of workflow code."""
        call = self.fulfil(Order("1001"))
        if body is not None:

            async def other() -> str:
                return await body()  # type: ignore[no-any-return]  # or not: that may be the mistake

            call = self.app.workflow(other)()
        async with self.app.running():
            await self.app.execute(call, task_id="1001")


class FastClock(LoopClock):
    """A clock on which a wait takes no time."""

    passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        self.passed += seconds
        await asyncio.sleep(0)


# --- in Python
class Mistake(NamedTuple):
    name: str
    make: Callable[[], Any]
    line: str


MISTAKES: list[Mistake] = []


def mistake(line: str) -> Callable[[Callable[[], Any]], None]:
    """Decorate a function that makes the mistake of its name. ``line``: what is shown; FOLDER stands for the folder."""

    def note(make: Callable[[], Any]) -> None:
        MISTAKES.append(Mistake(make.__name__.strip("_"), make, line))

    return note


async def open_app(app: App) -> None:
    async with app:
        pass


@mistake(
    "store 'arriero.db' is not known; use sqlite:///PATH (four slashes for an absolute path) or "
    "postgresql://USER@HOST/DATABASE"
)
async def a_store_without_a_scheme() -> None:
    await open_app(Shop("arriero.db").app)


@mistake(
    "store 'mysql://localhost/shop' is not known; use sqlite:///PATH (four slashes for an "
    "absolute path) or postgresql://USER@HOST/DATABASE"
)
async def a_store_of_another_database() -> None:
    await open_app(Shop("mysql://localhost/shop").app)


@mistake(
    "App(store=) is PosixPath('arriero.db'); it must be the URL of a state store, sqlite:///PATH "
    "(four slashes for an absolute path) or postgresql://USER@HOST/DATABASE"
)
async def a_path_in_place_of_a_url() -> None:
    await open_app(Shop(Path("arriero.db")).app)


@mistake("store FOLDER/data/arriero.db: the folder FOLDER/data does not exist; create it")
async def a_store_in_a_folder_that_does_not_exist() -> None:
    await open_app(Shop("sqlite:///data/arriero.db").app)


@mistake(
    "store FOLDER/notes.txt: file is not a database; it is not a SQLite file: name another file, or move this one away"
)
async def a_store_that_is_another_kind_of_file() -> None:
    Path("notes.txt").write_text("milk and bread\n" * 100)
    await open_app(Shop("sqlite:///notes.txt").app)


@mistake(
    "store FOLDER/arriero.db: its schema is number 99, this release of arriero knows 5: install "
    "the newer release that wrote it"
)
async def a_store_of_a_newer_release() -> None:
    await open_app(Shop().app)
    with closing(sqlite3.connect("arriero.db")) as other, other:
        other.execute("INSERT INTO arriero_migration VALUES (99, '0099_later', 0)")
    await open_app(Shop().app)


@mistake(
    "store FOLDER/arriero.db: its tables lack arriero_alert.cause: a build from before the release made it, and it "
    "cannot be migrated: export the history with that build, and begin a new store in another place"
)
async def a_store_of_a_build_from_before_the_release() -> None:
    await open_app(Shop().app)
    with closing(sqlite3.connect("arriero.db")) as other, other:
        other.execute("ALTER TABLE arriero_alert RENAME COLUMN cause TO why")
    await open_app(Shop().app)


@mistake(
    'store postgresql://db/shop: column "cause" does not exist; a build from before the release made it, and it '
    "cannot be migrated: export the history with that build, and begin a new store in another place"
)
def a_store_on_postgresql_of_a_build_from_before_the_release() -> None:
    raise translate_postgres(psycopg.errors.UndefinedColumn('column "cause" does not exist'), "postgresql://db/shop")


@mistake(
    "store /srv/shop.db: attempt to write a readonly database; it cannot be written: give this "
    "user the right to write the file and its folder"
)
def a_file_that_may_only_be_read() -> None:
    raise translate_sqlite(sqlite3.OperationalError("attempt to write a readonly database"), "/srv/shop.db")


@mistake(
    'store postgresql://127.0.0.1:1/shop: connection failed: connection to server at "127.0.0.1",'
    " port 1 failed: Connection refused Is the server running on that host and accepting TCP/IP "
    "connections?; nobody listens there: start the server, or look at host and port in the URL"
)
async def postgresql_that_does_not_run() -> None:
    await open_app(Shop("postgresql://127.0.0.1:1/shop").app)


@mistake(
    'store postgresql://ana:***@db/shop: FATAL: password authentication failed for user "ana"; '
    "the password is wrong: mend the URL, PGPASSWORD or the .pgpass file"
)
def a_wrong_password_of_postgresql() -> None:
    error = psycopg.OperationalError('FATAL:  password authentication failed for user "ana"')
    raise translate_postgres(error, "postgresql://ana:***@db/shop")


@mistake("a store on PostgreSQL needs the driver psycopg: run `pip install '.[postgres]'` in a clone of arriero")
async def no_driver_of_postgresql() -> None:
    loaded = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.startswith(("psycopg", "arriero.store.postgres"))
    }
    sys.modules["psycopg"] = None  # type: ignore[assignment]  # so Python marks a module that is not there
    try:
        await open_app(Shop("postgresql://db/shop").app)
    finally:
        sys.modules.update(loaded)


@mistake(
    "workflow fulfil: Expected `object`, got `str` - at `$.order`; it takes (order: Order, "
    "amount: int = 1), like fulfil(order=Order(id='text', pieces=1))"
)
def a_wrong_type_of_argument() -> None:
    Shop().fulfil("1001")


@mistake(
    "workflow fulfil: missing order; it takes (order: Order, amount: int = 1), like "
    "fulfil(order=Order(id='text', pieces=1))"
)
def too_few_arguments() -> None:
    Shop().fulfil()


@mistake(
    "workflow fulfil takes 2 positional arguments, 3 were given; it takes (order: Order, amount: "
    "int = 1), like fulfil(order=Order(id='text', pieces=1))"
)
def too_many_arguments() -> None:
    Shop().fulfil(Order("1001"), 2, 3)


@mistake(
    "workflow fulfil has no parameter 'amout'; it takes (order: Order, amount: int = 1), like "
    "fulfil(order=Order(id='text', pieces=1))"
)
def an_argument_by_a_wrong_name() -> None:
    Shop().fulfil(Order("1001"), amout=2)


@mistake("call values were never awaited: charge; await each, or do not make it")
async def no_await_of_a_step() -> None:
    shop = Shop()

    async def body() -> Any:
        return shop.charge(Order("1001"))

    await shop.run(body)


@mistake("coroutine 'App.submit' was never awaited")
async def no_await_of_submit() -> None:
    shop = Shop()
    async with shop.app:
        shop.app.submit(shop.fulfil(Order("1001")))


@mistake(
    "workflow code asked its loop for call_later, that is a timer (asyncio.sleep, timeout, "
    "wait_for): use `await arriero.sleep(...)`, or complete_within= on the step"
)
async def asyncio_sleep_in_a_workflow() -> None:
    async def body() -> Any:
        await asyncio.sleep(1)

    await Shop().run(body)


@mistake(
    "workflow code asked its loop for create_connection, that is a socket, pipe, process or "
    "signal: move the call into a step"
)
async def a_connection_in_a_workflow() -> None:
    async def body() -> Any:
        await asyncio.open_connection("localhost", 1)

    await Shop().run(body)


@mistake("workflow fulfil calls time.sleep(): it blocks all tasks of this process; use `await arriero.sleep(...)`")
def time_sleep_in_a_workflow() -> None:
    @workflow
    async def fulfil() -> None:
        time.sleep(60)  # noqa: ASYNC251  # the mistake


@mistake(
    "workflow fulfil calls datetime.now(): its value differs when arriero runs the code again; "
    "use arriero.now(), or call it in a step"
)
def datetime_now_in_a_workflow() -> None:
    @workflow
    async def fulfil() -> str:
        return datetime.now().isoformat()


@mistake(
    "workflow fulfil calls random.random(): its value differs when arriero runs the code again; "
    "use arriero.random(), or call it in a step"
)
def random_in_a_workflow() -> None:
    @workflow
    async def fulfil() -> float:
        return random.random()


@mistake(
    "charge(...) is a call value and runs only inside a workflow: await it there, submit it as a "
    "task with app.submit(charge(...)), or call charge.function(...) in a test"
)
async def a_step_that_is_awaited_outside_of_a_workflow() -> None:
    await Shop().charge(Order("1001"))


@mistake(
    "fulfil(...) is a call value: start it with app.submit(fulfil(...)), then await "
    "task.result(), or do both with app.execute(fulfil(...))"
)
async def a_workflow_that_is_called_like_a_function() -> None:
    await Shop().fulfil(Order("1001"))


@mistake("submit takes the call of a workflow or step, like fulfil(order), not <workflow fulfil>")
async def a_workflow_that_is_submitted_without_its_call() -> None:
    shop = Shop()
    async with shop.app:
        await shop.app.submit(shop.fulfil)


@mistake("arriero.sleep works only inside a workflow: elsewhere use asyncio.sleep(...) in a step")
async def arriero_sleep_outside_of_a_workflow() -> None:
    await arriero.sleep(1)


@mistake("there is no task '1OO1' in the store sqlite:///FOLDER/arriero.db; see `arriero task list`")
async def a_wrong_task_id() -> None:
    shop = Shop()
    async with shop.app:
        await shop.app.task("1OO1").result()


@mistake("task_id is 1001; it must be a text of 1 to 255 characters")
async def a_number_as_task_id() -> None:
    shop = Shop()
    async with shop.app:
        await shop.app.submit(shop.fulfil(Order("1001")), task_id=1001)  # type: ignore[arg-type]  # the mistake


@mistake("task '1' exists with another body; use another task_id, or look at it with `arriero task show`")
async def the_same_task_id_with_another_body() -> None:
    shop = Shop()
    async with shop.app:
        for order in Order("1001"), Order("1002"):
            await shop.app.submit(shop.fulfil(order), task_id="1")


@mistake("a step needs a name, which the store keeps, and a lambda has none: write a `def`")
def a_lambda_as_a_step() -> None:
    Agent("payments").step(lambda order: None)


@mistake("workflow fulfil must be an `async def`: it awaits its steps")
def a_plain_function_as_a_workflow() -> None:
    @workflow  # type: ignore[arg-type]  # the mistake
    def fulfil() -> None: ...


@mistake("a step returns one value, and charge yields several: return them as a list")
def a_generator_as_a_step() -> None:
    @Agent("payments").step
    def charge() -> Iterator[int]:
        yield 1


@mistake("a step is made of a function, and 'charge' is none: give its name as name='charge'")
def a_name_without_its_keyword() -> None:
    Agent("payments").step("charge")  # type: ignore[call-overload]  # the mistake


@mistake("<workflow fulfil> is declared already: write a function of its own for each step and workflow")
def a_workflow_as_a_step() -> None:
    shop = Shop()
    shop.payments.step(shop.fulfil)


@mistake(
    "step charge: parameter order has no type in the code, so an Order arrives as plain JSON: "
    "annotate it with Order, or with Any if that is meant"
)
def a_parameter_without_a_type() -> None:
    @Agent("payments").step
    async def charge(order) -> None: ...  # type: ignore[no-untyped-def]  # the mistake

    charge(Order("1001"))


@mistake(
    "step charge: parameter cart has the type Cart, which cannot be read back from JSON: use Any,"
    " a dataclass, a msgspec.Struct or a pydantic model"
)
def a_parameter_that_json_does_not_know() -> None:
    @Agent("payments").step
    async def charge(cart: Cart) -> None: ...


@mistake(
    "step charge: parameter event has the type Event, which cannot be read back from JSON: use "
    "Any, a dataclass, a msgspec.Struct or a pydantic model"
)
def a_parameter_that_is_a_lock() -> None:
    @Agent("payments").step
    async def charge(event: threading.Event) -> None: ...


@mistake(
    "step charge: result has the type Cart, which cannot be read back from JSON: use Any, a "
    "dataclass, a msgspec.Struct or a pydantic model"
)
def a_result_that_json_does_not_know() -> None:
    @Agent("payments").step
    async def charge() -> Cart: ...  # type: ignore[empty-body]  # the mistake is its type


@mistake(
    "step charge: result: Expected `str`, got `int`; return what the function is annotated with, "
    "or correct its annotation"
)
async def a_result_of_another_type_than_annotated() -> None:
    async def charge(order: Order) -> str:
        return 5  # type: ignore[return-value]  # the mistake

    await Shop(charge=charge).run()


@mistake("step has no option timeout=: write complete_within=SECONDS")
def a_timeout_of_a_step() -> None:
    Agent("payments").step(timeout=10)  # type: ignore[call-overload]  # the mistake


@mistake("step has no option retries=: write retry=Retry(max_calls=NUMBER)")
def retries_of_a_step() -> None:
    Agent("payments").step(retries=3)  # type: ignore[call-overload]  # the mistake


@mistake("Agent has no option timeout=: give it to a step, as complete_within=SECONDS")
def a_timeout_of_a_service() -> None:
    Agent(name="payments", timeout=10)  # type: ignore[call-arg]  # the mistake


@mistake("Agent has no option max_inflight=: write max_in_flight=")
def a_misspelt_option_of_a_service() -> None:
    App("shop").service("payments", max_inflight=5)  # type: ignore[call-arg]  # the mistake


@mistake("complete_within is '10s'; give seconds or a timedelta")
def a_text_as_complete_within() -> None:
    Agent("payments").step(complete_within="10s")  # type: ignore[call-overload]  # the mistake


@mistake("step charge: parameter attempt is an Attempt, which no caller can give: make it the first parameter")
def an_attempt_that_is_not_first() -> None:
    @Agent("payments").step
    async def charge(order: Order, attempt: Attempt) -> None: ...


@mistake(
    "compensation of charge takes (receipt); it gets the step's own arguments: (order), after an "
    "Undo if its first parameter is annotated so"
)
def a_compensation_with_the_wrong_parameters() -> None:
    @Shop().charge.compensation
    async def refund(receipt: str) -> None: ...


@mistake("step charge has a compensation already: refund; remove one")
def a_second_compensation() -> None:
    shop = Shop()

    @shop.charge.compensation
    async def refund(order: Order) -> None: ...

    @shop.charge.compensation
    async def give_back(order: Order) -> None: ...


@mistake(
    "App shop: nothing undoes the step ship of Agent payments. Its effect stays when a task is "
    "undone; if it is in doubt, the task waits for an operator. Declare its undo by "
    "@STEP.compensation, or mark it effect_free=True (it leaves no trace) or pivot=True (the task"
    " is never undone after it)"
)
def no_compensation() -> None:
    shop = Shop()

    @shop.charge.compensation
    async def refund(order: Order) -> None: ...

    @shop.payments.step
    async def ship(order: Order) -> None: ...

    asyncio.run(open_app(shop.app))


@mistake("Agent payments has a step charge already; give one of them another name=")
def two_steps_of_one_name() -> None:
    Shop().payments.step(name="charge")(lambda: None)


@mistake("two steps are named 'charge'; give one of them another name=")
def two_steps_of_one_name_in_two_agents() -> None:
    stock = Agent("stock")
    stock.step(name="charge")(lambda: None)
    App("shop", agents=[Shop().payments, stock])


@mistake(
    "two workflows are named 'fulfil'; give one of them another name=, or if it is a newer version of the other, version= and replaces="
)
def two_workflows_of_one_name() -> None:
    Shop().app.workflow(name="fulfil")(Shop().fulfil.function)


@mistake("step charge of Agent payments is not in this App: add the Agent to it by App(agents=[...])")
async def an_agent_that_the_app_was_not_given() -> None:
    shop = Shop()
    other = Shop().charge

    async def body() -> Any:
        return await other(Order("1001"))

    shop.payments.steps.clear()
    await shop.run(body)


@mistake(
    "workflow 'refund' is not in App shop; it has fulfil; declare it by @app.workflow, or give it"
    " in App(workflows=[...])"
)
async def a_workflow_that_the_app_was_not_given() -> None:
    shop = Shop()

    @workflow
    async def refund() -> None: ...

    async with shop.app:
        await shop.app.submit(refund())


@mistake("agents of an App is <Agent payments: 0 steps, 10 in flight>; give a list, like agents=[...]")
def one_agent_in_place_of_a_list() -> None:
    App("shop", agents=Agent("payments"))  # type: ignore[arg-type]  # the mistake


@mistake("roles is 'agents'; give a list, like roles=['agents']")
async def a_role_in_place_of_a_list() -> None:
    Shop().app.running(roles="agents")


@mistake(
    "code and record disagree: step charge has a recorded result, but the code no longer asks for"
    " it there; it asks for check instead, which the record does not have; if its code was "
    "changed, run the release that recorded it, or give a changed step another name or key"
)
async def changed_code_of_a_task_that_runs() -> None:
    def build(first: str) -> tuple[App, Any]:
        app = App("shop")
        services = {name: app.service(name) for name in ("payments", "stock")}
        steps = {
            name: services[service].step(name=name, effect_free=True)(Shop().charge.function)
            for name, service in (("charge", "payments"), ("check", "payments"), ("reserve", "stock"))
        }

        @app.workflow
        async def fulfil() -> None:
            await steps[first](Order("1001"))
            await steps["reserve"](Order("1001"))

        return app, fulfil

    app, fulfil = build("charge")
    async with app.running(roles=["scheduler", "agents"], agents=["payments"]):
        task = await app.submit(fulfil(), task_id="1001")
        while len((await task.view()).steps) < 2:
            await asyncio.sleep(0)
    app, _ = build("check")
    async with app.running():
        await app.task("1001").result()


@mistake(
    "app.sync of App shop was called on an event loop, which it would block: await the App's own "
    "methods there, like `await app.submit(...)`"
)
async def app_sync_on_an_event_loop() -> None:
    shop = Shop()
    async with shop.app:
        shop.app.sync.submit(shop.fulfil(Order("1001")))


@mistake("App shop is not open: use `async with app:` or `async with app.running():` around it")
async def no_async_with() -> None:
    shop = Shop()
    await shop.app.submit(shop.fulfil(Order("1001")))


@mistake("App shop is not open: use `async with app:` or `async with app.running():` around it")
async def an_app_that_is_closed() -> None:
    shop = Shop()
    await open_app(shop.app)
    await shop.app.task("1001").result()


@mistake(
    "workflow refund was declared while App shop is open, and its processes would not know it: "
    "declare it before `async with` or `running()`, where the module is imported"
)
async def a_workflow_that_is_declared_while_the_app_is_open() -> None:
    shop = Shop()
    async with shop.app:

        @shop.app.workflow
        async def refund() -> None: ...


@mistake(
    "no Scheduler is alive on the store sqlite:///FOLDER/arriero.db: run the App there (arriero "
    "run MODULE:APP --store sqlite:///FOLDER/arriero.db); task 1001 waits"
)
async def no_worker() -> None:
    shop = Shop()
    reported = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda record: reported.set()  # type: ignore[method-assign]  # it only listens
    logging.getLogger("arriero").addHandler(handler)
    shop.app.session.ports.clock = FastClock()
    async with shop.app:
        task = await shop.app.submit(shop.fulfil(Order("1001")), task_id="1001")
        waiting = asyncio.create_task(task.result())
        await reported.wait()
        waiting.cancel()
    logging.getLogger("arriero").removeHandler(handler)


@mistake(
    "the task has not ended within 0 s; it continues; no Scheduler is alive on the store "
    "sqlite:///FOLDER/arriero.db: run the App there (arriero run MODULE:APP --store "
    "sqlite:///FOLDER/arriero.db)"
)
async def no_worker_and_a_timeout() -> None:
    shop = Shop()
    async with shop.app:
        await shop.app.execute(shop.fulfil(Order("1001")), timeout=0)


@mistake("ARRIERO_TASKS_MAX is 'many'; it must be a whole number from 1 to 1,000,000")
async def a_setting_of_the_environment_that_is_no_number() -> None:
    os.environ["ARRIERO_TASKS_MAX"] = "many"
    try:
        await open_app(Shop().app)
    finally:
        del os.environ["ARRIERO_TASKS_MAX"]


# --- callbacks and requests
change_address = Request("change_address", str, int)
paid = Signal("paid", int)


@mistake("arriero.callback(...) works only inside a workflow: elsewhere use app.submit(...) with reply_to, or a Signal")
def a_callback_outside_of_a_workflow() -> None:
    callback(str)


@mistake(
    "ArrieroError: <callback callback#1> has its url only in the function of a step: pass the callback to a step as an argument"
)
async def the_url_of_a_callback_in_a_workflow() -> None:
    async def body() -> Any:
        return callback(str).url

    await Shop().run(body)


@mistake(
    "InvalidArguments: step charge: order is <callback callback#1>, so give the parameter the type Callback[...]; it takes (order:"
    " str), like charge(order='text')"
)
async def a_callback_for_a_step_that_takes_a_text() -> None:
    async def charge(order: str) -> str:
        return order

    shop = Shop(charge=charge)

    async def body() -> Any:
        return await shop.charge(callback(str))

    await shop.run(body)


@mistake("call values were never awaited: callback:callback; await each, or do not make it")
async def a_callback_that_is_returned() -> None:
    async def body() -> Any:
        return callback(str)

    await Shop().run(body)


@mistake(
    "workflow sell: parameter done has the type arriero.declare.callbacks.Callback[str]: only a step takes a Callback, as an argument"
    " from workflow code"
)
def a_callback_for_a_workflow() -> None:
    @workflow
    async def sell(done: Callback[str]) -> None: ...


@mistake(
    "no attempt of step charge begins here, because callbacks need a URL: set public_url in arriero.toml, or"
    " ARRIERO_PUBLIC_URL=https://HOST, for the processes that run it, and start them again"
)
async def a_callback_without_a_public_url() -> None:
    async def charge(done: Callback[str]) -> str:
        return done.url

    async with Shop(charge=charge).app.running():
        pass


@mistake("give the token of the callback, which is the last part of its URL, and not the URL")
async def a_callback_completed_by_its_url() -> None:
    async with Shop().app as app:
        await app.complete_callback("https://shop.example.com/v1/callbacks/abc", "a")


@mistake(
    "request change_address.receive() works only inside a workflow: elsewhere ask: await task.request(change_address(...))"
)
async def a_request_received_outside_of_a_workflow() -> None:
    await change_address.receive()


async def ask(asking: Callable[[Any], Awaitable[Any]]) -> None:
    """Ask something of a task that has not begun."""
    shop = Shop()
    async with shop.app.running():
        await asking(await shop.app.submit(shop.fulfil(Order("1001")), task_id="1001", delay=60))


@mistake("request takes a request with its value, like change_address(value), not <request change_address>")
async def a_request_without_its_value() -> None:
    await ask(lambda task: task.request(change_address))


@mistake("a request is not sent but asked: await task.request(change_address(...))")
async def a_request_that_is_sent() -> None:
    await ask(lambda task: task.send(change_address("Elm Street")))


@mistake("a signal has no reply: await task.send(paid(...))")
async def a_signal_that_is_asked() -> None:
    await ask(lambda task: task.request(paid(90)))


@mistake(
    "task '1001' has not received it within 0.01 s: request change_address stays; ask again with request_id='r-1' to wait for the"
    " same reply"
)
async def a_request_that_nobody_receives() -> None:
    await ask(lambda task: task.request(change_address("Elm Street"), request_id="r-1", timeout=0.01))


async def reply(*values: Any) -> None:
    """Reply to a request."""
    shop = Shop()

    @shop.app.workflow
    async def deliver() -> None:
        request = await change_address.receive()
        for value in values:
            request.reply(value)

    async with shop.app.running():
        task = await shop.app.submit(deliver(), task_id="1001")
        with suppress(SignalRefused):
            await task.request(change_address("Elm Street"))
        await task.result()


@mistake("InvalidInput: reply to request change_address: Expected `int`, got `str`")
async def a_reply_of_another_type() -> None:
    await reply("done")


@mistake("InvalidInput: <request change_address> number 1 is answered already: reply or refuse, once")
async def a_second_reply() -> None:
    await reply(1, 2)


# --- on the command line
CALLS: dict[str, tuple[str, int, str]] = {  # by mistake: the command, its exit code, and its line on standard error
    "no App": (
        "run",
        2,
        "no App is named: type `arriero run MODULE:APP`, like shop:app, or set ARRIERO_APP, or app in arriero.toml",
    ),
    "an App without its module": ("run shop", 2, "'shop' does not name an App; write MODULE:APP, like shop:app"),
    "a file in place of a module": (
        "run shop.py:app",
        2,
        "shop.py is a file, and the App is named by its module: write shop:app",
    ),
    "a module that is not there, or a wrong directory": (
        "run warehouse:app",
        2,
        "there is no module 'warehouse', looked for from FOLDER; go to the folder that has "
        "warehouse.py, or name that folder in PYTHONPATH",
    ),
    "a module that does not import": (
        "run broken:app",
        2,
        "module broken cannot be imported: No module named 'requestz' (FOLDER/broken.py, line 1); "
        "install that module where arriero is, or correct the import",
    ),
    "an attribute that is not there, of two Apps": (
        "run two:shop",
        2,
        "there is no two:shop; Apps in two: back, front",
    ),
    "an attribute that is not an App": (
        "run shop:number",
        2,
        "shop:number is not an App, its type is int; Apps in shop: app",
    ),
    "a command that is misspelt": ("tsak list", 2, "there is no `arriero tsak`; did you mean `arriero task list`?"),
    "an option that is misspelt": (
        "run shop:app --rolls agents",
        2,
        "No such option '--rolls'. (Did you mean one of: '--host', '--roles'?) (see `arriero run --help`)",
    ),
    "a role that is not there": (
        "run shop:app --roles worker",
        2,
        "--roles is ['worker']; role 'worker' is not known; roles are scheduler, agents, supervisor, http",
    ),
    "no store": (
        "task list",
        5,
        "store FOLDER/arriero.db: there is no such file; name the right one with --store or ARRIERO_STORE",
    ),
    "a store without a scheme": (
        "task list --store arriero.db",
        2,
        "store 'arriero.db' is not known; use sqlite:///PATH (four slashes for an absolute path) or "
        "postgresql://USER@HOST/DATABASE",
    ),
    "PostgreSQL that does not run": (
        "task list --store postgresql://ana:hunter2@127.0.0.1:1/shop",
        5,
        "store postgresql://ana:***@127.0.0.1:1/shop: connection failed: connection to server at "
        '"127.0.0.1", port 1 failed: Connection refused Is the server running on that host and '
        "accepting TCP/IP connections?; nobody listens there: start the server, or look at host and "
        "port in the URL",
    ),
    "a port in use": (
        "serve shop:app --port PORT",
        2,
        "127.0.0.1:PORT is in use by another program; choose another one with --port, or end that program",
    ),
    "no package of the HTTP API": (
        "serve shop:app",
        2,
        "the HTTP API needs the package starlette: run `pip install '.[server]'` in a clone of arriero",
    ),
    "a workflow that is misspelt": (
        "submit shop:app fulfill",
        2,
        "App shop has no workflow or step 'fulfill'; workflows: fulfil; steps: charge",
    ),
    "no arguments": (
        "submit shop:app fulfil",
        2,
        "workflow fulfil: missing order; it takes (order: Order, amount: int = 1), like arriero "
        'submit shop:app fulfil --arguments \'{"order":{"id":"text"}}\'',
    ),
    "arguments without quotes": (
        "submit shop:app fulfil --arguments {order:1001}",
        2,
        "--arguments is not JSON: JSON is malformed: expected '\"' (byte 1); it takes (order: Order, "
        'amount: int = 1), like arriero submit shop:app fulfil --arguments \'{"order":{"id":"text"}}\'',
    ),
    "arguments of a wrong type": (
        'submit shop:app fulfil --arguments {"order":"1001"}',
        2,
        "workflow fulfil: Expected `object`, got `str` - at `$.order`; it takes (order: Order, "
        'amount: int = 1), like arriero submit shop:app fulfil --arguments \'{"order":{"id":"text"}}\'',
    ),
    "arguments without their option": (
        'submit shop:app fulfil {"order":{"id":"1001"}}',
        2,
        'Got unexpected extra argument ({"order":{"id":"1001"}}) (see `arriero submit --help`)',
    ),
    "a wrong task id": (
        "task show 1OO1 --store sqlite:///shop.db",
        4,
        "there is no task '1OO1' in the store sqlite:///FOLDER/shop.db; see `arriero task list`",
    ),
    "a state that is not there": (
        "task list --state done --store sqlite:///shop.db",
        2,
        "Invalid value for '--state': 'done' is not one of 'pending', 'processing', 'processed', "
        "'held', 'compensating', 'compensated'. (see `arriero task list --help`)",
    ),
    "no reason of a verb": (
        "task cancel 1001 --store sqlite:///shop.db",
        2,
        "Missing option '--reason'. (see `arriero task cancel --help`)",
    ),
    "arriero.toml with an unknown key": (
        "config --file stroe='sqlite:///shop.db'",
        2,
        "FOLDER/arriero.toml: stroe is not known; did you mean store?",
    ),
    "arriero.toml with a wrong type": (
        "config --file node.tasks_max='many'",
        2,
        "FOLDER/arriero.toml: node.tasks_max is 'many'; it must be a whole number from 1 to 1,000,000",
    ),
    "a public URL without its scheme": (
        "run shop:app --file public_url='shop.example.com'",
        2,
        "FOLDER/arriero.toml: public_url is 'shop.example.com'; it must be an https:// or http:// URL without user, password, ? and #",
    ),
    "a request to a task that is not there": (
        "task request 1OO1 change_address 1 --store sqlite:///shop.db",
        4,
        "there is no task '1OO1' in the store sqlite:///FOLDER/shop.db; see `arriero task list`",
    ),
    "a value of a callback that is not JSON": (
        "task complete-callback 1001 receipt paid --store sqlite:///shop.db",
        2,
        "the value of callback receipt is not JSON: JSON is malformed: invalid character (byte 0)",
    ),
    "arriero.toml that is no TOML": (
        "config --file store=sqlite:///shop.db",
        2,
        "FOLDER/arriero.toml: it is not TOML: Invalid value (at line 1, column 7); correct it there",
    ),
}


async def make(mistake: Mistake) -> None:
    if asyncio.iscoroutinefunction(mistake.make):
        await mistake.make()
    else:
        await asyncio.to_thread(mistake.make)


def show(mistake: Mistake, log: pytest.LogCaptureFixture) -> str:
    """Make a mistake, and return the first line that its user sees."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        try:
            asyncio.run(make(mistake))
        except TaskFailed as error:
            return error.reason
        except Exception as error:
            return str(error)
    shown = [str(warning.message) for warning in warned] or log.messages
    return shown[0] if shown else "nothing"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a newcomer, with the program in it."""
    (tmp_path / "shop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_in_python_is_answered_with_one_line_that_says_what_to_do(
    mistake: Mistake, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown = show(mistake, caplog)
    assert shown.replace(str(folder), "FOLDER") == mistake.line
    assert "\n" not in shown


@pytest.mark.parametrize("mistake", CALLS)
def test_a_mistake_on_the_command_line_is_answered_with_one_line_that_says_what_to_do(
    mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, code, line = CALLS[mistake]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = call(
            words.replace("PORT", port), folder, monkeypatch, lacks="starlette" if "no package" in mistake else ""
        )
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.replace(str(folder), "FOLDER").replace(port, "PORT") == f"arriero: {line}\n"


def call(words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, lacks: str = "") -> Result:
    """Call the command line beside an empty store and some modules. ``lacks``: a package that is not installed."""
    asyncio.run(open_app(Shop("sqlite:///shop.db").app))
    command, _, setting = words.partition(" --file ")
    if setting:
        (folder / "arriero.toml").write_text(setting)
        (folder / "arriero.toml").chmod(0o600)
    (folder / "broken.py").write_text("import requestz\n")
    (folder / "two.py").write_text("from arriero import App\n\nfront, back = App('front'), App('back')\n")
    for name in [
        name
        for name in sys.modules
        if name in ("shop", "two") or (lacks and name.startswith((lacks, "arriero.server")))
    ]:
        monkeypatch.delitem(sys.modules, name)
    if lacks:
        monkeypatch.setitem(sys.modules, lacks, None)
    return CliRunner().invoke(commands, command.split(), prog_name="arriero")
