"""The history of one task as a story: one line an event, in plain words, with steps named as people know them.

What only machines need (fences, hashes, keys, policies) is left out; ``arriero history --raw`` shows it.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ..model import HistoryRow, Instant, StepFailure, TaskFailure, seconds_between
from . import wording
from .alive import of_app
from .fold import Event
from .stored_events import UNREADABLE_EVENT, events_of
from .story_convoys import CONVOY_SENTENCES
from .tracing import is_expected, line_to_mend, spot


class Line(msgspec.Struct, frozen=True):
    """One event. ``after``: seconds since its incarnation began; ``actor``: who wrote it."""

    at: Instant
    after: float
    says: str
    actor: str


class Section(msgspec.Struct, frozen=True):
    """An incarnation begins."""

    incarnation: int
    at: Instant


class Story:
    """Tells a task's history row by row, in commit order from the first."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.began_at = Instant(0)
        self.steps: dict[int, str] = {}  # how each is spoken of, by its ordinal
        self.attempts: dict[int, int] = {}
        self.processes: dict[str, int] = {}  # numbers of processes by their names, once both were told
        self.actor = ""  # who wrote what is being told
        self._teller = ""  # the process that was told last as the one who wrote

    def told(self, row: HistoryRow) -> Iterator[Section | Line]:
        """The lines of one row; before them a section where an incarnation begins."""
        self.actor = row.actor
        for event in events_of(row):
            incarnation = _incarnation(event, self.incarnation)
            if incarnation != self.incarnation:
                self.incarnation, self.began_at = incarnation, row.at
                yield Section(incarnation, row.at)
            says = _sentence(self, event) + self._by_whom()
            yield Line(row.at, seconds_between(self.began_at, row.at), says, row.actor)

    def process(self, number: int) -> str:
        """The process that writes the event: its number, and its name where it was not told before."""
        if not wording.is_process_name(self.actor) or self.processes.get(self.actor) == number:
            self._teller = self.actor
            return f"process {number}"
        self.processes[self.actor] = number
        self._teller = self.actor
        return f"process {number} ({wording.shortened(self.actor)})"

    def _by_whom(self) -> str:
        """Which process wrote an event, where another one wrote the one before; people are named in the sentence."""
        if not wording.is_process_name(self.actor) or self._teller == self.actor:
            return ""
        self._teller = self.actor
        return f" (by process {self.processes.get(self.actor) or wording.shortened(self.actor)})"

    def step(self, event: Event) -> str:
        """How the event's step is spoken of: ``step charge``, ``the undo of charge``, ``timer sleep``."""
        return self.step_of(event["step"])

    def step_of(self, ordinal: int) -> str:
        """The same by its ordinal; by that alone where its opening was never seen."""
        return self.steps.get(ordinal, f"step number {ordinal}")

    def label(self, ordinal: int) -> str:
        """The bare label, for lists of compensations."""
        return self.step_of(ordinal).removeprefix("the undo of ")


def tell(rows: Iterable[HistoryRow]) -> Iterator[Section | Line]:
    """The story of one task.

    Args:
        rows: its history, in commit order from the first.
    Returns: sections and lines in that order; a section before the first line of each incarnation.
    """
    story = Story()
    for row in rows:
        yield from story.told(row)


def _incarnation(event: Event, now: int) -> int:
    if event.get("type") == "operator.action" and isinstance(event.get("incarnation"), int):
        return int(event["incarnation"])
    return max(now, 1)


def _sentence(story: Story, event: Event) -> str:
    """The event in words. One that is not known, or is not as it should be, is shown as it is."""
    kind = str(event.get("type", ""))
    if kind == UNREADABLE_EVENT:
        return (
            f"link {event['link']} of its history is damaged and cannot be read; `arriero check` judges an export of it"
        )
    say = SENTENCES.get(kind)
    try:
        if say is not None:
            return say(story, event)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, msgspec.ValidationError):
        pass
    rest = {name: value for name, value in event.items() if name != "type"}
    return f"{kind} {msgspec.json.encode(rest).decode()}"


def _and(*parts: str) -> str:
    return "".join(f", {part}" for part in parts if part)


# --- the task
def _submitted(story: Story, event: Event) -> str:
    limit, queue = event.get("complete_by"), event.get("reply_to")
    waits = event["not_before"] > story.began_at
    more = _and(
        f"not to start before {wording.when(event['not_before'])}" if waits else "",
        "" if limit is None else f"to be done by {wording.when(limit)}",
        "" if queue is None else f"its submitter is told in the reply queue {queue}",
    )
    app = of_app(event.get("app", ""))
    return f"submitted to workflow {event['workflow']}{app} with priority {event['priority']}{more}"


