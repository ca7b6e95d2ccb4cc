"""Where an exception came from: bounded, without values, whatever the exception is; and which line is to be mended."""

import asyncio
import concurrent.futures
import json
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arriero
from arriero import Permanent, Transient
from arriero.model.failures import CapturedTraceback, Frame, StepFailure, TaskFailure
from arriero.system.traceback_capture import (
    ERRORS_MAX,
    FRAMES_MAX,
    FRAMES_OF_ONE_MAX,
    _mask_secrets,
    capture_stack,
    capture_traceback,
)
from arriero.text.format import (
    find_frame_to_fix,
    find_raising_frame,
    format_labelled_location,
    format_traceback,
    is_expected,
)

HERE = "tests/test_traceback_capture.py"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])


def traced(code: Callable[[], object]) -> CapturedTraceback:
    try:
        code()
    except BaseException as error:
        return capture_traceback(error)
    raise AssertionError("it raised nothing")


def define(space: dict[str, Any], source: str, file: str) -> None:
    """Functions as if they stood in that file."""
    exec(compile(source, file, "exec"), space)  # noqa: S102  # text of the test's


def prices() -> int:
    card = "4111 1111"
    return {"salt": 1}[card]


def test_it_holds_file_line_function_and_source_and_no_value() -> None:
    (one,) = traced(prices)
    assert one.error == "KeyError"
    frame = one.frames[-1]
    assert frame == Frame(HERE, prices.__code__.co_firstlineno + 2, "prices", 'return {"salt": 1}[card]')
    assert "4111" not in repr(one)


def test_the_line_to_mend_is_the_users_innermost_one_where_a_library_raised() -> None:
    trace = traced(lambda: json.loads("{"))
    assert trace[0].frames[-1].library
    assert trace[0].frames[-1].file == "json/decoder.py"
    frame = find_frame_to_fix(trace)
    assert frame is not None
    assert (frame.file, frame.function) == (HERE, "<lambda>")


def test_frames_of_arriero_are_left_out_and_counted() -> None:
    trace = traced(lambda: arriero.payloads.codec.encode(float("nan"), "x"))
    assert {frame.file for frame in trace[0].frames} == {HERE}
    assert trace[0].left_out > 0


class Fails(Exception):
    """A failure of the test's."""


def from_another() -> None:
    try:
        prices()
    except KeyError as error:
        raise Fails("no price") from error


def while_handling() -> None:
    try:
        prices()
    except KeyError:
        raise Fails("the handler is wrong")  # noqa: B904  # what is tried here


def test_of_an_exception_raised_from_another_the_cause_is_to_be_mended() -> None:
    trace = traced(from_another)
    assert [(one.error, one.relation) for one in trace] == [("Fails", "raised"), ("KeyError", "cause")]
    assert "4111" not in repr(trace)
    mend, raised = find_frame_to_fix(trace), find_raising_frame(trace)
    assert mend is not None
    assert raised is not None
    assert (mend.function, raised.function) == ("prices", "from_another")


def test_of_an_exception_in_a_handler_the_handler_is_to_be_mended() -> None:
    trace = traced(while_handling)
    assert [one.relation for one in trace] == ["raised", "context"]
    frame = find_frame_to_fix(trace)
    assert frame is not None
    assert frame.function == "while_handling"


def test_of_a_group_the_first_member_is_to_be_mended() -> None:
    errors: list[Exception] = []
    for code in (prices, from_another):
        try:
            code()
        except Exception as error:
            errors.append(error)

    def raise_both() -> NoReturn:
        raise ExceptionGroup("both", [ExceptionGroup("inner", errors[:1]), errors[1]])

    trace = traced(raise_both)
    assert {one.relation for one in trace} == {"raised", "member", "cause"}
    frame = find_frame_to_fix(trace)
    assert frame is not None
    assert frame.function in ("prices", "from_another")
    assert len(trace) <= ERRORS_MAX


def test_what_is_raised_on_purpose_names_where_it_was_raised_and_nothing_to_mend() -> None:
    def decline() -> NoReturn:
        try:
            prices()
        except KeyError as error:
            raise Permanent("declined") from error

    trace = traced(decline)
    assert is_expected(trace)
    assert format_labelled_location(trace).startswith(f"raised at {HERE}:")
    assert 'in decline: `raise Permanent("declined") from error`' in format_labelled_location(trace)
    assert "the line to fix" in format_labelled_location(traced(prices))


