"""The same commands, sound and stale and repeated, into SQLite and into memory: all answers and rows must be equal.

A seed decides the commands. Most are decided from the rows as they stand, some from rows seen before or sent twice, so
that every guard is met from both sides. ``-k "seed-17]"`` repeats one seed, ``ARRIERO_ORACLE_SEEDS=2000`` runs more of
them than every build does. What the stores say is also compared with the fold of their history.
"""

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from store_checks import broken_links, disagreements
from store_world import (
    ALL,
    DECLINED,
    FAILED,
    LEASE,
    UNSURE,
    TestClock,
    gave_up,
    step,
    submission,
    timer,
    undo_of,
)

from arriero.audit.export import encode_export, read_export
from arriero.core.convoy_verbs import list_allowed_convoy_verbs
from arriero.core.lease import on_process_lost, on_stuck
from arriero.core.purging import Named
from arriero.core.routing import INTERCHANGEABLE, PINNED
from arriero.core.supervision import on_limit_passed, on_overdue, on_starved
from arriero.core.undo import decide_next_undo, plan_undo
from arriero.core.verb_guards import list_steps_to_redo
from arriero.core.verb_preview import find_verb_refusal
from arriero.core.workflow_pauses import has_not_begun
from arriero.errors import ArrieroError
from arriero.events.base import payload_hash
from arriero.model import (
    AlertRow,
    ConvoyState,
    ConvoyVerb,
    Instant,
    Loaded,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    Turn,
    Verb,
    later,
)
from arriero.model.answers import Applied, AttemptApplied, Claimed, Refusal, SignalKept, Taken
from arriero.model.commands import (
    Advance,
    AnyCommand,
    Claim,
    EndByLimit,
    ExtendAttempt,
    Operate,
    OperateConvoy,
    Recover,
    Report,
    SaveCheckpoint,
    SendSignal,
    Take,
)
from arriero.model.moves import (
    BeginUndo,
    Compensate,
    Ending,
    Fired,
    Hold,
    Keep,
    NewStep,
    NextUndo,
    Outcome,
    PlanUndo,
    Process,
    PutDown,
    Reported,
    RetryAsked,
    Signalled,
    Succeeded,
)
from arriero.model.policies import ConvoyOverrides
from arriero.model.signals import address_wait, encode_reply, is_wait, may_take, name_reply
from arriero.model.verb_rules import VERB_RULES
from arriero.model.workflow_pauses import OperateWorkflow, PauseState
from arriero.store.contract import SUPERVISOR_LEASE, Purge, PurgeNamed
from arriero.store.memory import MemoryStore
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore
from arriero.store.task_filter import TaskFilter

T = TypeVar("T")
SEEDS = range(int(os.environ.get("ARRIERO_ORACLE_SEEDS", "5")))
MOVES = 400  # of one seed
SIGNALS_SHARE = 0.2  # of the moves, a signal is sent after them
PAUSES_SHARE = 0.08  # of the moves, a workflow is paused or resumed after them, or its tasks are let begin
SEEN_MAX = 40
IDS = tuple(f"order-{number}" for number in range(14))
PROCESSES = (1, 2, 3, 4)
QUEUES = ("web-1", "web-2")
SIGNALS = ("signal:approved", "signal:paid", "request:approved")
KEYS = ("key-1", "key-2", "key-3")  # the last one is ordered by sequence
VERBS = tuple(
    verb for verb in Verb if verb not in (Verb.ADJUST, Verb.PIN)
)  # which are asked in place of some others, and beside them
_HOW_OFTEN = {
    Verb.RESUBMIT: 6,
    Verb.ANSWER: 6,
    Verb.EXTEND: 4,
    Verb.CANCEL: 1,
    Verb.SNOOZE: 1,
}  # not all tasks are to be undone
LIMITS = (
    None,
    '{"attempts":9}',
    '{"attempts":1,"rounds":1}',
    '{"complete_within":9.0}',
    '{"delay":0.0}',
    '{"wait_within":4.0}',
)
SIBLINGS = (("payments", ("shipping",)), ("shipping", ("payments",)))
JUMPS = (0.0, 0.0, 0.000001, 0.000001, 0.4, 0.4, 1.0, 1.0, 2.999999, 3.0, 10.0, 60.0)
LONGER = (*JUMPS[::3], 300.0, 600.0)  # the last are longer than an attempt may take


PUT_OFF = {"workflow_paused": "put off", "workflow_resumed": "let begin"}


async def count_sorted(store: StateStore) -> list[str]:
    return sorted(map(repr, await store.count_versions()))


class Refuted(AssertionError):
    """The stores disagree."""


# What some door takes otherwise than another: three spellings of one body, and others that only look like it.
_BODIES = (
    '{"pieces":2}',
    '{"pieces":2.0}',
    '{ "pieces" : 20e-1 }',
    '{"pieces":true}',
    '{"pieces":"2"}',
    '{"pieces":-0.0}',
    '{"pieces":0}',
    '{"pieces":9007199254740993}',
    '{"pieces":9007199254740992.0}',
    '{"pieces":1.5e300}',
    '{"a":{"b":1,"a":"\\u00e9"},"pieces":2}',
    '{"pieces":2,"a":{"a":"é","b":1.0}}',
    f'{{"pieces":{"[" * 99}{"]" * 99}}}',
    f'{{"pieces":1{"0" * 5000}}}',  # as SQL took it before release 0.5.0
    f'{{"pieces":{"[" * 3000}{"]" * 3000}}}',
)
SPELLINGS: list[dict[str, str]] = [{"arguments": body, "body_hash": f"hash of {body[:40]}"} for body in _BODIES]