def _assigned(story: Story, event: Event) -> str:
    before = event["from"]
    was = f"it was of App {before!r}" if before else "nothing said whose it was"
    return f"{event['by']} gives it to App {event['app']!r}, {was}: {event['reason']}"


def _claimed(story: Story, event: Event) -> str:
    what = "for its undo " if event["state"] == "compensating" else ""
    return f"taken up {what}by {story.process(event['process'])}"


_WHY_RELEASED = {
    "lost": "freed: the process that held it was lost",
    "stuck": "freed by the Supervisor: the process that held it lives but made no progress",
    "limit": "freed by the Supervisor, for its undo",
}


def _released(story: Story, event: Event) -> str:
    if (why := _WHY_RELEASED.get(event["why"])) is not None:
        return why
    at = event["not_before"]
    return "put down until news comes" if at is None else f"put down until {wording.when(at)}, or until news comes"


def _lost(story: Story, event: Event) -> str:
    process = event.get("process")
    who = "a process that was stuck" if process is None else f"process {process}"
    return f"{who} was lost while it worked on this task: loss {event['lost_count']} since its last progress"


def _terminal(story: Story, event: Event) -> str:
    words = {
        "processed": "processed: it is done",
        "compensated": "compensated, everything is undone",
        "error": "in error, a person is needed",
    }
    said = words[event["state"]]
    return f"{said}: {_task_failure(event['failure'])}" if "failure" in event else said


def _task_failure(failure: Event) -> str:
    read = msgspec.convert(failure, TaskFailure)
    code = f" [{read.code}]" if read.code else ""
    nothing = f" (nothing to undo: {', '.join(read.nothing_to_undo)})" if read.nothing_to_undo else ""
    frame = None if is_expected(read.trace) else line_to_mend(read.trace)
    return f"{read.reason}{code}{'' if frame is None else f', at {spot(frame)}'}{nothing}"


# --- people
_VERBS = {
    "resubmit": "resubmitted it",
    "compensate": "had it undone",
    "cancel": "cancelled it",
    "extend": "moved its limit to later",
    "answer": "answered a step by hand",
    "pause": "paused it",
    "resume": "let it go on",
}


def _operated(story: Story, event: Event) -> str:
    verb, before, after = event["verb"], event["before"], event["after"]
    changed = f" ({before} before, now {after})" if before != after else ""
    limit = event.get("complete_by")
    until = "" if limit is None else f"; to be done by {wording.when(limit)}"
    anew = ", to run again from the beginning" if event.get("anew") else ""
    edited = ", with edited arguments of its workflow" if "arguments" in event else ""
    why = f'"{event["reason"]}"'
    return f"{event['by']} {_VERBS.get(verb, verb)}{anew}{edited}{changed}: {why}{until}"


def _published(story: Story, event: Event) -> str:
    return f"its submitter is told: {event['kind']} (message {event['number']}, reply queue {event['queue']})"


def _alert_opened(story: Story, event: Event) -> str:
    return f"an alert is opened, to be told to people (cause: {event['cause']})"


def _set_back(story: Story, event: Event) -> str:
    return f"{story.step(event)} is to be done again, as attempt {event['attempt']}"


def _edited(story: Story, event: Event) -> str:
    since = f" from attempt {event['attempt']} on" if "attempt" in event else ""
    kept = "; those it had are kept" if "replaces" in event else ""
    return f"{story.step(event)} gets other arguments{since}, and a new key with them{kept}"


def _answered(story: Story, event: Event) -> str:
    step = story.step(event)
    if not event["happened"]:
        return f"{step} did not happen, says a person: it is no longer in doubt"
    return f"{step} is done, says a person: its result was given by hand"


# --- steps
def _opened(story: Story, event: Event) -> str:
    label = event["name"] if event["key"] == "#1" else f"{event['name']}[{event['key']}]"
    prefix = {"step": "step ", "compensation": "the undo of ", "timer": "timer "}[event["kind"]]
    story.steps[event["step"]] = prefix + label
    step = story.step(event)
    if event["kind"] == "timer":
        return f"{step} is set to {wording.when(event['fire_at'])}"
    if event.get("planned"):
        return f"{step} is planned (Agent {event['agent']})"
    pivot = ", a pivot: past it nothing is undone" if event.get("pivot") else ""
    return f"{step} is asked for (Agent {event['agent']}){pivot}"


def _reopened(story: Story, event: Event) -> str:
    attempt = f", as attempt {event['attempt']}" if event.get("attempt", 1) > 1 else ""
    return f"{story.step(event)} is asked for again{attempt}"


def _dispatched(story: Story, event: Event) -> str:
    story.attempts[event["step"]] = event["attempt"]
    until = wording.when(event["complete_by"])
    where = story.process(event["process"])
    return f"{story.step(event)}: attempt {event['attempt']} begins at {where}, to end by {until}"


