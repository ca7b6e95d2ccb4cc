"""What may go wrong in one run: a subset and strengths drawn from the seed."""

from collections import Counter
from random import Random
from typing import Any

import msgspec

KINDS = (
    "crash",
    "freeze",
    "effect_then_error",
    "late_report",
    "late_answer",
    "duplicate_report",
    "lost_wakeup",
    "remote",
    "outage",
    "agent_operator",
    "operator",
    "snooze",
    "adjust",
    "workflow_operator",
    "reader",
    "purge",
    "submitter_crash",
    "submitter_freeze",
    "ledger_discarded",
    "key_operator",
    "missing_number",
    "repeated_number",
    "error_before_effect",
    "slow_commit",
    "slow_answer",
    "unexpected",
    "damage",
    "shared_damage",
    "extend",
    "checkpoint",
    "publish",
    "leader_pause",
    "leader_crash",
    "renewal_lost",
    "renewal_late",
    "clock_drift",
    "store_restart",
    "take_lost",
    "program_death",
    "program_late",
    "request_released",
    "program_slow",
    "gateway_deployed",
    "short_poll",
    "answer_lost",
    "other_instance",
    "report_lost",
    "report_repeated",
    "report_elsewhere",
    "capability_forged",
    "capability_of_another_task",
    "capability_outdated",
    "report_replayed",
)


ELECTION = {
    "leader_pause": 0.5,
    "leader_crash": 0.2,
    "renewal_lost": 0.3,
    "renewal_late": 0.4,
    "clock_drift": 0.9,
    "store_restart": 0.6,
}
# Of programs that carry out remote steps, and of those who report in their place.
PROGRAMS = {
    "take_lost": 0.2,
    "program_death": 0.12,
    "program_late": 0.12,
    "request_released": 0.15,
    "report_lost": 0.3,
    "report_repeated": 0.3,
    "report_elsewhere": 0.8,
    "capability_forged": 0.9,
    "capability_of_another_task": 0.9,
    "capability_outdated": 0.9,
    "report_replayed": 0.9,
}


# Of long attempts, deploys of gateways, programs that poll without waiting, and programs that arriero calls.
DEPLOYS = {
    "program_slow": 0.4,
    "gateway_deployed": 0.5,
    "short_poll": 0.5,
    "answer_lost": 0.6,
    "other_instance": 0.6,
}


PUBLISHING_SHARE = 0.15  # of worlds: their steps publish


