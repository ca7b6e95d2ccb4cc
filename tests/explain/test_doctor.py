"""What needs care: each threshold from both sides, and each finding with what to do."""

from typing import Any

import msgspec
import pytest
from core_rows import NOW

from arriero.core.alert_groups import summarize_groups
from arriero.explain.doctor import (
    DISK_BYTES_MIN,
    DISK_BYTES_PLENTY,
    LOG_BYTES_MAX,
    NETWORK_FILE_SYSTEMS,
    SQLITE_FIXED,
    UNREAD_SECONDS_MAX,
    UNTOLD_SECONDS_MAX,
    WAIT_SECONDS_MAX,
    Finding,
    Versions,
    diagnose_file,
    diagnose_store,
    needs_care,
    sort_findings,
)
from arriero.inspection.facts import FileFacts
from arriero.model import AlertRow, Instant, TaskState, later
from arriero.model.processes import ProcessAbout, ProcessRow
from arriero.store.contract import QueueSurvey, Survey

FINE_VERSIONS = Versions("1.0", "3.13.1", SQLITE_FIXED)
TERABYTE = 10**12


def file(**changes: Any) -> FileFacts:
    """A file with which all is well."""
    facts = FileFacts(
        path="/var/lib/shop.db",
        schema=2,
        schema_known=2,
        journal_mode="wal",
        synchronous="full",
        file_system="ext4",
        mount="/",
        disk_free=TERABYTE // 2,
        disk_total=TERABYTE,
        file_bytes=10**6,
        log_bytes=10**6,
        was_checked=True,
    )
    return msgspec.structs.replace(facts, **changes)


def process(number: int = 1, **changes: Any) -> ProcessRow:
    """A process alive that plays all roles."""
    about = ProcessAbout(
        app="shop",
        roles=changes.pop("roles", ("agents", "scheduler", "supervisor")),
        workflows=changes.pop("workflows", ("fulfil",)),
        steps=changes.pop("steps", (("payments", "charge"),)),
    )
    row = ProcessRow(number, f"host-{number}-abcdef012345", later(NOW, 3), False, msgspec.json.encode(about).decode())
    return msgspec.structs.replace(row, **changes)


def survey(**changes: Any) -> Survey:
    """A store with which all is well: tasks under way, and a process that plays all roles."""
    found = Survey(
        now=NOW,
        states={state: 0 for state in TaskState} | {TaskState.PROCESSING: 3, TaskState.PROCESSED: 1_000},
        paused=0,
        probation=0,
        waiting=(0, None),
        workflows=(),
        steps=(),
        not_undoable=(),
        processes=(process(),),
        queues=(),
        untold=(0, None),
        rows={"tasks": 1_003, "history": 20_000, "statuses": 0},
    )
    return msgspec.structs.replace(found, **changes)


def ago(seconds: float) -> Instant:
    return later(NOW, -seconds)


def of(findings: list[Finding], about: str) -> Finding:
    (found,) = [finding for finding in findings if finding.about == about]
    return found


def level(findings: list[Finding], about: str) -> str:
    return of(findings, about).level


def test_where_all_is_well_nothing_needs_care_and_everything_is_told() -> None:
    findings = [*diagnose_file(file(), FINE_VERSIONS), *diagnose_store(survey())]
    assert {finding.level for finding in findings} == {"fine"}
    assert not needs_care(findings)
    about = {finding.about for finding in findings}
    assert {"versions", "journal", "file_system", "disk", "size", "damage", "processes", "held", "rows"} <= about


# --- the machine and the file
def test_the_defect_of_sqlite_is_information_and_only_before_the_release_that_mended_it() -> None:
    old = diagnose_file(file(), Versions("1.0", "3.13.1", (3, 51, 2)))
    assert level(old, "sqlite") == "information"
    assert "arriero works around it" in of(old, "sqlite").says
    for version in (SQLITE_FIXED, (3, 52, 0), (4, 0, 0)):
        assert "sqlite" not in [finding.about for finding in diagnose_file(file(), Versions("1", "3", version))]


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"schema": 1}, "schema"),
        ({"journal_mode": "delete"}, "journal"),
        ({"synchronous": "normal"}, "journal"),
        ({"synchronous": "off"}, "journal"),
        ({"file_system": "nfs4"}, "file_system"),
        ({"file_system": "tmpfs"}, "file_system"),
        ({"disk_free": DISK_BYTES_MIN - 1, "disk_total": DISK_BYTES_MIN}, "disk"),
        ({"disk_free": DISK_BYTES_PLENTY - 1}, "disk"),
        ({"log_bytes": LOG_BYTES_MAX + 1}, "size"),
        ({"log_bytes": 94 * 10**6, "log_readers": ("4711 (sqlite3)",)}, "size"),
    ],
)
def test_what_is_wrong_with_the_file_or_its_place_needs_care_and_says_what_to_do(
    changes: dict[str, Any], about: str
) -> None:
    findings = diagnose_file(file(**changes), FINE_VERSIONS)
    assert [finding.about for finding in findings if finding.level == "care"] == [about]
    assert of(findings, about).remedy