_REFUSED_REPORTS = {
    "late": "it came after the attempt's time was over",
    "stale": "it is of an attempt that no longer counts",
    "duplicate": "no attempt was under way any more",
    "unknown": "there is no such step",
    "malformed": "it could not be read",
}


def _reported(story: Story, event: Event) -> str:
    verdict, outcome = event["verdict"], event["outcome"]
    said = "a result" if outcome == "succeeded" else "a failure"
    tries = event.get("tries", 1)
    said += f" after {tries} tries" if tries > 1 else ""
    if verdict == "applied":
        return f"{story.step(event)}: its attempt reports {said}"
    if event.get("kept"):
        answered = wording.answered_late(event["attempt"], event["answered_at"], event["complete_by"])
        return f"{story.step(event)}: {answered} ({said}, refused as {verdict})"
    why = _REFUSED_REPORTS.get(verdict, verdict)
    return f"{story.step(event)}: a report of {said} was refused as {verdict}, nothing changed: {why}"


def _recorded(story: Story, event: Event) -> str:
    return f"{story.step(event)} is completed"


def _undone(story: Story, event: Event) -> str:
    return f"{story.step(event)} is done"


def _failed(story: Story, event: Event) -> str:
    failure = wording.failed(msgspec.convert(event["failure"], StepFailure))
    doubt = "; it is in doubt: it may have happened" if event["in_doubt"] else ""
    count = event.get("failure_count", 0)
    after = f" after {wording.counted(count, 'attempt')}" if count else ""
    return f"{story.step(event)} has failed for good{after}: {failure}{doubt}"


def _expired_step(story: Story, event: Event) -> str:
    if event["why"] == "starved":
        return f"the Supervisor finds that no Agent took {story.step(event)} within its wait_within"
    return f"the Supervisor finds that {story.step(event)} gave no answer in time"


_DECISIONS = {
    "retry": "tried again not before {at}",
    "cool_off": "its round of attempts is spent, tried again after a cool-off, not before {at}",
    "error": "not tried again, for the task is being undone or needs a person",
}


def _recovered(story: Story, event: Event) -> str:
    failure = wording.failed(msgspec.convert(event["failure"], StepFailure))
    number = story.attempts.get(event["step"])
    attempt = "an attempt" if number is None else f"attempt {number}"
    doubt = ", and is in doubt" if event["in_doubt"] else ""
    decision = _DECISIONS[event["what"]].format(at=wording.when(event["not_before"]))
    return f"{story.step(event)}: {attempt} failed{doubt} ({failure}); {decision}"


def _lost_step(story: Story, event: Event) -> str:
    return f"{story.step(event)}: its attempt was lost with its process; it is in doubt, and costs no attempt"


def _withdrawn(story: Story, event: Event) -> str:
    doubt = "; it is in doubt: it may have happened" if event["in_doubt"] else ""
    return f"{story.step(event)} is withdrawn{doubt}"


def _planned(story: Story, event: Event) -> str:
    order = ", then ".join(story.label(ordinal) for ordinal in event["steps"])
    return f"the undo is planned: {order or 'there is nothing to undo'}"


def _of_convoy(say: Callable[[Event], str]) -> Callable[[Story, Event], str]:
    return lambda _story, event: say(event)


SENTENCES: dict[str, Callable[[Story, Event], str]] = {
    "task.submitted": _submitted,
    "task.claimed": _claimed,
    "task.released": _released,
    "task.expired": lambda story, event: "the Supervisor finds that the task's own limit has passed",
    "task.lost": _lost,
    "task.terminal": _terminal,
    "alert.opened": _alert_opened,
    "alert.closed": lambda story, event: "its alert is closed: it is no longer in error",
    "operator.action": _operated,
    "task.assigned": _assigned,
    "status.published": _published,
    "step.opened": _opened,
    "step.reopened": _reopened,
    "step.set_back": _set_back,
    "step.edited": _edited,
    "step.answered": _answered,
    "step.dispatched": _dispatched,
    "compensation.dispatched": _dispatched,
    "step.report": _reported,
    "step.recorded": _recorded,
    "compensation.recorded": _undone,
    "step.failed": _failed,
    "compensation.failed": _failed,
    "step.expired": _expired_step,
    "recover.applied": _recovered,
    "step.lost": _lost_step,
    "step.withdrawn": _withdrawn,
    "step.parked": lambda story, event: (
        f"{story.step(event)} is set aside: it stays open until the task is resubmitted"
    ),
    "compensation.reached": lambda story, event: f"it is the turn of {story.step(event)}",
    "timer.fired": lambda story, event: f"{story.step(event)} has fired",
    "undo.begun": lambda story, event: f"the undo begins: {_task_failure(event['failure'])}",
    "undo.planned": _planned,
    **{kind: _of_convoy(say) for kind, say in CONVOY_SENTENCES.items()},
}