class Faults(msgspec.Struct):
    """Probabilities per occasion; 0: that fault does not happen in this run."""

    crash: float = 0.0
    freeze: float = 0.0
    effect_then_error: float = 0.0
    late_report: float = 0.0
    late_answer: float = 0.0
    duplicate_report: float = 0.0
    lost_wakeup: float = 0.0
    remote: float = 0.0
    outage: float = 0.0
    agent_operator: float = 0.0
    operator: float = 0.0
    snooze: float = 0.0
    adjust: float = 0.0
    workflow_operator: float = 0.0
    reader: float = 0.0
    purge: float = 0.0
    submitter_crash: float = 0.0
    submitter_freeze: float = 0.0
    ledger_discarded: float = 0.0
    key_operator: float = 0.0
    missing_number: float = 0.0
    repeated_number: float = 0.0
    error_before_effect: float = 0.0
    slow_commit: float = 0.0
    slow_answer: float = 0.0
    unexpected: float = 0.0
    damage: float = 0.0
    shared_damage: float = 0.0
    extend: float = 0.0
    checkpoint: float = 0.0
    publish: float = 0.0
    leader_pause: float = 0.0
    leader_crash: float = 0.0
    renewal_lost: float = 0.0
    renewal_late: float = 0.0
    clock_drift: float = 0.0
    store_restart: float = 0.0
    take_lost: float = 0.0
    program_death: float = 0.0
    program_late: float = 0.0
    request_released: float = 0.0
    program_slow: float = 0.0
    gateway_deployed: float = 0.0
    short_poll: float = 0.0
    answer_lost: float = 0.0
    other_instance: float = 0.0
    report_lost: float = 0.0
    report_repeated: float = 0.0
    report_elsewhere: float = 0.0
    capability_forged: float = 0.0
    capability_of_another_task: float = 0.0
    capability_outdated: float = 0.0
    report_replayed: float = 0.0
    active: bool = True
    fired: Any = msgspec.field(default_factory=Counter)

    def add_people(self, random: Random, snooze_random: Random, workflow_random: Random, limits_random: Random) -> None:
        """Draw what operators do, each kind left out now and then.

        They snooze tasks, and pause workflows, in three runs of ten, and change limits in a quarter of them.
        """
        if workflow_random.random() < 0.3:
            self.workflow_operator = workflow_random.uniform(0.3, 1.0)
        if limits_random.random() < 0.25:
            self.adjust = limits_random.uniform(0.3, 1.0)
        if snooze_random.random() < 0.3:
            self.snooze = snooze_random.uniform(0.3, 1.0)
        for kind, strength in (("operator", 0.9), ("reader", 0.2), ("purge", 0.6)):
            if random.random() < 0.7:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_store(self, random: Random) -> None:
        """Draw what a store does that is slow or refuses, each kind left out now and then."""
        for kind, strength in (("error_before_effect", 0.02), ("slow_commit", 0.1), ("slow_answer", 0.1)):
            if random.random() < 0.5:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_late_answers(self, random: Random) -> None:
        """Draw whether calls answer after all that were cancelled."""
        if random.random() < 0.6:
            self.late_answer = random.uniform(0.3, 1.0)

    def add_asking(self, random: Random) -> None:
        """Draw whether attempts ask for more time and keep checkpoints. Neither is a fault; both meet all faults."""
        for kind, strength in (("extend", 0.4), ("checkpoint", 0.6)):
            if random.random() < 0.6:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_publishing(self, random: Random) -> None:
        """Draw whether steps publish. It is not a fault; it meets all faults."""
        if random.random() < PUBLISHING_SHARE:
            self.publish = 0.8

    def add_ledgers(self, random: Random) -> None:
        """Draw what happens to ledgers and their submitters, each kind left out now and then."""
        for kind, strength in (("submitter_crash", 0.8), ("submitter_freeze", 0.5), ("ledger_discarded", 0.6)):
            if random.random() < 0.7:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_keys(self, random: Random) -> None:
        """Draw what goes wrong in convoys, each kind left out now and then."""
        for kind, strength in (("key_operator", 0.9), ("missing_number", 0.4), ("repeated_number", 0.4)):
            if random.random() < 0.7:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_outages(self, random: Random) -> None:
        """Draw whether the remote service goes down for a while, and whether operators act on its Agents."""
        if random.random() < 0.5:
            self.outage = random.uniform(0.3, 1.0)
        if random.random() < 0.4:
            self.agent_operator = random.uniform(0.2, 0.8)

    def add_unexpected(self, random: Random) -> None:
        """Draw whether calls of the store raise what nobody expects of them."""
        if random.random() < 0.4:
            self.unexpected = 0.02 * random.uniform(0.3, 1.0)

    def add_election(self, random: Random) -> None:
        """Draw what happens to leaders, to their leases and to clocks, each kind left out now and then."""
        for kind, strength in ELECTION.items():
            if random.random() < 0.7:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_programs(self, random: Random) -> None:
        """Draw what goes wrong with programs outside of arriero, each kind left out now and then."""
        for kind, strength in PROGRAMS.items():
            if random.random() < 0.7:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def add_deploys(self, random: Random) -> None:
        """Draw what happens around programs beside that, each kind left out now and then."""
        for kind, strength in DEPLOYS.items():
            if random.random() < 0.6:
                setattr(self, kind, strength * random.uniform(0.3, 1.0))

    def strikes(self, kind: str, random: Random, *, share: float = 1.0) -> bool:
        """Whether the fault happens on this occasion; ``share`` makes it rarer where there are many occasions."""
        probability: float = getattr(self, kind) * share
        if not self.active or not probability or random.random() >= probability:
            return False
        self.fired[kind] += 1
        return True


def drawn(random: Random) -> Faults:
    """Faults of one seed: each kind is left out half of the time, so that every mix occurs."""
    strengths = {
        "crash": 0.25,
        "freeze": 0.3,
        "effect_then_error": 0.05,
        "late_report": 0.3,
        "duplicate_report": 0.3,
        "lost_wakeup": 0.5,
        "remote": 0.4,
    }
    chosen = {
        kind: strength * random.uniform(0.3, 1.0) for kind, strength in strengths.items() if random.random() < 0.6
    }
    return msgspec.convert(chosen, Faults)