def test_a_recursion_of_a_thousand_frames_is_folded() -> None:
    def down(depth: int) -> int:
        return down(depth + 1)

    (one,) = traced(lambda: down(0))
    (folded,) = [frame for frame in one.frames if frame.function == "down"]
    assert folded.times > 500
    assert any("times in a row" in line for line in format_traceback((one,)))


def test_two_functions_that_call_each_other_are_cut_in_the_middle() -> None:
    def ping(depth: int) -> int:
        return pong(depth + 1)

    def pong(depth: int) -> int:
        return ping(depth + 1)

    (one,) = traced(lambda: ping(0))
    assert len(one.frames) <= FRAMES_OF_ONE_MAX
    assert one.left_out > 500
    assert one.frames[0].function == "traced"


def test_a_chain_of_a_thousand_causes_is_bounded_and_one_in_a_circle_ends() -> None:
    error: BaseException = Fails("first")
    for _ in range(1_000):
        try:
            raise Fails("next") from error
        except Fails as next_one:
            error = next_one
    trace = capture_traceback(error)
    assert len(trace) == ERRORS_MAX
    assert sum(len(one.frames) for one in trace) <= FRAMES_MAX
    one, other = Fails(), Fails()
    one.__cause__, other.__cause__ = other, one
    assert len(capture_traceback(one)) == 1


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnlookableMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # what is tried here
        raise RuntimeError("no name")


class Unlookable(Exception, metaclass=UnlookableMeta):
    __cause__ = property(lambda _: 1 / 0)  # type: ignore[assignment]  # what is tried here


def test_an_exception_that_raises_when_it_is_looked_at_loses_nothing_else() -> None:
    def unsayable() -> NoReturn:
        raise Unsayable

    frame = find_frame_to_fix(traced(unsayable))
    assert frame is not None
    assert frame.function == "unsayable"

    def unlookable() -> NoReturn:
        raise Unlookable

    assert isinstance(traced(unlookable), tuple)


def test_an_exception_that_was_never_raised_has_no_line() -> None:
    assert capture_traceback(ValueError("made"))[0].frames == ()
    assert format_labelled_location(capture_traceback(ValueError("made"))) == ""


def test_source_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text("def f():\n    return 1 / 0\n")
    space: dict[str, Any] = {}
    define(space, file.read_text(), str(file))
    file.unlink()
    linecache.clearcache()
    frame = find_frame_to_fix(traced(space["f"]))
    assert frame is not None
    assert (frame.line, frame.source) == (2, "")
    define(space, "def g():\n    return 1 / 0\n", "<string>")
    frame = find_frame_to_fix(traced(space["g"]))
    assert frame is not None
    assert (frame.file, frame.source) == ("<string>", "")


def test_a_line_that_cannot_be_compiled_is_named_and_data_that_is_compiled_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("x = 1\nif x\n")
    trace = traced(lambda: compile((tmp_path / "wrong.py").read_text(), str(tmp_path / "wrong.py"), "exec"))
    assert (trace[0].frames[-1].line, trace[0].frames[-1].source) == (2, "if x")
    data = "4111 1111"
    trace = traced(lambda: compile(data, "<data>", "eval"))
    assert "4111" not in repr(trace)


def test_no_path_shows_a_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    space: dict[str, Any] = {}
    for name, folder in (("f", "/home/ana/secret/shop/orders.py"), ("g", "/root/shop/orders.py")):
        define(space, f"def {name}():\n    return 1 / 0\n", folder)
        monkeypatch.chdir("/")
        frame = find_frame_to_fix(traced(space[name]))
        assert frame is not None
        assert frame.file == "orders.py"
    define(space, "def h():\n    return 1 / 0\n", "/home/ana/secret/more/shop/orders.py")
    monkeypatch.setattr(sys, "path", [*sys.path, "/home/ana/secret/more"])
    frame = find_frame_to_fix(traced(space["h"]))
    assert frame is not None
    assert frame.file == "shop/orders.py"


def test_an_installed_package_of_the_users_is_the_users_code_and_others_are_libraries() -> None:
    space: dict[str, Any] = {}
    packages = "/opt/venv/lib/python3.11/site-packages"
    define(space, "def get():\n    return 1 / 0\n", f"{packages}/web/client.py")
    define(space, "def charge():\n    return get()\n", f"{packages}/shop/steps.py")
    try:
        space["charge"]()
    except ZeroDivisionError as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # as arriero calls it
        trace = capture_traceback(error)
    assert [(frame.file, frame.library) for frame in trace[0].frames] == [
        ("shop/steps.py", False),
        ("web/client.py", True),
    ]


