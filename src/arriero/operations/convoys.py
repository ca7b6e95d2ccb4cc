"""Operations on convoys: the verbs of an operator on one key."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from ..client.convoy import WORDS, Convoy, ConvoyView, show_outcome
from ..client.session import Session
from ..client.task_shapes import Payloads
from ..errors import ArrieroError, UnknownName, UnknownTask, VerbRefused
from ..explain.convoys import format_convoy_command, format_policy, format_ranges
from ..model import ConvoyVerb
from ..model.tokens import Scope
from ..model.verb_rules import CONVOY_VERB_RULES
from ..payloads import codec
from .declaration import Done, OperationDeclaration, ReasonRequest, Subject, say

WORKFLOW = "workflow"  # what stands for: no policy of its own
OPTION_WORDS = (*WORDS, WORKFLOW)


class SkipRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A skip of what a convoy is blocked on."""

    seen: Annotated[
        str | int | None,
        say("The held task, or the first missing number, that you have seen. No other is skipped.", "WHAT"),
    ] = None


class SetRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of the key: ``wait``, ``skip`` or ``park``. What is left out stays; null: the workflow's holds again."""

    head: Annotated[
        str | msgspec.UnsetType | None,
        say("What happens if the head of the key is held.", words=OPTION_WORDS, null=WORKFLOW),
    ] = msgspec.UNSET
    gap: Annotated[
        str | msgspec.UnsetType | None,
        say("What happens if a number does not arrive in time.", words=OPTION_WORDS, null=WORKFLOW),
    ] = msgspec.UNSET
    gap_within: Annotated[
        float | msgspec.UnsetType | None, say("How long the key waits for a missing number.", null=WORKFLOW)
    ] = msgspec.UNSET


class MoveToHeadRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A move of a task before all others that wait."""

    task_id: Annotated[str, say("Of a task that waits.", "ID")]


class ConvoyActAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``convoy``: its state afterwards."""

    key: str
    verb: str
    outcome: Literal["done"]
    convoy: ConvoyView
    payloads: Payloads


Describe = Callable[[Any, ConvoyView, ConvoyView], str]  # arguments, the convoy before and after


def _declare_verb(
    verb: ConvoyVerb,
    summary: str,
    arguments: type[ReasonRequest] = ReasonRequest,
    example: Mapping[str, Any] = {},
    raises: tuple[type[ArrieroError], ...] = (),
) -> Callable[[Describe], OperationDeclaration]:
    """Declare a verb. The function says what came of it; its docstring is the help of the command."""

    def declare(describe: Describe) -> OperationDeclaration:
        async def act(session: Session, key: str, by: str, asked: ReasonRequest) -> Done:
            convoy = Convoy(session, codec.check_id(key, "convoy"))
            before = await convoy.view()
            given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not msgspec.UNSET}
            outcome = await getattr(convoy, verb)(by=by, **given)
            now = show_outcome(await convoy.view(), outcome)
            return Done(
                ConvoyActAnswer(key, str(verb), "done", now, "included"),
                (f"convoy {key!r}{describe(asked, before, now)}",),
            )

        act.__name__, act.__doc__ = describe.__name__, describe.__doc__
        return OperationDeclaration(
            noun="convoy",
            name=verb.replace("_", "-"),
            function=act,
            summary=summary,
            arguments=arguments,
            answer=ConvoyActAnswer,
            scopes=(Scope.OPERATE,),
            subject=Subject("key", "The convoy's key", "KEY"),
            raises=(UnknownName, VerbRefused, *raises),
            states=tuple(str(state) for of, state in CONVOY_VERB_RULES if of is verb),
            example={"reason": "it was checked", **example},
            history="the convoy's history",
            needs_scheduler=True,
        )

    return declare


@_declare_verb(ConvoyVerb.RELEASE, "Let a parked convoy continue.")
def release_convoy(_: ReasonRequest, before: ConvoyView, now: ConvoyView) -> str:
    """Let a parked key continue; if its head is still held it waits for that."""
    return f" is released; {_format_next(now)}"


@_declare_verb(
    ConvoyVerb.SKIP,
    "Set the held task aside, or what is missing, and continue.",
    SkipRequest,
    {"seen": "order-1001"},
)
def skip_convoy(_: ReasonRequest, before: ConvoyView, now: ConvoyView) -> str:
    """Pass over what a key is blocked on: the held task is set aside, or what is missing is not waited for.

    What was passed over comes back only by an operator: `arriero task resubmit`.
    """
    if before.open_task is not None and before.open_task != now.open_task:
        return f": task {before.open_task} is set aside; {_format_next(now)}"
    gone = [one for one in before.missing if one not in now.missing]
    passed = f"sequence {format_ranges(gone)} is skipped" if gone else "what was missing is skipped"
    return f": {passed}; {_format_next(now)}"


@_declare_verb(ConvoyVerb.PARK, "Begin nothing more in a convoy until it is released.")
def park_convoy(_: ReasonRequest, before: ConvoyView, now: ConvoyView) -> str:
    """Begin nothing more of a key until it is released; a task that is running goes to its end."""
    ends = f"task {before.open_task} goes to its end, and " if before.state == "open" else ""
    return f" is parked; {ends}nothing more begins until {format_convoy_command(ConvoyVerb.RELEASE, now.key)}"


@_declare_verb(ConvoyVerb.SET, "Give a convoy a separate policy.", SetRequest, {"head": "park", "gap_within": 60.0})
def set_convoy(_: ReasonRequest, before: ConvoyView, now: ConvoyView) -> str:
    """Give a key a separate policy, also for what it waits for now.

    What is not named stays as it is; workflow: that part is again the one of each task's workflow.
    """
    goes_on = f"; {_format_next(now)}" if before.waiting_for != now.waiting_for else ""
    return f" has the policy {format_policy(now.policy, now.own_policy)}{goes_on}"


@_declare_verb(
    ConvoyVerb.MOVE_TO_HEAD,
    "Let a task that waits come before all others that wait.",
    MoveToHeadRequest,
    {"task_id": "order-1003"},
    (UnknownTask,),
)
def move_to_head_convoy(asked: MoveToHeadRequest, before: ConvoyView, now: ConvoyView) -> str:
    """Let a task that waits come before all others of its key that wait; not where a sequence is the order."""
    if now.open_task == asked.task_id:
        return f": task {asked.task_id} has its turn"
    return f": task {asked.task_id} comes before all others that wait; it waits for {now.waiting_for}"


def _format_next(view: ConvoyView) -> str:
    """Describe how a key continues after a verb."""
    match view.state:
        case "open":
            return f"it continues with task {view.open_task}"
        case "parked":
            return f"it stays parked until {format_convoy_command(ConvoyVerb.RELEASE, view.key)}"
        case "idle" if not view.waiting:
            return "nothing waits in it"
        case "idle":
            return f"it waits for {view.waiting_for}"
        case _:
            return f"it still waits for {view.waiting_for}"


VERBS = (release_convoy, skip_convoy, park_convoy, set_convoy, move_to_head_convoy)
