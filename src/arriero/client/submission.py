"""Turns a call and the options of its submission into the command that the store keeps."""

import hashlib
from typing import Annotated, Any, NamedTuple

import msgspec

from ..core.call_policy import resolve_call_policy
from ..core.deduplication import SEQUENCE_USED
from ..declare.step_options import DEFAULT_SUPERVISION
from ..declare.steps import StepCall
from ..declare.workflows import Workflow, WorkflowCall
from ..errors import ConvoyRefused, InvalidInput, SequenceUsed, TaskExists, TooManyOpenTasks, WorkflowPaused
from ..model import STEP_PREFIX
from ..model.answers import TOO_MANY_OPEN_TASKS, WORKFLOW_PAUSED, Refusal, Submitted
from ..model.commands import Submit
from ..model.policies import TaskPolicy, check_seconds, encode_policy
from ..model.tags import check_tags, encode_tags
from ..payloads import codec
from ..runtime.code import OneStep
from .session import Session

SEQUENCE_MAX = 2**53  # so that JSON of any language keeps it exact
PRIORITY_DEFAULT = 5


class SubmissionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one submission that every interface takes, as ``App.submit`` describes them; not checked yet."""

    convoy: Annotated[
        str | None,
        msgspec.Meta(
            description="Its convoy: tasks of one key are handled one after the other, in order.",
            extra={"metavar": "KEY"},
        ),
    ] = None
    sequence: Annotated[int | None, msgspec.Meta(description="The producer's own number in the convoy: 1, 2, ...")] = (
        None
    )
    end_of_sequence: Annotated[bool, msgspec.Meta(description="Nothing comes after it in its convoy.")] = False
    priority: Annotated[
        int, msgspec.Meta(description="Priority, 0 to 9. 9 comes first, and each step is a head start of 10 minutes.")
    ] = PRIORITY_DEFAULT
    delay: Annotated[float, msgspec.Meta(description="Seconds before it may start.", extra={"metavar": "SECONDS"})] = (
        0.0
    )
    reply_to: Annotated[
        str | None,
        msgspec.Meta(description="The reply queue that receives its status messages.", extra={"metavar": "QUEUE"}),
    ] = None
    tags: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="A tag, by which operators find the task. May be given several times.",
            extra={"option": "--tag", "metavar": "NAME=VALUE"},
        ),
    ] = None


class SubmitOptions(SubmissionOptions, frozen=True, kw_only=True):
    """The options of one submission.

    ``traceparent``, ``tracestate``: of W3C Trace Context; None: the current span, if the App traces.
    """

    task_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


def build_submission(session: Session, call: object, options: SubmitOptions) -> Submit:
    """Build the command that submits a call. Raises InvalidInput - a wrong option, or no call of this App."""
    priority, task_id = options.priority, options.task_id
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidInput(f"priority is {priority!r}; it must be a whole number from 0 to 9")
    if options.convoy is not None or options.sequence is not None or options.end_of_sequence is not False:
        check_order(options)
    code = find_code(session, call)
    if options.convoy is None and isinstance(call, WorkflowCall) and call.workflow.handles_batches:
        raise InvalidInput(f"workflow {code.name} handles batches of a convoy: name the key, by convoy=")
    return Submit(
        actor="client",
        task_id=session.ports.new_task_id() if task_id is None else codec.check_id(task_id, "task_id"),
        workflow=code.name,
        arguments=code.arguments,
        body_hash=hashlib.blake2b(
            code.arguments.encode(), digest_size=16
        ).hexdigest(),  # as ``hash_body``, without the call
        policy=code.policy_text,
        priority=priority,
        delay=check_seconds(options.delay, "delay"),
        complete_within=code.complete_within,
        seed=session.ports.random.getrandbits(62),
        reply_to=None if options.reply_to is None else codec.check_id(options.reply_to, "reply_to"),
        convoy=options.convoy,
        sequence=options.sequence,
        end_of_sequence=options.end_of_sequence,
        app=session.app,
        trace_context=_find_trace_context(session, options),
        submitter=None if session.cap is None else session.cap.submitter,
        open_tasks_max=None if session.cap is None else session.cap.open_tasks_max,
        tags=None if options.tags is None else encode_tags(check_tags(options.tags)),
    )


def _find_trace_context(session: Session, options: SubmitOptions) -> str | None:
    """Find the trace that a submission belongs to. Raises InvalidInput - traceparent is not a header of W3C Trace Context."""
    if options.traceparent is not None:
        from ..model.trace_context import check_trace_headers  # few submissions bring one

        return check_trace_headers(options.traceparent, options.tracestate)
    return None if session.tracing is None else session.tracing.find_submitter()


def accept(answer: Submitted | Refusal) -> Submitted:
    """Return the answer to a submission.

    Raises: TaskExists, SequenceUsed, ConvoyRefused, TooManyOpenTasks, WorkflowPaused - it is a refusal.
    """
    if isinstance(answer, Refusal):
        if answer.verdict == "no_place":
            raise ConvoyRefused(answer.detail)
        if answer.verdict == TOO_MANY_OPEN_TASKS:
            raise TooManyOpenTasks(answer.detail)
        if answer.verdict == WORKFLOW_PAUSED:
            raise WorkflowPaused(answer.detail)
        same_id = f"{answer.detail}; use another task_id, or look at it with `arriero task show`"
        raise (SequenceUsed if answer.verdict == SEQUENCE_USED else TaskExists)(same_id)
    return answer


def check_order(options: SubmitOptions) -> None:
    """Check the options that say where a task stands in its convoy. Raises InvalidInput."""
    sequence, end_of_sequence = options.sequence, options.end_of_sequence
    if not isinstance(end_of_sequence, bool):
        raise InvalidInput(f"end_of_sequence is {end_of_sequence!r}; it must be True or False")
    if options.convoy is None:
        for name, value in (("sequence", sequence), ("end_of_sequence", end_of_sequence or None)):
            if value is not None:
                raise InvalidInput(f"{name} is given without convoy; name the convoy that it numbers")
        return
    is_whole = isinstance(sequence, int) and not isinstance(sequence, bool)
    if sequence is not None and not (is_whole and 1 <= sequence <= SEQUENCE_MAX):
        raise InvalidInput(f"sequence is {sequence!r}; it must be a whole number from 1 to {SEQUENCE_MAX}")
    from ..core.placement import explain_kept_key  # not every App has convoys

    if kept := explain_kept_key(codec.check_id(options.convoy, "convoy")):
        raise InvalidInput(f"{kept}: choose another key")


class FoundCode(NamedTuple):
    """Code that a call asks for, in the form that a task's row keeps. ``arguments`` and ``policy_text`` are JSON texts."""

    name: str
    arguments: str
    policy_text: str
    complete_within: float | None