def test_secrets_that_stand_in_the_code_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secrets_in_code.py"
    file.write_text(
        'def f():\n    return connect("postgresql://shop:hunter2@db/shop")\n'
        'def g():\n    return connect(password="hunter2", user="shop")\n'
    )
    space: dict[str, Any] = {}
    define(space, file.read_text(), str(file))
    for name in ("f", "g"):
        frame = find_frame_to_fix(traced(space[name]))
        assert frame is not None
        assert "connect(" in frame.source
        assert "hunter2" not in frame.source


@pytest.mark.parametrize(
    "line",
    [
        'request(headers={"Authorization": "Bearer sk_live_4eC39HqLyjWDarj"})',
        'pwd = "hunter2"',
        'connect("host=db pwd=hunter")',
        'sign(private_key="hunter")',
        "auth = ('hunter', 'hunter2')",
        'upload(key="hunterhunter")',
        'password: str = "hunter"',
        'assert password != "hunter"',
        'password=("hunter")',
        "password = 'it\\'s hunter'",
        'token = "hunter of a text that goes on',
        'send("4hunter5")',
    ],
)
def test_a_text_that_may_be_a_secret_is_masked(line: str) -> None:
    shown = _mask_secrets(line)
    assert "hunter" not in shown
    assert "sk_live" not in shown
    assert "'***'" in shown


@pytest.mark.parametrize(
    "line",
    [
        "total = prices['nix']",
        'raise Permanent("out of stock", code="out_of_stock")',
        'await bank(order, "v2")',
        "x = 12345678",
    ],
)
def test_a_line_without_secrets_is_shown_as_it_stands(line: str) -> None:
    assert _mask_secrets(line) == line


@given(st.text(max_size=200))
def test_any_line_can_be_masked(line: str) -> None:
    assert len(_mask_secrets(line)) <= 5 * len(line) + 5


def test_it_is_the_same_from_another_thread() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        trace = traced(lambda: pool.submit(prices).result())
    frame = find_frame_to_fix(trace)
    assert frame is not None
    assert frame.function == "prices"


def test_where_a_thread_is_now_is_told_in_the_same_form() -> None:
    trace = capture_stack(sys._getframe(), "it stands")
    frame = find_frame_to_fix(trace)
    assert frame is not None
    assert frame.function == "test_where_a_thread_is_now_is_told_in_the_same_form"
    assert capture_stack(None, "it stands")[0].frames == ()


def test_of_a_thread_with_an_event_loop_only_what_that_runs_is_told() -> None:
    found: list[CapturedTraceback] = []

    async def runs() -> None:
        asyncio.get_running_loop().call_soon(lambda: found.append(capture_stack(sys._getframe(), "it stands")))
        await asyncio.sleep(0)

    asyncio.run(runs())
    assert [frame.function for frame in found[0][0].frames] == ["<lambda>"]


def test_only_ctrl_c_passes() -> None:
    class Interrupting(Exception):
        @property
        def __cause__(self) -> BaseException | None:  # type: ignore[override]  # what is tried here
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture_traceback(Interrupting())


def test_a_failure_with_a_trace_is_read_back_and_one_of_an_older_release_has_none() -> None:
    failure = StepFailure("unknown", "KeyError", trace=traced(prices))
    assert msgspec.json.decode(msgspec.json.encode(failure), type=StepFailure) == failure
    assert msgspec.json.decode(b'{"kind":"bug","reason":"x"}', type=TaskFailure).trace == ()
    old = msgspec.defstruct("OldFailure", [("cause", str), ("message", str, "")])  # ignores what it does not know
    assert msgspec.json.decode(msgspec.json.encode(failure), type=old).message == "KeyError"  # type: ignore[attr-defined]


def test_no_line_is_to_be_mended_for_the_world_outside() -> None:
    def ask() -> NoReturn:
        raise TimeoutError("the bank did not answer")

    assert "raised at" in format_labelled_location(traced(ask))


def test_a_transient_keeps_its_line() -> None:
    def refuse() -> NoReturn:
        raise Transient("busy", code="busy")

    assert "in refuse" in format_labelled_location(traced(refuse))
