"""The verbs that an operator may use: their declarations, which states allow each verb, and what it changes.

A verb on tasks is declared here. Its command with its help, its routes, its entry in the OpenAPI document, its hints for mistyped
commands and its sentence in a history are derived from ``VERBS``. ``core.verbs`` has what it changes.

``cancel`` and ``compensate`` both end in the undo. ``cancel`` stops a task that is running, whatever that takes: past
a pivot, where nothing may be undone, it is held. ``compensate`` only undoes, also what has ended: past a pivot
it is refused, naming the pivot, and nothing changes.

Every verb frees the task and grows its fence: the one who drove it finds its writes refused, and a Scheduler takes it up
from the record. Running attempts are left alone and may still report.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from ..errors import InvalidInput
from . import ConvoyVerb, Instant, TaskRow, TaskState, Verb
from .policies import STEP_LIMITS, check_count, check_seconds
from .processes import read_version_change
from .tags import TAGS_SCHEMA, check_tag_change, encode_changes

Json = msgspec.Raw | msgspec.UnsetType


class VerbArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a verb, beside who asks and why: none.

    A field is a member of the verb's body over HTTP, and an option of its command. The key ``option`` of what is said of a field
    names its option, where that is not the field's own name.
    """

    def check(self, name: Callable[[str], str] = str) -> None:
        """Check the arguments without a task. ``name``: how a field is called where it was given. Raises InvalidInput."""

    def build_fields(self, now: Callable[[], Instant]) -> dict[str, Any]:
        """Build the fields of the verb's command: those of the same name, unless a verb says otherwise. ``now``: the store's clock."""
        return msgspec.structs.asdict(self)


class ResubmitArguments(VerbArguments, frozen=True, kw_only=True):
    """Arguments that the failed step is sent from now on."""

    arguments: Annotated[
        Json,
        msgspec.Meta(
            description="New arguments of the failed step, as a JSON object. Parameters that it does not name keep their values. If the"
            " task was undone or has no steps, they are those of the workflow."
        ),
    ] = msgspec.UNSET
    step: Annotated[
        str | None,
        msgspec.Meta(
            description="Label or number of the step whose arguments are edited. Needed if several steps failed.",
            extra={"option": "--at-step", "metavar": "STEP"},
        ),
    ] = None

    def check(self, name: Callable[[str], str] = str) -> None:
        if self.arguments is msgspec.UNSET and self.step is not None:
            step, arguments = name("step"), name("arguments")
            raise InvalidInput(f"{step} names the step whose {arguments} are edited; give both, or none of them")


class ExtendArguments(VerbArguments, frozen=True, kw_only=True):
    """The new limit of a task, in seconds from now."""

    within: Annotated[float, msgspec.Meta(description="The new limit, counted from now.", extra={"option": "--within"})]

    def check(self, name: Callable[[str], str] = str) -> None:
        check_seconds(self.within, name("within"), at_least=0.001)


