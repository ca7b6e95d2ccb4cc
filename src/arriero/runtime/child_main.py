"""The program of a child process: it runs one call of a step's function and says what came of it.

It must not outlive its attempt, whatever happens to its parent. The kernel kills it when the parent dies (Linux), a thread
ends it when the parent's pipe is closed, and an alarm kills it a moment after its deadline.
"""

import ctypes
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import msgspec

from ..declare.attempt import Attempt, StepTry, current_try
from ..declare.callbacks import read_arguments
from ..declare.resources import Resource, open_resources
from ..declare.signature import Signature, takes_given
from ..errors import ArrieroError, AttemptOver, Cause, InvalidInput, Permanent, StepError, Transient
from ..payloads.codec import error_text, recordable_text, step_error_fields
from ..system.boot_clock import seconds_since_boot
from ..system.traceback_capture import capture_traceback
from .child_messages import (
    AnswerToChild,
    AskedByChild,
    ChildCall,
    ChildFailed,
    ChildSucceeded,
    ChildUnrecordable,
    PublishedByChild,
    encode_message,
    read_answer,
    read_call,
)

_PR_SET_PDEATHSIG = 1
ALARM_AFTER_SECONDS = 0.5  # after the deadline, so that the parent's own kill comes first


class _NoResources(dict[Resource[Any], Any]):
    """Resources belong to the parent; one that is asked for here is refused with the remedy."""

    def __contains__(self, resource: object) -> bool:
        name = getattr(resource, "name", "resource")
        raise ArrieroError(
            f"{name}() is not open in a child process: open what a step with run_in='process' needs inside of it"
        )


class Parent:
    """The parent at the other end of two pipes."""

    def __init__(self, read: BinaryIO, write: BinaryIO) -> None:
        self._read = read
        self._write = write
        self._answers: queue.SimpleQueue[AnswerToChild] = queue.SimpleQueue()

    def read_call(self) -> ChildCall:
        """Wait for what is to be called."""
        line = self._read.readline()
        if not line:
            end_now()
        return read_call(line)

    def listen(self) -> None:
        """Take answers from now on, and end with the parent."""
        threading.Thread(target=self._listen, name="arriero-parent", daemon=True).start()

    def _listen(self) -> None:
        try:
            while line := self._read.readline():
                self._answers.put(read_answer(line))
        finally:  # also by a bug: a child that nobody can reach must not continue
            end_now()

    def ask(self, asked: AskedByChild) -> AnswerToChild:
        """Ask and wait for the answer."""
        self.tell(asked)
        return self._answers.get()

    def tell(self, message: msgspec.Struct) -> None:
        """Send a message."""
        self._write.write(encode_message(message))
        self._write.flush()


class ChildTime:
    """The time and the checkpoint of the attempt, as far as its child process knows; see ``AttemptHandle``."""

    def __init__(self, call: ChildCall, parent: Parent) -> None:
        self._parent = parent
        self.complete_by = call.complete_by
        self.checkpoint = call.checkpoint
        self.trace_headers = call.trace_headers
        self._deadline = call.deadline
        self._set_alarm()

    def _set_alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(self.remaining_seconds(), 0.0) + ALARM_AFTER_SECONDS)

    def remaining_seconds(self) -> float:
        return self._deadline - seconds_since_boot()

    async def extend(self, seconds: float) -> None:
        self._take(self._parent.ask(AskedByChild(seconds=seconds)))

    async def save_checkpoint(self, text: str) -> None:
        self._take(self._parent.ask(AskedByChild(checkpoint=text)))

    def publish(self, text: str) -> None:
        self._parent.tell(PublishedByChild(text))

    def _take(self, answer: AnswerToChild) -> None:
        if answer.over:
            raise AttemptOver(answer.over)
        self.complete_by, self.checkpoint, self._deadline = answer.complete_by, answer.checkpoint, answer.deadline
        self._set_alarm()

    def wait_in_thread(self, asked: Coroutine[Any, Any, None], instead: str) -> None:
        try:
            asked.send(None)  # it waits for the parent itself, not for an event loop
        except StopIteration:
            return


def end_now() -> NoReturn:
    """End without any clean-up: nobody waits for an answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies, where it can do that; end if it has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        end_now()


def find_function(module: str, name: str) -> Any:
    """Import a function by its module and qualified name; of a step its function."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "function", found)


def _call(call: ChildCall, parent: Parent) -> ChildSucceeded | ChildUnrecordable | ChildFailed:
    try:
        sys.path[:] = call.path
        function = find_function(call.module, call.function)
        is_given = takes_given(function, call.what, Attempt)
        signature = Signature(function, call.what, is_given=is_given, may_be_given=True)
        arguments = read_arguments(signature, call.arguments, call.accesses)
    except InvalidInput as error:  # as in the parent's own thread
        return ChildFailed(
            "permanent", recordable_text(str(error)), "refused_arguments", trace=capture_traceback(error)
        )
    except BaseException as error:
        text = recordable_text(f"its child process could not load {call.module}.{call.function}: {error_text(error)}")
        return ChildFailed("transient", text, "not_loaded", trace=capture_traceback(error))
    attempt = Attempt(call.task_id, call.step, call.number, call.idempotency_key, ChildTime(call, parent))
    step_try = StepTry(attempt)
    current_try.set(step_try)
    open_resources.set(_NoResources())
    if call.trace_headers and "opentelemetry.trace" in sys.modules:  # the user's code has loaded it
        _attach_trace(call.trace_headers)
    try:
        value = signature.call(attempt, arguments)
    except StepError as error:
        step_try.end()
        return _describe_step_error(error, is_refuted=step_try.is_refuted(error))
    except BaseException as error:  # whatever a user's function raises
        return ChildFailed("unknown", error_text(error), trace=capture_traceback(error))
    try:
        return ChildSucceeded(signature.encode_result(value))
    except InvalidInput as error:
        return ChildUnrecordable(recordable_text(str(error)), capture_traceback(error))


def _attach_trace(headers: dict[str, str]) -> None:
    """Make the attempt's span the current one, so that spans of the function are its children."""
    from ..model.trace_context import parse_headers
    from ..tracing.tracer import attach_context

    if (context := parse_headers(**headers)) is not None:
        attach_context(context)


def _describe_step_error(error: StepError, *, is_refuted: bool) -> ChildFailed:
    """Describe an error of the step. ``is_refuted``: it says that nothing happened, and a later request of the try may have."""
    fields = step_error_fields(error)
    cause: Cause = "unknown"
    if not is_refuted:
        cause = (
            "permanent" if isinstance(error, Permanent) else "transient" if isinstance(error, Transient) else "unknown"
        )
    trace = capture_traceback(error)
    return ChildFailed(cause, fields.message, fields.code, fields.details, fields.retry_after, trace, fields.public)


def ignore_termination() -> None:
    """Ignore SIGTERM in this process: service managers send it to all processes, and the parent lets attempts end.

    Programs that the function starts end by SIGTERM, because a handler is not inherited. So do processes that it forks.
    """
    own = os.getpid()

    def receive(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, receive)


def main() -> None:
    """Run the call that the parent sends. What the function prints goes to standard error."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which lets attempts end
    ignore_termination()
    parent = Parent(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    call = parent.read_call()
    parent.listen()
    parent.tell(_call(call, parent))
    sys.stdout.flush()
    os._exit(0)  # what the function left running must not hold it


if __name__ == "__main__":
    main()