class SqliteAgainstMemory:
    """Each move asks both stores the same."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = random.Random(seed)
        self.asking_random = random.Random(f"asking-{seed}")  # its own, so that the rest is drawn as without it
        self.routing_random = random.Random(f"routing-{seed}")  # so, too
        self.naming_random = random.Random(f"naming-{seed}")  # so, too
        self.signal_random = random.Random(f"signals-{seed}")  # so, too
        self.pause_random = random.Random(f"pauses-{seed}")  # so, too
        self.clock = TestClock()
        self.memory = MemoryStore(self.clock)
        self.sqlite = SqliteStore(str(path), clock=self.clock)
        self.seen_tasks: list[TaskRow] = []
        self.seen_steps: list[StepRow] = []
        self.sent: list[AnyCommand] = []
        self.told_tasks: dict[int, TaskRow] = {}
        self.told_steps: dict[int, StepRow] = {}
        self.seen_statuses: list[StatusRow] = []
        self.seen_alerts: list[AlertRow] = []
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        await self.sqlite.open()
        try:
            for number in PROCESSES:
                await self.ask(lambda store, n=number: store.register(f"p{n}", LEASE))
            moves = {self.submit: 4, self.time_passes: 5, self.claim: 3, self.take: 7, self.advance: 20, self.report: 7}
            moves |= {self.a_mixed_batch: 3, self.send_again: 3, self.renew: 3, self.lose: 1, self.lead: 3}
            moves |= {self.keep_or_give_back_the_lead: 1, self.supervise: 4, self.operate: 12, self.a_batch_of_verbs: 1}
            moves |= {self.read_a_queue: 3, self.drop_old_statuses: 1, self.tell_alerts: 3, self.purge: 1}
            moves |= {self.look_through_a_filter: 1, self.operate_a_key: 3}
            for move in self.random.choices(list(moves), list(moves.values()), k=MOVES):
                await move()
                if self.signal_random.random() < SIGNALS_SHARE:
                    await self.apply(*self._send_signal())
                if self.pause_random.random() < PAUSES_SHARE:
                    await self.operate_a_workflow()
                await self.compare_the_whole()
            await self.compare_all_rows()
        finally:
            await self.sqlite.close()

    # --- asking both
    async def ask(self, question: Callable[[StateStore], Awaitable[T]]) -> T | None:
        wanted, found = await _answer(question, self.memory), await _answer(question, self.sqlite)
        if found != wanted:
            raise Refuted(f"after {len(self.memory.log)} commits: {_difference(wanted, found)}")
        return None if isinstance(wanted, type) else wanted

    async def apply(self, *commands: AnyCommand) -> None:
        self.sent = [*self.sent, *commands][-SEEN_MAX:]
        states = {task.task_no: task.state for task in self.memory.tasks.values()}
        answers = await self.ask(lambda store: store.apply(commands)) or ()
        for command, answer in zip(commands, answers, strict=False):
            if isinstance(command, Operate) and isinstance(answer, Applied) and len(commands) == 1:
                self.answers[f"{command.verb} of {states[command.task_no]}"] += 1
            self.answers[getattr(answer, "verdict", type(answer).__name__)] += 1
            match answer:
                case Applied(task=task, steps=steps):
                    self._told([task], steps)
                case Claimed(tasks=tasks):
                    for loaded in tasks:
                        self._told([loaded.task], loaded.steps)
                case AttemptApplied() if isinstance(command, ExtendAttempt | SaveCheckpoint):  # its row is not answered
                    row = self.memory.step(command.step_no)
                    assert row is not None
                    self.told_steps[row.step_no] = row
                case SignalKept(task=task):
                    self._told([task], ())
                case Taken(dispatches=dispatches):
                    self._told([], tuple(dispatch.step for dispatch in dispatches))

    def _told(self, tasks: list[TaskRow], steps: tuple[StepRow, ...]) -> None:
        self.told_tasks |= {task.task_no: task for task in tasks}
        self.answers.update(str(task.state) for task in tasks)
        self.told_steps |= {one.step_no: one for one in steps}
        self.seen_tasks = [*self.seen_tasks, *tasks][-SEEN_MAX:]
        self.seen_steps = [*self.seen_steps, *steps][-SEEN_MAX:]

    # --- choosing
    def one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0

    def some(self, present: Sequence[T], seen: Sequence[T]) -> T | None:
        rows = seen if self.one_in(10) or not present else present
        return self.random.choice(rows) if rows else None

    def some_task(self) -> TaskRow | None:
        return self.some([task for task in self.memory.tasks.values() if task.locked_by is not None], self.seen_tasks)

    def some_attempt(self) -> StepRow | None:
        steps = [one for of_task in self.memory.steps.values() for one in of_task.values()]
        return self.some([one for one in steps if one.state is StepState.RUNNING], self.seen_steps)

    def outcome(self, of: StepRow) -> Outcome:
        doubt = self.one_in(2)
        if of.state is StepState.RUNNING and self.one_in(5):
            return on_overdue(of, self.clock(), jitter=0.5)
        wait = self.random.choice(JUMPS)
        again = RetryAsked(UNSURE if doubt else DECLINED, doubt, later(self.clock(), wait), cool_off=wait == 60.0)
        return self.random.choice([Succeeded('"ok"'), Succeeded('"ok"'), gave_up(in_doubt=doubt), again])

    def opened(self, task: TaskRow) -> list[NewStep]:
        made: list[NewStep] = []
        for number in range(self.random.choice([0, 1, 1, 2])):
            key = f"#{task.opened_count + number + 1}"
            if self.one_in(5):
                made.append(timer(later(self.clock(), self.random.choice(JUMPS)), key))
                continue
            changes: dict[str, Any] = {"agent": self.random.choice(["payments", "shipping"])}
            changes |= {"take": self.one_in(2), "wait_within": self.random.choice([None, 1.0])}
            changes["routing"] = self.routing_random.choice(["", PINNED, INTERCHANGEABLE])
            changes |= {"effect_free": self.one_in(3), "compensation": None} if self.one_in(4) else {}
            made.append(step(self.random.choice(ALL), key, **changes))
        return made + self._open_waits(task, len(made))

    def _open_waits(self, task: TaskRow, others: int) -> list[NewStep]:
        """Waits for signals, and replies to requests."""
        chance, made = self.signal_random, list[NewStep]()
        key = f"#{task.opened_count + others + 1}"
        signals = [one for _, one in sorted(self.memory.signal_rows.get(task.task_no, {}).items())]
        requests = [one for one in signals if one.wants_reply and one.step]
        if requests and chance.random() < 0.5:
            reply, name = encode_reply(str(chance.randrange(3))), name_reply("approved")
            answered = chance.choice(requests).number
            made.append(NewStep(kind=StepKind.TIMER, name=name, key=key, arguments=reply, replies_to=answered))
        elif chance.random() < 0.5:
            until = None if chance.random() < 0.5 else later(self.clock(), chance.choice(JUMPS))
            made.append(NewStep(kind=StepKind.TIMER, name=chance.choice(SIGNALS), key=key, fire_at=until))
        return made

    def _take_signals(self, loaded: Loaded) -> list[Signalled]:
        """Mostly what a wait may take; now and then what another one has, or has taken."""
        chance, items = self.signal_random, list[Signalled]()
        signals = [one for _, one in sorted(self.memory.signal_rows.get(loaded.task.task_no, {}).items())]
        for one in loaded.steps:
            if not is_wait(one) or not signals or chance.random() < 0.3:
                continue
            fits = [signal for signal in signals if signal.step is None and may_take(one, signal)]
            signal = fits[0] if fits and chance.random() < 0.95 else chance.choice(signals)
            if (one.state is StepState.PENDING and fits) or chance.random() < 0.05:
                unfit = "a number, not a text" if chance.random() < 0.1 else ""
                items.append(Signalled(one.step_no, signal.number, self.clock(), unfit))
                signals.remove(signal)
        return items

    def _send_signal(self) -> list[SendSignal]:
        chance = self.signal_random
        numbers = sorted(self.memory.tasks)
        if not numbers:
            return []
        task_no = 99_999 if chance.random() < 0.05 else chance.choice(numbers)
        waits = [one for one in self.memory.steps.get(task_no, {}).values() if is_wait(one)]
        wait = chance.choice(waits) if waits and chance.random() < 0.2 else None
        return [
            SendSignal(
                actor="signal",
                task_no=task_no,
                name=chance.choice(SIGNALS) if wait is None else address_wait(wait),
                signal_id=f"id-{chance.randrange(30)}",
                value=f'"{"é" * chance.randrange(3)}"',
                sent_by=chance.choice(["", "ana"]),
                wants_reply=chance.random() < 0.3,
                wait=None if wait is None else wait.ordinal,
            )
        ]

    def delivered(self, loaded: Loaded) -> list[Reported | Fired]:
        items: list[Reported | Fired] = []
        for one in loaded.steps:
            if one.kind is StepKind.TIMER and one.state is StepState.PENDING and self.one_in(3):
                items.append(Fired(one.step_no, self.clock()))
            elif one.state is StepState.RUNNING and not self.one_in(3):
                items.append(Reported(one.step_no, one.fence - self.one_in(20), self.outcome(one), self.clock()))
        self.random.shuffle(items)
        return items

    def ending(self, loaded: Loaded) -> Ending:
        if loaded.task.state is TaskState.COMPENSATING and loaded.task.failure and not self.one_in(6):
            return decide_next_undo(loaded, "store") or Keep()
        not_before = self.random.choice([None, self.clock(), later(self.clock(), 2.0)])
        choices: list[Ending] = [
            PutDown(not_before),
            Process('"x"'),
            Process('"x"'),
            BeginUndo(FAILED),
            BeginUndo(FAILED),
        ]
        redo = tuple(one.ordinal for one in loaded.life if one.state is StepState.FAILED)
        if redo and self.one_in(2):
            return Hold(msgspec.structs.replace(FAILED, redo=redo))
        choices += [Compensate(FAILED), Hold(FAILED), plan_undo(loaded, FAILED, "store")]
        completed = [one for one in loaded.steps if one.state is StepState.COMPLETED and one.kind is StepKind.STEP]
        planned = [one for one in loaded.steps if one.state is StepState.PLANNED]
        if completed:
            choices += [Hold(FAILED, (undo_of(completed[0]),)), PlanUndo(FAILED, (undo_of(completed[-1], take=True),))]
        if planned:
            choices.append(NextUndo(planned[0].step_no, self.one_in(2), 10.0, 1.0))
        return self.random.choice(choices)

    # --- moves
    async def submit(self) -> None:
        changes = {
            **self.random.choice(SPELLINGS if self.one_in(4) else SPELLINGS[:1]),
            "workflow": self.random.choice(["fulfil", "fulfil", "other"]),
            "priority": self.random.randrange(10),
            "delay": self.random.choice([0.0, 0.0, 1.0]),
            "complete_within": self.random.choice([None, None, 20.0]),
            "reply_to": self.random.choice([None, *QUEUES]),
            "tags": self.choose_by_clock([None, '{"tenant":"acme"}', '{"region":"eu","tenant":"globex"}']),
        }
        ids = self.random.choices(IDS, k=self.random.randint(1, 3))
        batch = [submission(task_id, **changes, **self.place(task_id)) for task_id in ids]
        # PostgreSQL numbers the new keys of one batch in their own order, so that two batches never wait for each other.
        batch.sort(key=lambda command: command.convoy or "")
        answers = await self.ask(lambda store: store.submit(batch)) or ()
        for answer in answers:
            if isinstance(answer, Refusal):
                self.answers.update([answer.verdict, answer.detail.rpartition("with ")[2]])

    def place(self, task_id: str) -> dict[str, Any]:
        """Of half the ids, always the same; now and then another one, also in a key that nobody used."""
        number = int(task_id.rpartition("-")[2])
        if self.one_in(8):
            return {"convoy": self.random.choice([None, *KEYS, f"new-{len(self.memory.convoys)}"])}
        if number % 2:
            return {}
        key = KEYS[number // 2 % len(KEYS)]
        sequence = number // 6 + 1 + self.one_in(3) if key == KEYS[-1] else None
        ends = task_id in self.memory.numbers and self.one_in(6)  # too late
        return {"convoy": key, "sequence": sequence, "end_of_sequence": ends}

    async def time_passes(self) -> None:
        self.clock.move(self.random.choice(JUMPS))

    def _claim(self) -> Claim:
        workflows = self.random.choice([("fulfil", "other"), ("fulfil", "other"), ("fulfil",), ()])
        limit, process_no = self.random.choice([1, 2, 9]), self.random.choice(PROCESSES)
        claim = Claim(actor="p", process_no=process_no, workflows=workflows, limit=limit, probation=not self.one_in(3))
        claim = msgspec.structs.replace(claim, versions=self._choose_versions())
        present = [task.task_no for task in self.seen_tasks]
        if not present or self.naming_random.random() < 0.7:
            return claim
        return msgspec.structs.replace(claim, only=tuple({self.naming_random.choice(present) for _ in range(limit)}))

    async def claim(self) -> None:
        await self.apply(self._claim())

    async def take(self) -> None:
        room = (("payments", self.random.randrange(3)), ("shipping", 2))
        names, probation = self.random.choice([ALL, ALL, ("charge",)]), self.random.choice([None, None, 0, 1, 2])
        process_no = self.random.choice(PROCESSES)
        take = Take(actor="p", process_no=process_no, room=room, names=names, probation=probation)
        await self.apply(
            msgspec.structs.replace(take, siblings=SIBLINGS) if self.routing_random.random() < 0.3 else take
        )

    def _advance(self) -> list[Advance]:
        task = self.some_task()
        if task is None:
            return []
        is_there = task.task_no in self.memory.tasks  # it may have been purged since it was seen
        loaded = self.memory.load_as_is(task.task_no) if is_there else Loaded(task, "{}", ())
        ends = task.state is TaskState.COMPENSATING or self.one_in(3)
        names = ("task_no", "fence", "revision", "state", "convoy_no", "unseen_since")
        fields: dict[str, Any] = {name: getattr(task, name) for name in names}
        return [
            Advance(
                actor="p",
                process_no=task.locked_by or 1,
                delivered=(*self.delivered(loaded), *self._take_signals(loaded)),
                opened=() if task.state is TaskState.COMPENSATING else tuple(self.opened(task)),
                ending=self.ending(loaded) if ends else Keep(),
                **fields,
            )
        ]

    async def advance(self) -> None:
        await self.apply(*self._advance())

    def _report(self) -> list[Report]:
        of = self.some_attempt()
        if of is None:
            return []
        report = Reported(of.step_no, of.fence, self.outcome(of), self.clock())
        return [Report(actor="agent", process_no=of.locked_by or 1, report=report)]

    async def report(self) -> None:
        await self.apply(*self._ask_of_attempt(), *self._report())

    def _ask_of_attempt(self) -> list[ExtendAttempt | SaveCheckpoint]:
        """What the code of a running attempt asks, mostly in time and under its own fence."""
        chance = self.asking_random
        steps = [one for of_task in self.memory.steps.values() for one in of_task.values()]
        running = [one for one in steps if one.state is StepState.RUNNING] or self.seen_steps
        if not running or chance.random() < 0.5:
            return []
        of = chance.choice(running)
        asked: dict[str, Any] = {
            "actor": "agent",
            "process_no": of.locked_by or 1,
            "step_no": of.step_no,
            "fence": of.fence - (chance.random() < 0.05),
        }
        if chance.random() < 0.5:
            latest = later(self.clock(), chance.choice(LONGER))
            return [ExtendAttempt(**asked, seconds=chance.choice(LONGER), latest=latest)]
        replaces = None if chance.random() < 0.3 else payload_hash(of.checkpoint)
        return [SaveCheckpoint(**asked, value=str(chance.randrange(1000)), replaces=replaces)]

    async def a_mixed_batch(self) -> None:
        asked = self._ask_of_attempt()
        await self.apply(*self._report(), *asked, *self._advance(), self._claim(), *self._report(), *self._advance())

    async def send_again(self) -> None:
        if self.sent:
            await self.apply(self.random.choice(self.sent))

    async def renew(self) -> None:
        process_no = self.random.choice(PROCESSES)
        await self.ask(lambda store: store.renew(process_no, LEASE))

    async def lose(self) -> None:
        """A process dies, its tasks are freed, and it starts again under a number that was never retired here."""
        process_no, known_dead = self.random.choice(PROCESSES), self.one_in(2)
        await self.ask(lambda store: store.retire(process_no, by="p", known_dead=known_dead))
        held = await self.ask(lambda store: store.load_held(process_no, 5)) or []
        await self.apply(*on_process_lost(held, process_no, "p"))

    async def lead(self) -> None:
        process_no = self.random.choice(PROCESSES)
        await self.ask(lambda store: store.acquire_lease(SUPERVISOR_LEASE, process_no, "p", 5.0))

    async def keep_or_give_back_the_lead(self) -> None:
        process_no, term = self.random.choice(PROCESSES), self.memory.term(SUPERVISOR_LEASE) - self.one_in(4)
        if self.one_in(3):
            await self.ask(lambda store: store.release_lease(SUPERVISOR_LEASE, process_no, term, "p"))
        else:
            await self.ask(lambda store: store.renew_lease(SUPERVISOR_LEASE, process_no, term, 5.0))

    async def supervise(self) -> None:
        limit, progress = self.random.choice([1, 10]), self.random.choice([1.0, 3.0])
        overdue = await self.ask(lambda store: store.load_overdue(limit, progress))
        assert overdue is not None
        term = self.memory.term(SUPERVISOR_LEASE) - self.one_in(10)
        commands: list[AnyCommand] = []
        for starved, steps in ((False, overdue.expired), (True, overdue.starved)):
            for one in steps:
                outcome = on_starved(one) if starved else on_overdue(one, overdue.now, jitter=0.0)
                fields: dict[str, Any] = {
                    "step_no": one.step_no,
                    "fence": one.fence,
                    "starved": starved,
                    "outcome": outcome,
                }
                commands.append(Recover(actor="s", term=term, **fields))
        for loaded in overdue.past_limit:
            fields = {name: getattr(loaded.task, name) for name in ("task_no", "fence", "revision", "state")}
            commands.append(EndByLimit(actor="s", ending=on_limit_passed(loaded), term=term, **fields))
        commands += [on_stuck(loaded, "s", term) for loaded in overdue.stuck]
        self.random.shuffle(commands)
        await self.apply(*commands)

    # --- people
    def _operate(self) -> list[Operate]:
        tasks = list(self.memory.tasks.values())
        states = {task.state for task in tasks}
        rules = [rule for rule in VERB_RULES if rule[1] in states and rule[0] in VERBS]
        verb, state = self.random.choice(VERBS), None
        if rules and not self.one_in(4):
            ((verb, state),) = self.random.choices(rules, [_HOW_OFTEN.get(verb, 2) for verb, _ in rules])
        meant = [task for task in tasks if state in (None, task.state)]
        if verb is Verb.ANSWER:
            meant = [task for task in meant if self._not_completed(task)] or meant
        task = self.some(meant, self.seen_tasks)
        if task is None:
            return []
        what: dict[str, Any] = {}
        is_undone = (verb, state) == (Verb.ANSWER, TaskState.COMPENSATING)
        if (is_undone or verb in (Verb.EXTEND, Verb.TAG)) and self.clock() // 2 % 2:  # by the clock, as below
            verb = Verb.ADJUST
        if verb in (Verb.EXTEND, Verb.SNOOZE):
            what = {"within": self.random.choice([0.001, 20.0, 60.0])}
        elif verb is Verb.ANSWER:
            what = {"step": self._ordinal(task)}
            what |= {"did_not_happen": True} if self.one_in(2) else {"result": '"by hand"'}
        elif verb is Verb.ADJUST:
            what = {
                "step": self.choose_by_clock([None, None, 1, 2]),
                "limits": LIMITS[self.clock() // 11 % len(LIMITS)],
            }
            what |= {"within": 60.0} if what["limits"] is None else {}
        elif verb is Verb.TAG:
            what = {
                "tags": self.choose_by_clock(['{"tenant":"acme"}', '{"region":"eu","tenant":null}', '{"region":null}'])
            }
        elif verb is Verb.RESUBMIT and self.one_in(2):
            what = {"arguments": '{"amount":6}', "step": self._to_be_edited(task)}
        return [
            Operate(
                actor="operator",
                verb=verb,
                task_no=task.task_no,
                incarnation=task.incarnation - self.one_in(10),
                by="ana",
                reason="she says so",
                store_id="store",
                **what,
            ),
            *self._pin(tasks),
        ]

    def _pin(self, tasks: list[TaskRow]) -> list[Operate]:
        meant = [task for task in tasks if task.started_at is not None and (Verb.PIN, task.state) in VERB_RULES]
        meant = [task for task in meant if task.state is TaskState.PENDING] or meant
        if not meant or self.clock() // 2 % 9:  # by the clock, as above
            return []
        task = self.choose_by_clock(meant)
        to = self.choose_by_clock(["2", "@blue", "1@green", "@"])
        return [
            Operate(
                actor="operator",
                verb=Verb.PIN,
                task_no=task.task_no,
                incarnation=task.incarnation,
                by="ana",
                reason="r",
                to=to,
            )
        ]

    def _not_completed(self, task: TaskRow) -> list[StepRow]:
        return [one for one in self.memory.steps_of(task.task_no) if one.state is not StepState.COMPLETED]

    def _ordinal(self, task: TaskRow) -> int:
        """Of a step of the task, at best of one that has no result; or of none."""
        steps = self._not_completed(task)
        doubtful = [one for one in steps if one.in_doubt] or steps
        chosen = doubtful if self.one_in(2) else steps
        return self.random.choice(chosen).ordinal if chosen and not self.one_in(6) else self.random.randint(0, 4)

    def _to_be_edited(self, task: TaskRow) -> int | None:
        again = list_steps_to_redo(task, self.memory.steps_of(task.task_no))
        if task.state is TaskState.COMPENSATED or not again or self.one_in(3):
            return None if self.one_in(2) else self._ordinal(task)
        return self.random.choice(again).ordinal

    async def operate(self) -> None:
        for command in self._operate():
            await self._judge_alike(command)
            await self.apply(command)
            now_as = self.memory.task(command.task_no)
            if command.verb is Verb.RESUBMIT and now_as is not None and self.one_in(2):
                by_hand = msgspec.structs.replace(command, verb=Verb.ANSWER, incarnation=now_as.incarnation)
                await self.apply(
                    msgspec.structs.replace(by_hand, step=self._ordinal(now_as), arguments=None, result='"by hand"')
                )

    async def _judge_alike(self, command: Operate) -> None:
        """What a dry run foretells is what happens, and a verb never fails in another way than by being refused."""
        loaded = await self.ask(lambda store: store.load(command.task_no))
        foretold = None if loaded is None else find_verb_refusal(command, loaded, self.clock())
        if loaded is None:
            return
        copy = MemoryStore(self.clock)
        for table in ("tasks", "bodies", "steps", "convoys", "tails"):
            getattr(copy, table).update(getattr(self.memory, table))
        copy.steps[command.task_no] = {one.step_no: one for one in loaded.steps}
        (happened,) = await copy.apply([command])
        assert (happened if isinstance(happened, Refusal) else None) == foretold

    async def operate_a_workflow(self) -> None:
        """Pause a workflow for new tasks, resume it, or let some of those begin that have waited."""
        chance, workflow = self.pause_random, self.pause_random.choice(["fulfil", "other"])
        if chance.random() < 0.5:
            limit = chance.choice([1, 2, 50])
            await self.ask(lambda store: store.let_waiting_begin("", workflow, limit, "upkeep"))
            return
        state = chance.choice([PauseState.PAUSED, PauseState.REFUSING, PauseState.RESUMING, PauseState.RESUMING])
        command = OperateWorkflow(actor="o", app="", workflow=workflow, state=state, by="ana", reason="she says so")
        answer = await self.ask(lambda store: store.change_workflow_pause(command))
        self.answers["workflow not paused" if isinstance(answer, Refusal) else f"workflow {state}"] += 1

    async def operate_a_key(self) -> None:
        """A verb on one of several keys, mostly one that makes sense there."""
        if not self.memory.convoys:
            return
        convoy = self.random.choice(list(self.memory.convoys.values()))
        gaps = [one for one in self.memory.convoys.values() if one.state is ConvoyState.GAP]
        convoy = self.choose_by_clock([convoy, *gaps])
        verb = self.random.choice(tuple(ConvoyVerb) if self.one_in(4) else list_allowed_convoy_verbs(convoy))
        members = self.memory.members(convoy.convoy_no)
        waiting = [task for task in members if task.turn is Turn.WAITING]
        if len(waiting) > 1 and convoy.ordering == "place" and self.one_in(2):
            verb = ConvoyVerb.MOVE_TO_HEAD
        what: dict[str, Any] = {}
        if verb is ConvoyVerb.MOVE_TO_HEAD:
            waiting = waiting or members
            what = {"task_no": self.random.choice(waiting).task_no if waiting else 1}
        elif verb is ConvoyVerb.SET:
            words = [self.random.choice((None, "wait", "skip", "park")) for _ in range(2)]
            what = {"policy": ConvoyOverrides(head=words[0], gap=words[1], gap_within=self.random.choice((None, 1.0)))}
        fence = self.random.choice((None, convoy.fence - self.one_in(6)))
        fields: dict[str, Any] = {"convoy_no": convoy.convoy_no, "fence": fence, "by": "bea", "reason": "she says so"}
        await self.apply(OperateConvoy(actor="operator", verb=verb, **fields, **what))

    async def a_batch_of_verbs(self) -> None:
        await self.apply(*self._operate(), *self._advance(), *self._operate(), self._claim(), *self._operate())

    async def read_a_queue(self) -> None:
        queue, limit = self.random.choice(QUEUES), self.random.choice([1, 3, 100])
        statuses = await self.ask(lambda store: store.load_statuses(queue, limit)) or []
        self.seen_statuses = [*self.seen_statuses, *statuses][-SEEN_MAX:]
        done = [(s.queue, s.no) for s in (statuses if self.one_in(2) else self.seen_statuses) if self.one_in(2)]
        if self.one_in(5):
            done = [(QUEUES[queue == QUEUES[0]], number) for queue, number in done]  # of the other queue
        await self.ask(lambda store: store.acknowledge(done))

    async def drop_old_statuses(self) -> None:
        before, limit = later(self.clock(), -self.random.choice([0.0, 3.0, 10.0, 60.0])), self.random.choice([1, 2, 50])
        self.answers["dropped"] += await self.ask(lambda store: store.drop_statuses(before, limit)) or 0

    async def tell_alerts(self) -> None:
        limit, hold = self.random.choice([1, 5]), self.random.choice([0.4, 3.0])
        self.seen_alerts += await self.ask(lambda store: store.take_alerts(limit, hold)) or []
        self.seen_alerts = self.seen_alerts[-SEEN_MAX:]
        for alert in self.seen_alerts:
            if self.one_in(3):
                told, again_in = self.random.choice([("log",), ()]), self.random.choice([None, None, 1.0])
                await self.ask(lambda s, a=alert, t=told, i=again_in: s.settle_alert(a.no, a.attempts, t, i, "why"))

    async def purge(self) -> None:
        ended = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
        states = self.random.choice([ended, ended, (TaskState.HELD,)])
        before = later(self.clock(), -self.random.choice([0.0, 10.0, 60.0]))
        which = Purge(states=states, ended_before=before)
        limit, after = self.random.choice([1, 2, 10]), self.random.choice([0, 0, 3])
        purged = await self.ask(lambda store: store.purge(which, actor="janitor", limit=limit, after=after))
        assert purged is not None
        self.answers["purged"] += purged.count
        await self.purge_what_is_named(before)

    async def purge_what_is_named(self, before: Instant) -> None:
        """Tasks and keys that are there, and some that are not."""
        names: list[tuple[Named, str]] = [("task", self.random.choice(IDS)), ("convoy", self.random.choice(KEYS))]
        names += [("convoy", tail.key) for tail in self.memory.tails.values() if tail.key not in KEYS][:1]
        at_rest = [tail.key for tail in self.memory.tails.values() if not self._has_open(tail.convoy_no)]
        names += [("convoy", self.random.choice(at_rest))] if at_rest else []
        for what, name in names:
            meant = PurgeNamed(what=what, name=name, ended_before=self.random.choice((before, self.clock())))
            for limit in (None, self.random.choice([1, 100])):
                answer = await self.ask(lambda s, m=meant, n=limit: s.purge_named(m, actor="janitor", limit=n))
                assert answer is not None
            self.answers[f"purged {what}"] += answer.is_done and not answer.kept
            self.answers[f"kept {what}"] += bool(answer.kept)

    def _has_open(self, convoy_no: int) -> bool:
        members = self.memory.members(convoy_no)
        return self.memory.convoy(convoy_no).parked_at is not None or any(task.ended_at is None for task in members)

    def choose_by_clock(self, choices: Sequence[T]) -> T:
        """Choose one by the clock, so that what else is drawn stays the same."""
        return choices[self.clock() // 7 % len(choices)]

    def _choose_versions(self) -> dict[str, tuple[str, ...]]:
        whole = ("2@blue", "1@blue", "2", "1", "1@green", "2@green")
        return self.choose_by_clock([{}, {"fulfil": whole}, {"fulfil": whole}, {"fulfil": ("2",), "other": whole}])

    def _draw_snoozed(self) -> dict[str, Any]:
        snoozed = (None, True, False)[self.clock() % 3]  # by the clock: what else is drawn stays the same
        return {} if snoozed is None else {"snoozed": snoozed, "snoozed_at": self.clock()}

    async def look_through_a_filter(self) -> None:
        which = TaskFilter(
            state=self.random.choice([None, *TaskState]),
            workflow=self.random.choice([None, "other"]),
            agent=self.random.choice([None, "payments", ""]),
            step=self.random.choice([None, "charge", "sleep"]),
            submitted_before=self.random.choice([None, later(self.clock(), -3.0)]),
            code=self.random.choice([None, "declined", ""]),
            text=self.random.choice([None, "DECL", "%"]),
            paused=self.random.choice([None, True, False]),
            tags=self.choose_by_clock(
                [None, None, {"tenant": "acme"}, {"region": "eu", "tenant": "acme"}, {"region": "eu"}]
            ),
            code_version=self.choose_by_clock([None, None, "1", "@blue", "2@blue", "@"]),
            **self._draw_snoozed(),
        )
        after, limit = self.random.randrange(5), self.random.choice([1, 100])
        await self.ask(lambda store: store.list_tasks(which, after=after, limit=limit))

    # --- what must be equal
    async def compare_the_whole(self) -> None:
        await self.ask(lambda store: store.counts())
        await self.ask(lambda store: store.due(("fulfil",), ("payments", "shipping")))
        await self.ask(lambda store: store.due(("fulfil",), (), "", self._choose_versions()))
        await self.ask(lambda store: store.load_overdue(10, 1.0))
        await self.ask(lambda store: store.alerts(open_only=False))
        await self.ask(lambda store: store.list_workflow_pauses())
        await self.ask(count_sorted)

    async def compare_all_rows(self) -> None:
        rows = await self.ask(lambda store: _everything(store))
        assert rows is not None
        assert await disagreements(self.memory) == []
        for loaded in rows[0]:
            # The turn of a task in a convoy comes with a command to another, and so does the end of a wait for a workflow.
            is_told = loaded.task.task_no in self.told_tasks and not has_not_begun(loaded.task)
            if is_told and loaded.task.convoy_no is None:
                assert _unlinked(loaded.task) == _unlinked(self.told_tasks[loaded.task.task_no])
            for one in loaded.steps:
                assert one == self.told_steps[one.step_no]


async def _answer(question: Callable[[StateStore], Awaitable[T]], store: StateStore) -> T | type[Exception]:
    try:
        return await question(store)
    except (ArrieroError, AssertionError, KeyError) as error:
        return type(error)


def _difference(memory: Any, sqlite: Any, where: str = "answer") -> str:
    """Where two answers first differ."""
    if isinstance(memory, msgspec.Struct) and type(memory) is type(sqlite):
        parts = [(name, getattr(memory, name), getattr(sqlite, name)) for name in memory.__struct_fields__]
    elif isinstance(memory, list | tuple) and isinstance(sqlite, list | tuple) and len(memory) == len(sqlite):
        parts = [(str(number), one, other) for number, (one, other) in enumerate(zip(memory, sqlite, strict=True))]
    else:
        return f"{where}: memory says {memory!r}, sqlite says {sqlite!r}"
    name, one, other = next(part for part in parts if part[1] != part[2])
    return _difference(one, other, f"{where}.{name}")


async def _everything(store: StateStore) -> list[Any]:
    tasks = await store.list_tasks(limit=1_000)
    loaded = [await store.load(task.task_no) for task in tasks]
    history = [row async for row in store.history()]
    ended = await store.load_ended([task.task_no for task in tasks])
    held = [(await store.load_held(number, 99), await store.load_news(number)) for number in PROCESSES]
    statuses = [await store.load_statuses(queue, 1_000) for queue in QUEUES]
    signals = [await store.list_signals(task.task_no) for task in tasks]
    convoys = [*await store.list_convoys(limit=1_000), *await store.list_convoys("idle", limit=1_000)]
    lines = [await store.find_convoy(one.convoy.key, 1_000) for one in convoys]
    survey = [
        await store.survey(),
        await store.survey_attempts(),
        await store.retrying_steps([t.task_no for t in tasks]),
    ]
    assert await broken_links(store) == []
    assert read_export(encode_export(history, store.store_id)) == history
    return [loaded, history, ended, held, statuses, survey, await store.known_processes(), convoys, lines, signals]


def _unlinked(task: TaskRow) -> TaskRow:
    """Requests taken and refused reports add links to a history and change nothing else of its task."""
    return msgspec.structs.replace(task, link=0, head="")


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
async def test_sqlite_answers_as_memory_does_and_the_rows_are_what_was_answered(seed: int, tmp_path: Path) -> None:
    await SqliteAgainstMemory(seed, tmp_path / "store.db").run()


async def test_the_drawn_commands_meet_every_answer(tmp_path: Path) -> None:
    """Or the test above would prove little."""
    answers: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for seed in range(1000, 1030):
        run = SqliteAgainstMemory(seed, tmp_path / f"{seed}.db")
        await run.run()
        answers += run.answers
        told = [event for row in run.memory.log for event in msgspec.json.decode(row.events)]
        events.update(event["type"] for event in told)
        events.update("taken over" for event in told if event["type"] == "step.dispatched" and "agent" in event)
        events.update(PUT_OFF.get(event.get("why"), "") for event in told if event["type"] == "task.released")
    expected = {
        "Applied",
        "AttemptApplied",
        "SignalKept",
        "another_value",
        "undone",
        "ended",
        "answered",
        "undecided",
        "Claimed",
        "Taken",
        "stale",
        "duplicate",
        "late",
        "moved_on",
        "old_term",
        "unknown",
    }
    expected |= {"not_allowed", "came_first", "purged", "dropped", "processed", "compensated", "held"}
    expected |= {f"{verb} of {state}" for verb, state in VERB_RULES}
    expected |= {f"workflow {state}" for state in PauseState} | {"workflow not paused", "workflow_paused"}
    expected |= {
        "another body",
        "another workflow",
        "another convoy",
        "another sequence",
        "another end mark",
        "purged task",
        "purged convoy",
        "kept task",
        "kept convoy",
        "ConvoyApplied",
    }
    assert expected <= set(answers), expected - set(answers)
    wanted = {
        "step.recorded",
        "step.failed",
        "recover.applied",
        "step.expired",
        "step.lost",
        "step.withdrawn",
        "task.lost",
    }
    wanted |= {"timer.fired", "undo.begun", "undo.planned", "compensation.dispatched", "compensation.recorded"}
    wanted |= {"task.expired", "lease.lost", "step.parked", "step.set_back", "step.edited", "step.answered"}
    wanted |= {"signal.sent", "signal.taken", "signal.set_aside", "signal.answered"}
    wanted |= {"attempt.extended", "attempt.checkpoint", "taken over"}
    wanted |= {"workflow.paused", "workflow.resumed", "put off", "let begin"}
    wanted |= {"convoy.action", "convoy.opened", "convoy.closed", "convoy.moved", "convoy.skipped"}
    wanted |= {"status.published", "alert.opened", "alert.closed", "tasks.purged", "convoys.purged", "statuses.dropped"}
    assert wanted <= set(events), wanted - set(events)