class AdjustArguments(VerbArguments, frozen=True, kw_only=True):
    """New limits of a task, of one of its steps, or of all its open steps. What is not named stays as it is."""

    deadline: Annotated[
        float | None,
        msgspec.Meta(description="Deadline of the whole task, counted from now; it may be earlier than before."),
    ] = None
    step: Annotated[
        str | None,
        msgspec.Meta(
            description="The step: its label, undo:LABEL for its compensation, or its number. By default each open step.",
            extra={"option": "--at-step", "metavar": "STEP"},
        ),
    ] = None
    attempts: Annotated[int | None, msgspec.Meta(description="Attempts of a step in one round.")] = None
    rounds: Annotated[int | None, msgspec.Meta(description="Rounds of attempts, each after a cool-off.")] = None
    cool_off: Annotated[float | None, msgspec.Meta(description="The wait between two rounds.")] = None
    complete_within: Annotated[
        float | None,
        msgspec.Meta(description="Time of each attempt from the next one on; one that runs keeps its own."),
    ] = None
    wait_within: Annotated[
        float | None, msgspec.Meta(description="How long a request waits for an Agent to take it, counted from now.")
    ] = None
    delay: Annotated[
        float | None, msgspec.Meta(description="When the next attempt may begin, counted from now; 0 is now.")
    ] = None

    def check(self, name: Callable[[str], str] = str) -> None:
        for count in ("attempts", "rounds"):
            if (given := getattr(self, count)) is not None:
                check_count(given, name(count), least=1, most=1_000, error_type=InvalidInput)
        for time, least in ADJUSTED_SECONDS.items():
            if (given := getattr(self, time)) is not None:
                check_seconds(given, name(time), at_least=least)
        if self.deadline is None and not self._list_limits():
            names = ", ".join(name(each) for each in ("deadline", *STEP_LIMITS))
            raise InvalidInput(f"no limit is named; give at least one of {names} and {name('delay')}")
        if self.step is not None and not self._list_limits():
            raise InvalidInput(
                f"{name('step')} names a step, and {name('deadline')} is the task's; give a limit of the step"
            )

    def _list_limits(self) -> dict[str, float]:
        given = {each: getattr(self, each) for each in (*STEP_LIMITS, "delay")}
        return {each: value for each, value in given.items() if value is not None}

    def build_fields(self, now: Callable[[], Instant] | None = None) -> dict[str, Any]:
        limits = self._list_limits()
        fields: dict[str, Any] = {"within": self.deadline or 0.0}
        return fields | ({"limits": msgspec.json.encode(limits).decode()} if limits else {})


# Their shortest times; an attempt of a microsecond or a deadline now would be another verb.
ADJUSTED_SECONDS = {"deadline": 0.001, "cool_off": 0.0, "complete_within": 0.001, "wait_within": 0.0, "delay": 0.0}


class AnswerArguments(VerbArguments, frozen=True, kw_only=True):
    """The answer that an operator gives for a step: its result, or that it did not happen."""

    step: Annotated[
        str,
        msgspec.Meta(
            description="The step: its label, undo:LABEL for its compensation, or its number.",
            extra={"option": "--at-step"},
        ),
    ]
    result: Annotated[Json, msgspec.Meta(description="The result of the step.")] = msgspec.UNSET
    did_not_happen: Annotated[bool, msgspec.Meta(description="Record that the step in doubt did not happen.")] = False

    def check(self, name: Callable[[str], str] = str) -> None:
        if self.result is not msgspec.UNSET and self.did_not_happen:
            result, did_not_happen = name("result"), name("did_not_happen")
            raise InvalidInput(f"{result} and {did_not_happen} exclude each other: give one of them, not both")


class SnoozeArguments(VerbArguments, frozen=True, kw_only=True):
    """The time before which nothing begins, in seconds from now."""

    delay: Annotated[
        float, msgspec.Meta(description="How long nothing new begins, counted from now.", extra={"option": "--delay"})
    ]

    def check(self, name: Callable[[str], str] = str) -> None:
        check_seconds(self.delay, name("delay"), at_least=0.001)

    def build_fields(self, now: Callable[[], Instant]) -> dict[str, Any]:
        return {"within": self.delay}


class TagArguments(VerbArguments, frozen=True, kw_only=True):
    """The change of a task's tags; those that it does not name stay."""

    put: Annotated[
        dict[str, Any],
        msgspec.Meta(
            description="New value of a tag. May be given several times.",
            extra={"option": "--put", "metavar": "NAME=VALUE"},
            extra_json_schema=TAGS_SCHEMA,
        ),
    ] = {}
    remove: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Remove a tag. May be given several times.", extra={"option": "--remove", "metavar": "NAME"}
        ),
    ] = ()

    def check(self, name: Callable[[str], str] = str) -> None:
        check_tag_change(self.put, self.remove, name)

    def build_fields(self, now: Callable[[], Instant]) -> dict[str, Any]:
        return {"tags": encode_changes(self.put, self.remove)}


class PinArguments(VerbArguments, frozen=True, kw_only=True):
    """The version of the code that continues a task."""

    to: Annotated[
        str,
        msgspec.Meta(
            description="The version that continues it: 2, @blue or 2@blue; what is not named stays, and @ stands for no named deployment.",
            extra={"option": "--to", "metavar": "VERSION"},
        ),
    ]

    def check(self, name: Callable[[str], str] = str) -> None:
        read_version_change(self.to, name("to"))


class VerbDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A verb on tasks, as operators meet it.

    Args:
        summary: one line: what it does to a task.
        text: more of it, for the help of its command.
        done: what a history says of the person who asked for it.
        arguments: their type.
        is_edit: its arguments are given for one task at a time.
        example: of arguments, as plain JSON values.
        words: other words for it, which operators bring from other tools.
        is_note: it changes how a task is found and shown, and nothing of its work.
        is_listed: among what a task allows next. What hardly any task needs is not.
    """

    summary: str
    text: str
    done: str
    arguments: type[VerbArguments] = VerbArguments
    is_edit: bool = False
    example: Mapping[str, Any] = {}
    words: tuple[str, ...] = ()
    is_note: bool = False
    is_listed: bool = True


VERBS: dict[Verb, VerbDeclaration] = {
    Verb.RESUBMIT: VerbDeclaration(
        summary="Continue after an error, or run again what was undone.",
        text="Continue after an error: only what failed is done again. What was undone runs again from the beginning.",
        done="resubmitted it",
        arguments=ResubmitArguments,
        is_edit=True,
        words=("retry", "redo"),
    ),
    Verb.COMPENSATE: VerbDeclaration(
        summary="Undo everything a task has done, also after its end.",
        text="Undo everything a task has done, also after its end; refused past a pivot.",
        done="had it undone",
        words=("undo", "rollback"),
    ),
    Verb.CANCEL: VerbDeclaration(
        summary="Stop a task that is open, and undo what it did.",
        text="Stop a task that is open: what it did is undone; past a pivot it is held.",
        done="cancelled it",
        words=("stop", "kill", "abort"),
    ),
    Verb.EXTEND: VerbDeclaration(
        summary="Move a task's own limit to later.",
        text="Move a task's own limit, its complete_by, to that long from now; only later, never earlier. Other limits are changed by"
        " `arriero task adjust`.",
        done="moved its limit to later",
        arguments=ExtendArguments,
        example={"within": 3600.0},
    ),
    Verb.ADJUST: VerbDeclaration(
        summary="Change the limits of a task or of its steps.",
        text="Change the limits of a task that has not ended: its own deadline, which may also be earlier; or of one open step, or of all"
        " of them: attempts, rounds, times, and when the next attempt begins. The history keeps the old values. A resubmission begins with"
        " the limits of the code.",
        done="changed its limits",
        arguments=AdjustArguments,
        example={"step": "charge", "attempts": 10, "delay": 0.0},
        words=("limits", "change-limits", "deadline", "attempts"),
    ),
    Verb.ANSWER: VerbDeclaration(
        summary="Give a step's result by hand, or say that it did not happen.",
        text="Give a step's result by hand, or say that a step in doubt did not happen. STEP is its label or its number, as `arriero"
        " task show` lists them; or undo:LABEL for its compensation, which was done by hand and has no result. With a filter, name"
        " the step with --at-step.",
        done="answered a step by hand",
        arguments=AnswerArguments,
        example={"step": "charge", "did_not_happen": True},
    ),
    Verb.PAUSE: VerbDeclaration(
        summary="Let nothing new begin in a task until it is resumed.",
        text="Let nothing new begin in a task until it is resumed; running attempts end. Its own limit continues to count, and is"
        " enforced only once it is resumed.",
        done="paused it",
    ),
    Verb.RESUME: VerbDeclaration(
        summary="Let a paused task continue.",
        text="Let a paused task continue.",
        done="let it continue",
        words=("continue", "unpause"),
    ),
    Verb.SNOOZE: VerbDeclaration(
        summary="Let nothing new begin in a task before an instant.",
        text="Let nothing new begin in a task for that long; then it continues by itself. A second snooze replaces the first."
        " Running attempts end. Its own limit continues to count: extend it first if it lies earlier.",
        done="snoozed it",
        arguments=SnoozeArguments,
        example={"delay": 3600.0},
        words=("delay", "postpone", "defer"),
    ),
    Verb.TAG: VerbDeclaration(
        summary="Change the tags by which a task is found.",
        text="Change the tags by which a task is found: NAME=VALUE gives one its value, NAME- removes it, the others stay. The code of the"
        " task still sees the tags it was submitted with.",
        done="changed its tags",
        arguments=TagArguments,
        example={"put": {"tenant": "acme"}, "remove": ["old"]},
        words=("label", "annotate"),
        is_note=True,
        is_listed=False,
    ),
    Verb.PIN: VerbDeclaration(
        summary="Let another version of its code continue a task.",
        text="Let another version of its code continue a task that has begun. Only processes with that version take it up, and they"
        " replay its record: ask `arriero replay` first. VERSION is the number of a version of its workflow, @DEPLOYMENT, or both.",
        done="moved it to another version of its code",
        arguments=PinArguments,
        example={"to": "@blue"},
        words=("move-version", "set-version", "repin", "migrate-version"),
        is_listed=False,
    ),
}


class Rule(msgspec.Struct, frozen=True):
    """One cell of the table: what the verb does to a task in that state, and to running attempts."""

    effect: str
    running: str


_UNDONE_TOO = (
    "waited for, up to their complete_by, and what they did is undone too; those that programs hold end now, in doubt, except a"
    " pivot's"
)
_GO_ON = "continue; their results count"
_KEEP_THEIR_TIME = "keep the time that they began with; if they fail, the new limits count"
_NONE = "there are none"

VERB_RULES: dict[tuple[Verb, TaskState], Rule] = {
    (Verb.RESUBMIT, TaskState.HELD): Rule(
        "continues in a new incarnation: results stay, only what failed is done again; a failed undo continues with what is open",
        _GO_ON,
    ),
    (Verb.RESUBMIT, TaskState.COMPENSATED): Rule(
        "runs again from the beginning, in a new incarnation, under new keys", _NONE
    ),
    (Verb.COMPENSATE, TaskState.PENDING): Rule("the undo begins; refused past a pivot", _UNDONE_TOO),
    (Verb.COMPENSATE, TaskState.PROCESSING): Rule("the undo begins; refused past a pivot", _UNDONE_TOO),
    (Verb.COMPENSATE, TaskState.PROCESSED): Rule("the undo begins, in a new incarnation; refused past a pivot", _NONE),
    (Verb.COMPENSATE, TaskState.HELD): Rule(
        "the undo begins, in a new incarnation; refused past a pivot, and when it had begun before (then resubmit)",
        _UNDONE_TOO,
    ),
    (Verb.CANCEL, TaskState.PENDING): Rule("the undo begins; past a pivot the task is held", _UNDONE_TOO),
    (Verb.CANCEL, TaskState.PROCESSING): Rule("the undo begins; past a pivot the task is held", _UNDONE_TOO),
    (Verb.EXTEND, TaskState.PENDING): Rule("its own limit moves later", _GO_ON),
    (Verb.EXTEND, TaskState.PROCESSING): Rule("its own limit moves later", _GO_ON),
    (Verb.ADJUST, TaskState.PENDING): Rule("its deadline changes, or limits of its open steps", _KEEP_THEIR_TIME),
    (Verb.ADJUST, TaskState.PROCESSING): Rule("its deadline changes, or limits of its open steps", _KEEP_THEIR_TIME),
    (Verb.ADJUST, TaskState.COMPENSATING): Rule("limits of its open compensations change", _KEEP_THEIR_TIME),
    (Verb.ANSWER, TaskState.PENDING): Rule("a step gets its result by hand", "the answered one no longer counts"),
    (Verb.ANSWER, TaskState.PROCESSING): Rule("a step gets its result by hand", "the answered one no longer counts"),
    (Verb.ANSWER, TaskState.COMPENSATING): Rule(
        "a step or a compensation gets its result by hand", "the answered one no longer counts"
    ),
    (Verb.ANSWER, TaskState.HELD): Rule(
        "a step or a compensation gets its result by hand; the task stays held until it is resubmitted",
        "the answered one no longer counts",
    ),
    (Verb.PAUSE, TaskState.PENDING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.PAUSE, TaskState.PROCESSING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.PAUSE, TaskState.COMPENSATING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.RESUME, TaskState.PENDING): Rule(
        "a paused task continues; what waited for its next attempt begins immediately", _GO_ON
    ),
    (Verb.RESUME, TaskState.PROCESSING): Rule(
        "a paused task continues; what waited for its next attempt begins immediately", _GO_ON
    ),
    (Verb.RESUME, TaskState.COMPENSATING): Rule(
        "a paused task continues; what waited for its next attempt begins immediately", _GO_ON
    ),
    (Verb.SNOOZE, TaskState.PENDING): Rule("nothing new begins before the end of the snooze", _GO_ON),
    (Verb.SNOOZE, TaskState.PROCESSING): Rule("nothing new begins before the end of the snooze", _GO_ON),
    (Verb.SNOOZE, TaskState.COMPENSATING): Rule("nothing new begins before the end of the snooze", _GO_ON),
    (Verb.TAG, TaskState.PENDING): Rule("its tags change", _GO_ON),
    (Verb.TAG, TaskState.PROCESSING): Rule("its tags change", _GO_ON),
    (Verb.TAG, TaskState.PROCESSED): Rule("its tags change; it stays as it ended", _NONE),
    (Verb.TAG, TaskState.COMPENSATING): Rule("its tags change", _GO_ON),
    (Verb.TAG, TaskState.COMPENSATED): Rule("its tags change; it stays as it ended", _NONE),
    (Verb.TAG, TaskState.HELD): Rule("its tags change; it stays held", _GO_ON),
    (Verb.PIN, TaskState.PENDING): Rule("continues with that version of its code; refused if it has not begun", _GO_ON),
    (Verb.PIN, TaskState.PROCESSING): Rule("continues with that version of its code", _GO_ON),
    (Verb.PIN, TaskState.HELD): Rule("stays held; once resubmitted it continues with that version of its code", _GO_ON),
}


def explain_left_out(verb: Verb, task: TaskRow) -> str:
    """The reason, by its row alone, why a verb does not fit a task: its state, or if it is paused; empty if it fits."""
    if (verb, task.state) not in VERB_RULES:
        return str(task.state)
    if verb is Verb.RESUME and task.paused_at is None:
        return "not paused"
    if verb is Verb.PAUSE and task.paused_at is not None:
        return "paused already"
    if verb is not Verb.TAG and task.batch_no not in (None, task.task_no):
        return f"handled in the batch of another task, number {task.batch_no}: act on that one"
    if verb is Verb.PIN and task.started_at is None:
        return "not begun, so the newest code begins it"
    return ""


CONVOY_VERB_RULES: dict[tuple[ConvoyVerb, str], str] = {
    (ConvoyVerb.SET, "idle"): "its own policy holds from now on",
    (ConvoyVerb.SET, "open"): "its own policy holds from now on",
    (
        ConvoyVerb.SET,
        "stopped",
    ): "its own policy holds immediately: under skip the key continues, under park it is parked",
    (ConvoyVerb.SET, "gap"): "its own policy holds immediately, also for the gap that it waits at",
    (ConvoyVerb.SET, "parked"): "its own policy holds once it is released",
    (ConvoyVerb.RELEASE, "parked"): "it continues; if its head is still held it waits for that",
    (ConvoyVerb.SKIP, "stopped"): "the held task is set aside, the key continues",
    (ConvoyVerb.SKIP, "gap"): "what is missing is skipped, the key continues; if it comes after all it is set aside",
    (
        ConvoyVerb.SKIP,
        "parked",
    ): "the held task, or what is missing, is passed over; it stays parked until it is released",
    (ConvoyVerb.PARK, "idle"): "nothing begins until it is released",
    (ConvoyVerb.PARK, "open"): "the task that is running goes to its end; nothing else begins until it is released",
    (ConvoyVerb.PARK, "stopped"): "nothing begins until it is released, also when its head is fixed",
    (ConvoyVerb.PARK, "gap"): "nothing begins until it is released, also when what is missing comes",
    (ConvoyVerb.MOVE_TO_HEAD, "idle"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "open"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "stopped"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "parked"): "a waiting task comes before all others that wait",
}


def outlasts(approved: str, carried_out: str) -> bool:
    """Returns True if an approval of one verb may count after another was carried out: a note, or the answer of another step."""
    return VERBS[Verb(carried_out)].is_note or approved == carried_out == Verb.ANSWER
