"""Simulated worlds: clean as the code stands, convicted when one rule is broken, repeatable from the seed alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.simulation.faults import KINDS, Faults
from lab.simulation.keys import HAPPENING
from lab.simulation.seeds import run_seed
from lab.simulation.world import World

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "arriero"
BREAKAGES = sorted((HERE / "breakages").glob("*.patch"))
SEEDS = 75  # make torture runs twenty thousand
CHUNK = 75
SEEDS_TO_CONVICT = 400  # four times and more what the slowest breakage needed when it was added
# The first seed that convicts a breakage, where many before it do not. To begin there saves time and shows the same: if the
# code has changed so that another seed is the first, the seeds that follow find it.
BEGIN_AT = {
    "another_app_takes": 9,
    "callback_accepted_twice": 7,
    "canary_without_guard": 3,
    "capability_without_fence": 5,
    "capability_without_signature": 5,
    "caught_up_though_ahead": 24,
    "changed_limit_is_lost": 227,
    "child_begins_unasked": 53,
    "child_end_before_commit": 20,
    "collected_before_the_time": 32,
    "compensate_past_pivot": 69,
    "continued_with_a_taken_signal": 29,
    "copy_undone_by_fork": 29,
    "deploy_drops_what_was_due": 10,
    "doubt_of_a_try_is_forgotten": 92,
    "doubt_stops_the_rest": 17,
    "edited_in_doubt": 11,
    "edited_keeps_its_checkpoint": 77,
    "expired_come_back_at_once": 11,
    "extended_without_fence": 284,
    "gap_jumped_in_silence": 4,
    "handed_over_to_another_app": 7,
    "head_released_without_fence": 16,
    "interchange_without_shared_key": 11,
    "late_answer_counts": 14,
    "late_is_handled_in_silence": 13,
    "leader_without_term": 3,
    "ledger_batch_written_twice": 406,
    "limit_slot_not_given_back": 15,
    "lost_canary_is_kept": 18,
    "message_joins_a_batch_that_began": 32,
    "nothing_ages": 146,
    "opened_ledger_discarded": 110,
    "order_by_number": 1,
    "outage_spends_attempts": 3,
    "parent_undone_while_child_runs": 6,
    "place_lost_untold": 19,
    "poison_is_never_charged": 7,
    "poll_does_not_wait_for_its_take": 5,
    "probe_without_guard": 27,
    "program_loses_its_attempt": 67,
    "published_older_over_newer": 325,
    "purge_forgets_readers": 1,
    "question_alert_stays_open": 2,
    "question_answered_late": 2,
    "ran_ahead_with_old_state": 33,
    "rate_forgets_tries": 4,
    "recover_without_still_expired": 93,
    "renewal_of_any_holder": 18,
    "replay_at_once": 26,
    "resubmit_forgets_doubt": 86,
    "returned_is_forgotten": 45,
    "run_anew_under_old_keys": 65,
    "schedule_keyed_by_tick_count": 10,
    "shared_row_stops_others": 10,
    "signal_kept_twice": 12,
    "signal_lost_before_the_commit": 98,
    "silent_attempt_is_forgotten": 110,
    "submitter_dies_with_its_ledger": 143,
    "time_wins_over_a_signal": 12,
    "trust_from_the_answer": 3,
    "two_holders_of_one_key": 13,
    "undo_ends_in_doubt": 17,
    "undone_elsewhere": 180,
    "waiting_is_due": 16,
}
# Each found a fault of arriero once: in whole worlds, and in worlds without people.
KNOWN_WHOLE_SEEDS = (1724, 2954, 3052)
KNOWN_SEEDS = (45, 74, 85, 93, 99, 104, 149, 266, 270, 558, 1099, 3725)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_seed_is_clean(first: int) -> None:
    fired: set[str] = set()
    happened: set[str] = set()
    for seed in range(first, first + CHUNK):
        result = run_seed(seed)
        fired |= result.fired.keys()
        happened |= result.happened.keys()
        assert not result.violations, (
            f"{result.violations[:5]}; repeat it with: python -m lab.simulation --seeds {seed}"
        )
    assert fired == set(KINDS), "a fault that never fires shows nothing"
    assert happened == HAPPENING, "neither does what never happens to a key"


def test_in_some_seeds_a_key_is_purged() -> None:
    for seed in range(130, 230):
        world = World(seed, tasks=4, keys=True)
        assert not world.run().violations
        if any(b'"convoys.purged"' in bytes(row.events) for row in world.store.log if row.task_no == 0):
            return
    raise AssertionError("no key was purged, so nothing was shown about it")


@pytest.mark.parametrize("seed", KNOWN_WHOLE_SEEDS)
def test_a_whole_world_that_once_found_a_fault_stays_clean(seed: int) -> None:
    assert not run_seed(seed).violations


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_a_seed_that_once_found_a_fault_stays_clean(seed: int) -> None:
    assert not World(seed, people=False).run().violations


def test_without_faults_every_task_ends_without_a_retry() -> None:
    for seed in range(20):
        world = World(seed, faults=Faults())
        assert not world.run().violations
        assert all(
            step.attempt == 1
            for of_task in world.store.steps.values()
            for step in of_task.values()
            if step.failure is None
        )


def test_without_faults_every_key_handles_its_tasks_in_their_order() -> None:
    for seed in range(20):
        world = World(seed, faults=Faults(), keys=True)
        assert not world.run().violations
        assert {convoy.shown for convoy in world.store.convoys.values()} == {"idle"}
        assert {task.turn for task in world.store.tasks.values() if task.turn is not None} <= {"ended", "set_aside"}


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    """Also under another hash seed: no decision hangs on the order of a set."""
    seeds = range(0, 1_500, 300)
    program = f"from lab.simulation.seeds import run_seed; print(*(run_seed(seed).trace for seed in {seeds}))"
    here = [run_seed(seed).trace for seed in seeds]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert other.stdout.split() == here


def test_two_seeds_at_a_time_show_what_one_after_the_other_shows() -> None:
    def list_counts(*options: str) -> str:
        command = [sys.executable, "-m", "lab.simulation", "--seeds", "0:3", "--twice", *options]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.partition(" s\n")[2]

    assert list_counts("--processes", "2") == list_counts() != ""


@pytest.mark.parametrize("patch", BREAKAGES, ids=lambda path: path.stem)
def test_a_broken_rule_is_convicted(patch: Path, tmp_path: Path) -> None:
    # With the bytecode that is there: only patched modules are compiled again. Files that are being written are left out.
    shutil.copytree(SOURCE, tmp_path / "arriero", ignore=shutil.ignore_patterns("*.pyc.*"))
    subprocess.run(["git", "apply", "-p1", str(patch)], cwd=tmp_path, check=True)
    first = BEGIN_AT.get(patch.stem, 0)
    seeds = f"{first}:{first + SEEDS_TO_CONVICT}"
    command = [sys.executable, "-m", "lab.simulation", "--seeds", seeds, "--stop-at-first"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1, f"{patch.stem} went unnoticed: {told.stdout}{told.stderr}"
    assert "repeat it with: python -m lab.simulation --seeds" in told.stdout


def test_the_breakages_that_must_be_convicted_are_there() -> None:
    wanted = {"report_without_fence", "advance_without_revision", "undo_without_in_doubt", "replay_at_once"}
    wanted |= {"undo_ends_in_doubt", "doubt_stops_the_rest"}
    wanted |= {"two_holders_of_one_key", "head_released_without_fence", "order_by_number", "gap_jumped_in_silence"}
    wanted |= {"late_is_handled_in_silence", "parked_goes_on", "place_lost_untold", "returned_is_forgotten"}
    wanted |= {"handed_over_with_old_state", "ran_ahead_with_old_state", "waiting_is_due", "caught_up_though_ahead"}
    wanted |= {"snoozed_task_wakes", "snoozed_request_begins", "tags_of_the_present"}
    wanted |= {"changed_limit_is_lost"}
    wanted |= {"silent_attempt_is_forgotten", "late_answer_counts", "edit_is_not_kept"}
    wanted |= {"leader_without_term", "renewal_of_any_holder", "trust_from_the_answer"}
    wanted |= {"expired_come_back_at_once", "interchange_without_shared_key", "undone_elsewhere"}
    wanted |= {"another_app_claims", "another_app_takes", "handed_over_to_another_app"}
    wanted |= {"another_version_claims"}
    wanted |= {
        "nothing_ages",
        "canary_without_guard",
        "probe_without_guard",
        "outage_spends_attempts",
        "lost_canary_is_kept",
    }
    wanted |= {"compensate_past_pivot", "edited_in_doubt", "resubmit_forgets_doubt", "purge_forgets_readers"}
    wanted |= {"capability_without_signature", "capability_without_fence"}
    wanted |= {"doubt_of_a_try_is_forgotten", "program_loses_its_attempt", "poll_does_not_wait_for_its_take"}
    wanted |= {"shared_row_stops_others", "obsolete_rows_stay", "published_older_over_newer"}
    wanted |= {"submitter_dies_with_its_ledger", "opened_ledger_discarded", "ledger_batch_written_twice"}
    wanted |= {"signal_taken_twice", "signal_lost_before_the_commit", "time_wins_over_a_signal", "signal_kept_twice"}
    wanted |= {"callback_accepted_twice"}
    wanted |= {"question_answered_late", "question_alert_stays_open"}
    wanted |= {"child_begins_unasked", "child_end_before_commit", "parent_undone_while_child_runs"}
    wanted |= {"patch_not_recorded", "collected_before_the_time", "copy_undone_by_fork"}
    wanted |= {"patch_not_recorded", "collected_before_the_time", "continued_with_a_taken_signal"}
    wanted |= {"message_joins_a_batch_that_began"}
    found = {patch.stem for patch in BREAKAGES}
    assert wanted <= found
    assert BEGIN_AT.keys() <= found
