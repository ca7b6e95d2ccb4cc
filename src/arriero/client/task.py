"""The handle of one task: its result, how it stands, and what an operator may do to it."""

import inspect
from collections.abc import AsyncIterator, Collection, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import msgspec

from ..declare.signals import RequestValue, SignalValue
from ..errors import TaskCompensated, TaskHeld, UnknownTask
from ..model import TaskState, Verb
from ..model.failures import choose_public_text, read_task_failure
from ..model.policies import Duration, check_seconds
from ..model.tags import check_tag_change, encode_changes
from ..model.verb_rules import PinArguments
from ..payloads import codec
from ..runtime.code import Code
from ..store.contract import Ended
from ..text.format import format_location
from . import task_verbs
from .external_transaction import send_joined
from .session import Session, load_task
from .signals import SignalReceipt, accept_joined, build_send, check_request, check_sent, request, send
from .task_verbs import Adjustment, build_adjustment, load_task_to_act, operate_task, read_adjustment
from .task_view import TaskView

if TYPE_CHECKING:
    from .children import ChildView

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Generic[R_co]):
    """A handle of one task, typed by its workflow.

    Args:
        created: True if this submission created the task, False if the task existed before; None: the handle is of no submission.
    """

    def __init__(
        self,
        session: Session,
        task_id: str,
        code: Code | None,
        task_no: int | None = None,
        *,
        created: bool | None = None,
    ) -> None:
        self.id = task_id
        self.created = created
        self._session = session
        self._code = code
        self._task_no = task_no

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and answer with the workflow's output.

        Args:
            timeout: seconds or timedelta; None waits as long as it takes.
        Raises: TimeoutError; TaskCompensated when it was undone; TaskHeld when it waits for an operator; UnknownTask.
        """
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        try:
            ended = await self._wait_until_ended(limit)
        except TimeoutError as error:
            nobody = await self._session.describe_missing_scheduler()
            raise TimeoutError(f"{error}; {nobody}" if nobody else str(error)) from None
        return self._read_output(ended)  # type: ignore[no-any-return]  # the codec read it as the declared type

    async def _wait_until_ended(self, limit: float | None) -> Ended:
        known = self._task_no is not None
        try:
            return await self._session.waiting.wait_until_ended(await self._find_number(), limit)
        except UnknownTask:
            if not known:
                raise
            self._task_no = None  # it was purged; its id may have been given again since
            return await self._session.waiting.wait_until_ended(await self._find_number(), limit)

    async def _find_number(self) -> int:
        if self._task_no is None:
            self._task_no = (await load_task(self._session, self.id)).task.task_no
        return self._task_no

    def _read_output(self, ended: Ended) -> Any:
        task = ended.task
        if task.state is TaskState.PROCESSED:
            assert task.output is not None
            newest = self._code or self._session.codes.get(task.workflow)
            code = None if newest is None else newest.for_task(task)
            return msgspec.json.decode(task.output) if code is None else code.output(task.output)
        assert task.failure is not None
        failure = read_task_failure(task.failure)
        kind = TaskCompensated if task.state is TaskState.COMPENSATED else TaskHeld
        raise kind(
            task.task_id,
            state=str(task.state),
            step=failure.step,
            code=failure.code,
            reason=failure.reason,
            open_compensations=ended.open_compensations,
            at=format_location(failure.trace),
            public=choose_public_text(failure, task.state),
        )

    async def view(self) -> TaskView[R_co]:
        """The task as it stands: its state, steps, results and times, as far as this release can read it.

        It reads the task's history too; to learn only when it ends, wait with ``result``.
        Raises: UnknownTask; StoreError.
        """
        loaded = await load_task(self._session, self.id)
        return await self._session.views.view(loaded, self._code)

    async def send(
        self, value: SignalValue[Any], *, signal_id: str | None = None, by: str = "", connection: Any = None
    ) -> SignalReceipt:
        """Send a signal: ``await task.send(approved(Approval(...)))``. It is kept, durably, when the call returns.

        Args:
            value: a signal with its value.
            signal_id: sent again under the same id it changes nothing; None: a new one.
            by: who sends it, for the history; empty: a program.
            connection: with a transaction open on the store's database, as for ``submit``: the signal is part of it. The task
                may be new in the same transaction.
        Raises: SignalRefused - the task has ended or is undone, or has no room for it; InvalidInput; UnknownTask;
            StoreError - nobody knows whether it was kept: send it again under the same ``signal_id``.
        """
        sent = check_sent(value)
        if connection is not None:
            command = build_send(self._session, 0, sent.signal.wait_name, sent.value, signal_id, by)
            joined = send_joined(self._session.store, self.id, command, connection, on_loop=True)
            placed = await joined if inspect.isawaitable(joined) else joined
            return accept_joined(self._session, self.id, command, placed)
        number = await self._find_number()
        command = build_send(self._session, number, sent.signal.wait_name, sent.value, signal_id, by)
        return await send(self._session, self.id, command)

    async def complete_callback(self, name: str, value: Any, *, by: str = "") -> bool:
        """Complete a callback for which the task waits, in place of the service that has its URL.

        Args:
            name: of the callback: ``receipt``; of several that wait, ``receipt#2``.
            value: of the type that the workflow waits for, or its plain JSON form.
            by: who sends it, for the history; empty: a program.
        Returns: False if it was completed by the same value before.
        Raises: CallbackRefused - as ``App.complete_callback``; InvalidInput - the task has no such callback, or several of the
            name; UnknownTask; StoreError - send the same again.
        """
        from .callbacks import complete_named

        text = codec.encode_untyped(value, f"the value of callback {name}")
        return await complete_named(self._session, self.id, name, text, by)

    async def fork(
        self,
        from_step: str | int,
        *,
        task_id: str | None = None,
        convoy: str | None = None,
        by: str = "",
        reason: str = "",
    ) -> "Task[R_co]":
        """Submit a new task that does this one again from a step on. It has the results before that step as copies.

        The effects of what is copied stay this task's: only this one undoes them, and each once.

        Args:
            from_step: label of the step, or its number in the task. It is done again, and all that follows.
            task_id: of the new task; the same id again answers with the same fork.
            convoy: of the new task; None: none, whatever the convoy of this one.
            by, reason: who asks, and why, for the history; empty: not said.
        Raises: VerbRefused - the step is in doubt, one before it has not ended, or what would be copied is undone; InvalidInput -
            it has no such step; UnreadableRow; UnknownTask; TaskExists; StoreError; OutcomeUnknown.
        """
        from .forks import ForkOptions, submit_fork  # only who forks pays for loading it

        loaded = await load_task_to_act(self._session, self.id)
        options = ForkOptions(task_id=task_id, convoy=convoy, by=by, reason=reason)
        answer = await submit_fork(self._session, loaded, from_step, options)
        assert answer.id is not None
        return Task(self._session, answer.id, self._code, created=answer.created)

    async def children(self) -> "list[ChildView]":
        """List the tasks that its code has started, in the order of its steps. Raises: UnknownTask; StoreError."""
        from .children import iterate_children  # only who asks for children pays for loading it

        loaded = await load_task(self._session, self.id)
        return [child async for child in iterate_children(loaded, self._session.store)]

    async def changes(self) -> AsyncIterator[TaskView[R_co]]:
        """Follow the task: a view now, and one after each change that is seen. The last one is its end.

        Changes that follow each other closely may come as one view; the latest state is never left out. All who follow tasks
        by way of this App share one poll of the store.
        Raises: UnknownTask - also if it is purged meanwhile; StoreError; InvalidInput - the App was closed.
        """
        number, known, last = await self._find_number(), None, None
        while True:
            known = await self._session.changes.wait(number, known)
            loaded = await load_task(self._session, self.id)
            if loaded.task.task_no != number:  # it continues in another run
                number, known = loaded.task.task_no, None
            view = await self._session.views.view(loaded, self._code)
            if view != last:  # it may have been newer than its version
                last = view
                yield view
            if view.ended_at is not None:
                return

    async def request(
        self,
        value: RequestValue[R],
        *,
        timeout: Duration | None = None,
        request_id: str | None = None,
        by: str = "",
    ) -> R:
        """Send a request and wait for the reply of the task's code.

        Args:
            value: a request with its value, ``change_address(new)``.
            timeout: seconds or timedelta; None waits as long as it takes.
            request_id: the same again waits for the same reply; None: a new one.
            by: who asks, for the history; empty: a program.
        Raises: TimeoutError - the request stays, and may be waited for again under its ``request_id``; RequestRefused -
            the code refuses it; SignalRefused - the task has ended, is undone, ends without a reply, or has no room;
            InvalidInput; UnknownTask; StoreError.
        """
        sent = check_request(value)
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        number = await self._find_number()
        name = sent.request.wait_name
        command = build_send(self._session, number, name, sent.value, request_id, by, wants_reply=True)
        return await request(self._session, self.id, value, command, limit)

    # --- verbs of an operator; which verb a state allows is in verb_rules
    async def resubmit(
        self, *, by: str, reason: str, arguments: Mapping[str, Any] | None = None, step: str | None = None
    ) -> None:
        """Continue from an error, doing again what failed; or run again what was undone.

        Args:
            by, reason: who asks, and why; kept in the history.
            arguments: by parameter name: send the failed step these from now on, under a new key. Of a task that was
                undone, or whose code has asked for no step: the workflow's.
            step: the step whose arguments are edited, where several failed.
        Raises: VerbRefused - the state does not allow it, another verb came first, or the step may have happened with
            its old arguments; UnreadableRow; InvalidInput; UnknownTask; StoreError.
        """
        loaded = await load_task_to_act(self._session, self.id)
        fields: dict[str, Any] = {}
        if arguments is not None:
            task_verbs.refuse_edits(loaded, self._session.store.now(), by=by, reason=reason)
            fields = task_verbs.build_edit(loaded, self._session.codes, arguments, step)
        await operate_task(self._session, Verb.RESUBMIT, loaded, by, reason, **fields)

    async def compensate(self, *, by: str, reason: str) -> None:
        """Undo everything it has done, also after its end; refused past a pivot.

        Raises: as ``resubmit``.
        """
        await operate_task(self._session, Verb.COMPENSATE, await load_task_to_act(self._session, self.id), by, reason)

    async def cancel(self, *, by: str, reason: str) -> None:
        """Stop it: undo what was done; past a pivot it is held. Raises: as ``resubmit``."""
        await operate_task(self._session, Verb.CANCEL, await load_task_to_act(self._session, self.id), by, reason)

    async def extend(self, *, by: str, reason: str, within: Duration) -> tuple[str, ...]:
        """Move its own limit to ``within`` from now; only later, never earlier.

        Returns: as ``adjust``. Raises: as ``resubmit``.
        """
        limit = check_seconds(within, "within", at_least=0.001)
        return await operate_task(
            self._session, Verb.EXTEND, await load_task_to_act(self._session, self.id), by, reason, within=limit
        )

    async def adjust(self, *, by: str, reason: str, **limits: Unpack[Adjustment]) -> tuple[str, ...]:
        """Change its limits, or those of its steps. The history keeps the old values.

        Args:
            deadline: its own, counted from now; it may be earlier than before.
            step: label, ``undo:LABEL`` or number of the step whose limits change; left out: of each open step.
            attempts, rounds, cool_off: of the step's Supervision; it must have an attempt left.
            complete_within: of each attempt from the next one on; one that is running keeps its own.
            wait_within: how long a request waits for an Agent to take it, counted from now.
            delay: when the next attempt may begin, counted from now; 0 is now.
        Returns: in words each value that it changed, with the old one, and ``unchanged: ...`` for each step that did not take it.
        Raises: as ``resubmit``; also where the named step, or every open step, refuses one of them.
        """
        arguments = read_adjustment(limits)
        loaded = await load_task_to_act(self._session, self.id)
        fields = build_adjustment(loaded, arguments)
        return await operate_task(self._session, Verb.ADJUST, loaded, by, reason, **fields)

    async def answer(
        self, *, by: str, reason: str, step: str, result: Any = msgspec.UNSET, did_not_happen: bool = False
    ) -> None:
        """Give a step's result by hand, or say that a step in doubt did not happen.

        Args:
            step: its label, ``undo:LABEL`` for its compensation (which needs no result), or its number in the task.
            result: of the type the step declares.
        Raises: as ``resubmit``.
        """
        loaded = await load_task_to_act(self._session, self.id)
        fields = task_verbs.build_answer(loaded, self._session.codes, step, result, did_not_happen)
        await operate_task(self._session, Verb.ANSWER, loaded, by, reason, **fields)

    async def pause(self, *, by: str, reason: str) -> None:
        """Let nothing new begin; running attempts end. Its own limit is not enforced meanwhile, but continues counting.

        Raises: as ``resubmit``.
        """
        await operate_task(self._session, Verb.PAUSE, await load_task_to_act(self._session, self.id), by, reason)

    async def resume(self, *, by: str, reason: str) -> None:
        """Let a paused task continue. Raises: as ``resubmit``."""
        await operate_task(self._session, Verb.RESUME, await load_task_to_act(self._session, self.id), by, reason)

    async def snooze(self, *, by: str, reason: str, delay: Duration) -> None:
        """Let nothing new begin for ``delay``; then it continues by itself. A second snooze replaces the first.

        Raises: as ``resubmit``; also where the task's own limit would pass before.
        """
        seconds = check_seconds(delay, "delay", at_least=0.001)
        await operate_task(
            self._session, Verb.SNOOZE, await load_task_to_act(self._session, self.id), by, reason, within=seconds
        )

    async def change_tags(
        self, put: Mapping[str, str] | None = None, remove: Collection[str] = (), *, by: str, reason: str
    ) -> tuple[str, ...]:
        """Change the tags by which operators find the task, in any state. The task's code still sees those it was submitted with.

        Args:
            put: new values by name; those that it does not name stay.
            remove: names; one that the task does not have is passed over.
        Returns: as ``adjust``.
        Raises: as ``resubmit``; also where it would have more than 20 tags.
        """
        check_tag_change({} if put is None else put, remove)
        changes = encode_changes(put or {}, tuple(remove))
        return await operate_task(
            self._session, Verb.TAG, await load_task_to_act(self._session, self.id), by, reason, tags=changes
        )

    async def pin(self, to: str, *, by: str, reason: str) -> tuple[str, ...]:
        """Let another version of its code continue it, once it has begun. Only processes with that version take it up.

        Args:
            to: the number of a version of its workflow, ``@DEPLOYMENT``, or both: ``2``, ``@blue``, ``2@blue``; ``@`` stands for no
                named deployment. What it does not name stays.
        Returns: as ``adjust``.
        Raises: as ``resubmit``; also where the version is the task's already.
        """
        PinArguments(to=to).check()
        return await operate_task(
            self._session, Verb.PIN, await load_task_to_act(self._session, self.id), by, reason, to=to
        )

    def __repr__(self) -> str:
        return f"<task {self.id}>"
