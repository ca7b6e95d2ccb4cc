"""Sends signals to tasks; the same for all interfaces."""

import asyncio
import uuid
from typing import Any, TypeVar

import msgspec

from ..declare.signals import Request, RequestValue, Signal, SignalValue, check_value
from ..errors import InvalidInput, RequestRefused, SignalRefused, UnknownTask
from ..model import StepRow, TaskState
from ..model.answers import Refusal, SignalKept, SignalPlaced
from ..model.commands import SendSignal
from ..model.signals import PASSED_ON, address_wait, read_reply
from ..payloads import codec
from .session import Session, build_unknown_task, load_task
from .task_verbs import check_signer

R = TypeVar("R")
SENDER = "signal"  # the actor of a signal in a history; who sent it stands in the event


class SignalReceipt(msgspec.Struct, frozen=True):
    """The place of a signal that was sent in its task.

    Args:
        signal_id: under which it is kept; sent again it changes nothing.
        number: of the task's signals, from 1, in the order of commits.
        created: False if it was there before, under the same ``signal_id``.
    """

    signal_id: str
    number: int
    created: bool


def check_sent(value: object) -> SignalValue[object]:
    """Check what ``send`` is given. Raises InvalidInput."""
    if isinstance(value, SignalValue):
        return value
    if isinstance(value, RequestValue):
        raise InvalidInput(f"a request is not sent but asked: await task.request({value.request.name}(...))")
    name = value.name if isinstance(value, Signal) else "approved"
    raise InvalidInput(f"send takes a signal with its value, like {name}(value), not {value!r}")


def check_request(value: object) -> RequestValue[object]:
    """Check what ``request`` is given. Raises InvalidInput."""
    if isinstance(value, RequestValue):
        return value
    if isinstance(value, SignalValue):
        raise InvalidInput(f"a signal has no reply: await task.send({value.signal.name}(...))")
    name = value.name if isinstance(value, Request) else "change_address"
    raise InvalidInput(f"request takes a request with its value, like {name}(value), not {value!r}")


def choose_signal_id(signal_id: str | None) -> str:
    """The id that a sender gave, checked, or a new one. Raises InvalidInput."""
    return str(uuid.uuid4()) if signal_id is None else codec.check_id(signal_id, "signal_id")


def build_send(
    session: Session,
    task_no: int,
    name: str,
    value: str,
    signal_id: str | None,
    sent_by: str,
    *,
    wait: StepRow | None = None,
    wants_reply: bool = False,
) -> SendSignal:
    """Build the command.

    Args:
        name: of the waits that may take it; with ``wait`` it is for that one alone.
        value: JSON text, checked.
        sent_by: empty: nobody signs, as of a program.
    Raises: InvalidInput.
    """
    return SendSignal(
        actor=SENDER,
        task_no=task_no,
        name=name if wait is None else address_wait(wait),
        signal_id=choose_signal_id(signal_id),
        value=check_value(value, f"signal {name}"),
        sent_by=check_signer(sent_by, "by") if sent_by else "",
        app=session.app,
        wait=None if wait is None else wait.ordinal,
        wants_reply=wants_reply,
    )


def accept_joined(session: Session, task_id: str, command: SendSignal, answer: SignalPlaced | Refusal) -> SignalReceipt:
    """The receipt of a signal in the caller's transaction. Raises: SignalRefused, UnknownTask."""
    if isinstance(answer, SignalPlaced):
        return SignalReceipt(command.signal_id, answer.number, answer.created)
    raise build_refusal(session, task_id, command, answer)


async def send(session: Session, task_id: str, command: SendSignal) -> SignalReceipt:
    """Send a signal. Raises: SignalRefused; UnknownTask; StoreError - send it again under the same ``signal_id``."""
    kept = await _keep(session, task_id, command)
    return SignalReceipt(command.signal_id, kept.number, kept.created)


async def _keep(session: Session, task_id: str, command: SendSignal) -> SignalKept:
    """Send a signal to the run that its task is in by now. Raises: as ``send``."""
    while True:
        answer = await session.send(command)
        if isinstance(answer, SignalKept):
            return answer
        assert isinstance(answer, Refusal)
        if answer.verdict == "continued" and command.wait is None:
            task = (await load_task(session, task_id)).task
            if task.next_no is None:  # else the id is that of the run
                command = msgspec.structs.replace(command, task_no=task.task_no)
                continue
        raise build_refusal(session, task_id, command, answer)