def test_a_reader_that_keeps_the_log_from_being_emptied_is_named_with_the_next_command() -> None:
    changes = {"log_bytes": 94 * 10**6, "log_readers": ("4711 (sqlite3)", "4712 (python3)")}
    found = of(diagnose_file(file(**changes), FINE_VERSIONS), "size")
    assert "94" in found.says
    assert "process 4711 (sqlite3), 4712 (python3) keeps a read transaction open" in found.says
    assert "ps -fp 4711,4712" in found.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"disk_free": DISK_BYTES_PLENTY},
        {"disk_free": DISK_BYTES_MIN, "disk_total": DISK_BYTES_MIN * 10},
        {"log_bytes": LOG_BYTES_MAX},
        {"synchronous": "extra"},
        {"synchronous": ""},
    ],
)
def test_up_to_its_limits_all_is_well(changes: dict[str, Any]) -> None:
    assert not needs_care(diagnose_file(file(**changes), FINE_VERSIONS))


def test_every_network_file_system_is_refused() -> None:
    for kind in NETWORK_FILE_SYSTEMS:
        assert level(diagnose_file(file(file_system=kind), FINE_VERSIONS), "file_system") == "care"


def test_what_cannot_be_told_is_information() -> None:
    findings = diagnose_file(file(file_system="", mount="", was_checked=False), FINE_VERSIONS)
    assert (level(findings, "file_system"), level(findings, "damage")) == ("information", "information")
    assert not needs_care(findings)


# --- processes
def test_without_any_process_tasks_under_way_need_care_and_an_idle_store_does_not() -> None:
    assert level(diagnose_store(survey(processes=())), "processes") == "care"
    idle = survey(processes=(), states={TaskState.PROCESSED: 5})
    assert level(diagnose_store(idle), "processes") == "information"
    untold = survey(processes=(), states={TaskState.PROCESSED: 5}, untold=(1, NOW))
    assert level(diagnose_store(untold), "processes") == "care"


@pytest.mark.parametrize("missing", ["scheduler", "agents", "supervisor"])
def test_a_role_that_no_process_plays_is_named(missing: str) -> None:
    others = tuple(role for role in ("scheduler", "agents", "supervisor") if role != missing)
    findings = diagnose_store(survey(processes=(process(roles=others),)))
    assert [finding.about for finding in findings if finding.level == "care"] == ["roles"]
    assert of(findings, "roles").remedy.endswith(f"--roles {missing}")


def test_roles_may_be_spread_over_processes() -> None:
    spread = tuple(process(n, roles=(role,)) for n, role in enumerate(("scheduler", "agents", "supervisor"), start=1))
    assert not needs_care(diagnose_store(survey(processes=spread)))


def test_a_process_whose_lease_ran_out_is_told_and_counts_for_nothing() -> None:
    findings = diagnose_store(survey(processes=(process(), process(2, lease_until=ago(60)))))
    lapsed, alive = [finding for finding in findings if finding.about == "processes"]
    assert (lapsed.level, alive.level) == ("information", "fine")
    assert "process 2 (host-2-abcd)" in lapsed.says
    assert alive.says.startswith("1 process is alive: process 1 (host-1-abcd) (App shop; workflows fulfil;")
    alone = diagnose_store(survey(processes=(process(lease_until=NOW),)))
    assert needs_care(alone)


def test_due_code_that_nobody_alive_has_is_named() -> None:
    due: dict[str, Any] = {
        "workflows": (("", "fulfil"), ("", "gone")),
        "steps": (("", "payments", "charge"), ("", "payments", "refund"), ("", "stock", "charge")),
    }
    says = [finding.says for finding in diagnose_store(survey(**due)) if finding.about == "code"]
    assert says == [
        "tasks of workflow gone are due, and no process alive has its code",
        "step refund of Agent payments is asked for, and no process alive hosts it",
        "step charge of Agent stock is asked for, and no process alive hosts it",
    ]
    without_processes = diagnose_store(survey(**due, processes=()))  # then that is what is said
    assert "code" not in [finding.about for finding in without_processes]


def test_what_waits_for_another_app_is_named_with_the_app_that_has_such_code_and_what_to_do() -> None:
    due = {"workflows": (("web", "fulfil"),), "steps": (("web", "payments", "charge"),)}
    found = [finding for finding in diagnose_store(survey(**due)) if finding.about == "code"]
    assert [finding.says for finding in found] == [
        "tasks of workflow fulfil of App 'web' are due, and no process alive of App 'web' has its code",
        "step charge of Agent payments is asked for by App 'web', and no process alive of App 'web' hosts it",
    ]
    for finding in found:
        assert finding.remedy == (
            "start App 'web' here; App 'shop' has code of that name: if they are one system, give both one name,"
            " App('shop', ...), and run `arriero store assign --from web --to shop --reason WHY`"
        )
    ours = {"workflows": (("shop", "fulfil"),), "steps": (("shop", "payments", "charge"),)}
    assert "code" not in [finding.about for finding in diagnose_store(survey(**ours))]


