"""Sends signals to tasks; the same for all interfaces."""

import uuid

import msgspec

from ..declare.signals import SentValue, Signal, check_value
from ..errors import InvalidInput, SignalRefused
from ..model import StepRow
from ..model.answers import Refusal, SignalKept
from ..model.commands import SendSignal
from ..model.signals import address_wait
from ..payloads import codec
from .session import Session
from .task_verbs import check_signer

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


def check_sent(value: object) -> SentValue[object]:
    """Check what ``send`` is given. Raises InvalidInput."""
    if isinstance(value, SentValue):
        return value
    name = value.name if isinstance(value, Signal) else "approved"
    raise InvalidInput(f"send takes a signal with its value, like {name}(value), not {value!r}")


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
    )


async def send(session: Session, task_id: str, command: SendSignal) -> SignalReceipt:
    """Send a signal. Raises: SignalRefused; UnknownTask; StoreError - send it again under the same ``signal_id``."""
    answer = await session.send(command)
    if isinstance(answer, Refusal):
        raise build_refusal(task_id, command, answer)
    assert isinstance(answer, SignalKept)
    return SignalReceipt(command.signal_id, answer.number, answer.created)


def build_refusal(task_id: str, command: SendSignal, refusal: Refusal) -> SignalRefused:
    """Build the error of a signal that the store refused."""
    what = command.name.replace(":", " ").partition("#")[0]
    return SignalRefused(
        f"{what} to task {task_id!r} is refused: {refusal.detail}",
        task_id=task_id,
        because=refusal.verdict,
        state=refusal.state,
    )