def find_code(session: Session, call: Any) -> FoundCode:
    """Find the code that a call of a workflow or step of the App asks for. Raises InvalidInput."""
    codes = session.codes
    if isinstance(call, WorkflowCall):
        name = call.workflow.name
        if (code := codes.get(name)) is None or code.definition is not call.workflow:
            if code is not None and call.workflow in [one.definition for one in code.list_versions()]:
                raise InvalidInput(
                    f"version {call.workflow.version} of workflow {name!r} takes no new tasks: submit a call of version {code.version}"
                )
            known = [code.name for code in codes.values() if isinstance(code.definition, Workflow)]
            raise InvalidInput(
                f"workflow {name!r} is not in App {session.app}; it has {', '.join(known) or 'none'}; declare it by @app.workflow,"
                " or give it in App(workflows=[...])"
            )
        return FoundCode(name, call.arguments, call.workflow.policy_text, call.workflow.policy.complete_within)
    if isinstance(call, StepCall):
        name = STEP_PREFIX + call.step.name
        if (code := codes.get(name)) is None or code.definition is not call.step:
            raise InvalidInput(
                f"step {call.step.name!r} of Agent {call.step.agent.name!r} is not in App {session.app}: add the Agent to it by"
                " App(agents=[...])"
            )
        one = OneStep(msgspec.Raw(call.arguments.encode()), call.changed)
        supervision = resolve_call_policy(call, DEFAULT_SUPERVISION).supervision
        return FoundCode(name, msgspec.json.encode(one).decode(), encode_policy(TaskPolicy(None, supervision)), None)
    raise InvalidInput(f"submit takes the call of a workflow or step, like fulfil(order), not {call!r}")