def _describe(command: SendSignal) -> str:
    """Describe what is sent, like ``signal approved``."""
    return command.name.replace(":", " ").partition("#")[0]


def build_refusal(session: Session, task_id: str, command: SendSignal, refusal: Refusal) -> SignalRefused | UnknownTask:
    """Build the error of a signal that the store refused."""
    if refusal.verdict == "unknown":  # it was purged since its number was looked up
        return build_unknown_task(task_id, session.store)
    return SignalRefused(
        f"{_describe(command)} to task {task_id!r} is refused: {refusal.detail}",
        task_id=task_id,
        because=refusal.verdict,
        state=refusal.state,
    )


ASK_SECONDS, ASK_SECONDS_MAX = 0.01, 0.25  # between two looks for a reply, growing


async def request(session: Session, task_id: str, sent: RequestValue[R], command: SendSignal, limit: float | None) -> R:
    """Send a request and wait for its reply.

    Raises: as ``send`` and ``wait_for_reply``; InvalidInput - the reply does not fit the type.
    """
    receipt = await send(session, task_id, command)
    return sent.request.read_reply(await wait_for_reply(session, task_id, command, receipt.number, limit))


async def wait_for_reply(session: Session, task_id: str, command: SendSignal, number: int, limit: float | None) -> str:
    """Wait for the reply to a request that was sent. Returns: JSON text.

    Args:
        number: of the request.
        limit: seconds; None: as long as it takes.
    Raises: TimeoutError - the request stays, and the same ``request_id`` waits for the same reply again; RequestRefused;
        SignalRefused - the task has ended without a reply; UnknownTask - it was purged; UnreadableRow; StoreError.
    """
    clock, pause = session.ports.clock, ASK_SECONDS
    give_up_at = None if limit is None else clock.monotonic() + limit
    task_no = command.task_no
    while True:
        signal, task = await session.store.load_reply(task_no, number)
        if signal is None or signal.signal_id != command.signal_id or signal.step == PASSED_ON:
            kept = await _keep(session, task_id, command)  # the same again: which run has it by now
            if kept.created:
                raise UnknownTask(f"task {task_id!r} was purged before it replied")
            task_no, number = kept.kept_in, kept.number
            continue
        if signal.reply is not None:
            return _read_answer(task_id, signal.reply)
        if task is not None:
            stays = "; the request stays for the code that a resubmission runs" if task.state is TaskState.HELD else ""
            detail = f"the task is {task.state}, and its code has not replied{stays}"
            raise build_refusal(session, task_id, command, Refusal("ended", detail, str(task.state)))
        left = None if give_up_at is None else give_up_at - clock.monotonic()
        if left is not None and left <= 0:
            received = "has received it and not replied" if signal.step else "has not received it"
            raise TimeoutError(
                f"task {task_id!r} {received} within {limit:g} s: {_describe(command)} stays; ask again with"
                f" request_id={command.signal_id!r} to wait for the same reply"
            )
        await _nap(session, task_no, pause if left is None else min(pause, left))
        pause = min(pause * 2, ASK_SECONDS_MAX)


async def _nap(session: Session, task_no: int, seconds: float) -> None:
    """Sleep, but not beyond the end of a task. It counts as a caller who waits for the task: a test's world moves its clock then.

    Raises: UnknownTask - the task was purged; InvalidInput - the App was closed.
    """
    nap = asyncio.ensure_future(session.ports.clock.sleep(seconds))
    ended = asyncio.ensure_future(session.waiting.wait_until_ended(task_no, None))
    both: set[asyncio.Future[Any]] = {nap, ended}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
    finally:
        nap.cancel()
        ended.cancel()


def _read_answer(task_id: str, text: str) -> str:
    """The value of a recorded reply, as JSON text. Raises RequestRefused."""
    reply = read_reply(text)
    if isinstance(reply.refused, str):
        raise RequestRefused(reply.refused, task_id=task_id)
    assert isinstance(reply.value, msgspec.Raw)
    return bytes(reply.value).decode()