# --- tasks
def test_a_task_that_waits_too_long_needs_care() -> None:
    assert level(diagnose_store(survey(waiting=(7, ago(WAIT_SECONDS_MAX + 1)))), "waiting") == "care"
    in_time = of(diagnose_store(survey(waiting=(7, ago(WAIT_SECONDS_MAX)))), "waiting")
    assert (in_time.level, in_time.says.startswith("7 ")) == ("fine", True)


def alert(**changes: Any) -> AlertRow:
    row = AlertRow(1, 1, "order-7", "fulfil", 1, "step", "declined", "", "", ago(120), None, (), 3, NOW, "webhook: 500")
    return msgspec.structs.replace(row, **changes)


def test_tasks_in_error_are_counted_and_the_first_one_is_named() -> None:
    states = {TaskState.HELD: 2, TaskState.PROCESSED: 1}
    found = of(diagnose_store(survey(states=states), oldest_alert=alert()), "held")
    assert found.level == "care"
    assert "2 tasks are held, waiting for an operator; the first is order-7 since" in found.says
    assert "(2 min ago): declined" in found.says
    assert level(diagnose_store(survey(states=states)), "held") == "care"


def test_held_tasks_are_grouped_by_cause_with_one_command_for_all_of_them() -> None:
    rows = [
        alert(no=no, task_id=f"order-{no}", cause="replay", code="replay", opened_at=ago(120 - no)) for no in range(9)
    ]
    groups = summarize_groups([*rows, alert(no=10)])
    states = {TaskState.HELD: 10}
    findings = diagnose_store(survey(states=states), oldest_alert=alert(), causes=groups)
    says = [finding for finding in findings if finding.about == "held"]
    assert [finding.level for finding in says] == ["care", "information", "information"]
    assert says[1].says.startswith("9 tasks of fulfil held by one cause: replay [replay]; the first since")
    assert "for all of them: arriero task resubmit --state held --workflow fulfil --code replay" in says[1].remedy
    assert says[2].says.startswith("1 task of fulfil held by one cause: step; since")
    many = summarize_groups([alert(no=no, code=f"code-{no}") for no in range(30)])
    of_many = diagnose_store(survey(states={TaskState.HELD: 60}), oldest_alert=alert(), causes=many)
    last = [finding for finding in of_many if finding.about == "held"][-1]
    assert last.says.startswith("tasks are held for ")
    alone = diagnose_store(survey(states={TaskState.HELD: 1}), oldest_alert=alert(), causes=summarize_groups([alert()]))
    assert [finding.level for finding in alone if finding.about == "held"] == ["care"]


def test_alerts_that_are_not_told_in_time_need_care_and_tell_why() -> None:
    late = survey(untold=(2, ago(UNTOLD_SECONDS_MAX + 1)))
    found = of(diagnose_store(late, untold_alert=alert()), "alerts")
    assert (found.level, "delivery fails: webhook: 500" in found.says) == ("care", True)
    assert level(diagnose_store(survey(untold=(2, ago(UNTOLD_SECONDS_MAX)))), "alerts") == "fine"


def test_probation_needs_care_and_a_pause_is_information() -> None:
    findings = diagnose_store(survey(probation=1, paused=2))
    assert (level(findings, "probation"), level(findings, "paused")) == ("care", "information")
    assert of(findings, "paused").says == "2 tasks are paused by operators"


def test_a_reply_queue_that_nobody_reads_for_a_day_needs_care() -> None:
    queues = (
        QueueSurvey("read", 3, ago(UNREAD_SECONDS_MAX)),
        QueueSurvey("forgotten", 1_200, ago(UNREAD_SECONDS_MAX + 1)),
    )
    levels = {f.says.split()[2]: f.level for f in diagnose_store(survey(queues=queues)) if f.about == "replies"}
    assert levels == {"read": "fine", "forgotten": "care"}


def test_steps_without_compensation_are_information_of_the_app_when_there_is_one() -> None:
    recorded = survey(not_undoable=(("stock", "mail"),))
    assert "tasks that have not ended well have steps" in of(diagnose_store(recorded), "not_undoable").says
    of_app = of(diagnose_store(recorded, not_undoable=[("stock", "label")]), "not_undoable")
    assert (of_app.level, "label of Agent stock" in of_app.says, "mail" in of_app.says) == ("information", True, False)
    assert "not_undoable" not in [f.about for f in diagnose_store(recorded, not_undoable=[])]


def test_what_needs_care_stands_first_and_the_rest_keeps_its_order() -> None:
    findings = [
        Finding("fine", "a", ""),
        Finding("care", "b", ""),
        Finding("information", "c", ""),
        Finding("care", "d", ""),
    ]
    assert [finding.about for finding in sort_findings(findings)] == ["b", "d", "c", "a"]
