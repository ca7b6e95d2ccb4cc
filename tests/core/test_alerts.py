"""What is told of an alert: its id, its event, its line in a log, its signature, and when it is told again."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.alert_groups import (
    TASK_IDS_MAX,
    build_group_alert,
    find_group,
    format_next_command,
    format_selection,
    group_rows,
    summarize_alerts,
    summarize_groups,
)
from arriero.core.alerts import (
    build_alert,
    compute_alert_delay,
    encode_alert,
    format_alert_line,
    parse_signing_key,
    sign_message,
)
from arriero.errors import InvalidInput
from arriero.model import AlertRow, Instant
from arriero.model.failures import CapturedError, CapturedTraceback, Frame

KEY = bytes(range(24))
LINE = Frame("shop/orders.py", 42, "fulfil", "total = prices['nix']")
OPEN = AlertRow(
    no=7,
    task_no=3,
    task_id="order-1",
    workflow="orders",
    incarnation=1,
    cause="step",
    reason="charge: card declined",
    step="charge",
    code="declined",
    opened_at=Instant(1_767_225_600_000_000),
    closed_at=None,
    told=(),
    attempts=1,
    next_at=Instant(1_767_225_630_000_000),
    error="",
)
CLOSED = msgspec.structs.replace(OPEN, closed_at=Instant(1_767_229_200_500_000))


def test_the_signature_is_that_of_the_reference_example() -> None:
    key = parse_signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = sign_message(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_whatever_is_changed_the_signature_is_another() -> None:
    made = [
        sign_message(KEY, "a-1-open", 100, b"{}"),
        sign_message(bytes(24), "a-1-open", 100, b"{}"),
        sign_message(KEY, "a-2-open", 100, b"{}"),
        sign_message(KEY, "a-1-open", 101, b"{}"),
        sign_message(KEY, "a-1-open", 100, b"{ }"),
    ]
    assert len(set(made)) == len(made)


@given(st.binary(min_size=24, max_size=64))
def test_a_secret_is_read_back_to_its_key(key: bytes) -> None:
    assert parse_signing_key("whsec_" + base64.b64encode(key).decode()) == key


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!!",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSé",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidInput, match="24 to 64 random bytes") as refusal:
        parse_signing_key(secret)
    assert "MfKQ9r8G" not in str(refusal.value)
    assert "AAAA" not in str(refusal.value)


def test_an_alert_keeps_its_id_over_retries_and_has_another_one_when_it_is_closed() -> None:
    retried = msgspec.structs.replace(OPEN, attempts=9, told=("log",), error="refused")
    assert build_alert(OPEN, "store") == build_alert(retried, "store")
    assert build_alert(OPEN, "store").id == "store-7-1767225600000000-open"
    assert build_alert(CLOSED, "store").id == "store-7-1767225600000000-closed"


def test_an_alert_of_another_store_has_another_id() -> None:
    assert build_alert(OPEN, "store").id != build_alert(OPEN, "other").id


def test_an_alert_that_got_a_number_once_more_after_a_backup_was_restored_has_another_id() -> None:
    again = msgspec.structs.replace(OPEN, opened_at=Instant(OPEN.opened_at + 1))
    assert build_alert(OPEN, "store").id != build_alert(again, "store").id


def test_an_alert_tells_in_which_state_the_row_is_and_since_when() -> None:
    opened, closed = build_alert(OPEN, "store"), build_alert(CLOSED, "store")
    assert (opened.state, opened.opened_at, opened.closed_at) == ("open", datetime(2026, 1, 1, tzinfo=UTC), None)
    assert (closed.state, closed.closed_at) == ("closed", datetime(2026, 1, 1, 1, 0, 0, 500_000, UTC))


def test_the_event_of_an_open_alert_says_everything() -> None:
    assert msgspec.json.decode(encode_alert(build_alert(OPEN, "store"))) == {
        "type": "task.alert.opened",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {
            "id": "store-7-1767225600000000-open",
            "task_id": "order-1",
            "workflow": "orders",
            "incarnation": 1,
            "cause": "step",
            "reason": "charge: card declined",
            "step": "charge",
            "code": "declined",
            "state": "open",
            "opened_at": "2026-01-01T00:00:00Z",
            "closed_at": None,
            "at": "",
            "trace": [],
            "count": 1,
            "last_opened_at": None,
            "task_ids": [],
            "select": "",
            "tags": {},
            "parent": "",
        },
    }


def test_the_event_of_a_closed_alert_is_of_the_instant_of_closing() -> None:
    event = msgspec.json.decode(encode_alert(build_alert(CLOSED, "store")))
    assert (event["type"], event["timestamp"]) == ("task.alert.closed", "2026-01-01T01:00:00.500000Z")
    assert event["data"]["closed_at"] == event["timestamp"]


def test_a_line_names_the_task_and_all_that_is_known_of_the_cause() -> None:
    assert format_alert_line(build_alert(OPEN, "store")) == (
        "task order-1 of orders needs an operator: charge: card declined (cause step, step charge, code declined,"
        " alert store-7-1767225600000000-open); see: arriero task explain order-1"
    )


def test_a_line_leaves_out_a_step_and_a_code_that_there_are_not() -> None:
    line = format_alert_line(build_alert(msgspec.structs.replace(OPEN, step="", code="", cause="bug"), "store"))
    assert "(cause bug, alert " in line


def test_the_line_of_a_closed_alert_cannot_be_taken_for_an_open_one() -> None:
    assert "needs no operator any longer" in format_alert_line(build_alert(CLOSED, "store"))


@given(st.text(), st.text())
def test_a_line_is_one_line_whatever_the_texts_hold(reason: str, task_id: str) -> None:
    line = format_alert_line(build_alert(msgspec.structs.replace(OPEN, reason=reason, task_id=task_id), "store"))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


jitters = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10_000), jitters)
def test_an_alert_waits_between_half_of_the_first_delay_and_the_longest_one(attempts: int, jitter: float) -> None:
    assert 2.5 <= compute_alert_delay(attempts, seconds=5, seconds_max=3_600, jitter=jitter) <= 3_600


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 2.5), (2, 5), (3, 10), (10, 1_280), (11, 1_800), (500, 1_800)])
def test_the_delay_doubles_up_to_the_longest_one(attempts: int, seconds: float) -> None:
    assert compute_alert_delay(attempts, seconds=5, seconds_max=3_600, jitter=0) == seconds


def test_an_alert_of_code_that_failed_names_the_line_in_its_event_and_in_the_log() -> None:
    trace = (CapturedError("KeyError", (LINE,)),)
    row = msgspec.structs.replace(OPEN, trace=msgspec.json.encode(trace).decode())
    alert = build_alert(row, "store")
    at = "shop/orders.py:42, in fulfil: `total = prices['nix']`"
    assert f"charge: card declined, at {at} (cause step" in format_alert_line(alert)
    told = msgspec.json.decode(encode_alert(alert))["data"]
    assert told["at"] == at
    assert msgspec.convert(told["trace"], CapturedTraceback) == trace


@pytest.mark.parametrize("kept", ["no JSON", "7", '[{"error":7}]'])
def test_an_alert_whose_trace_cannot_be_read_is_told_all_the_same(kept: str) -> None:
    alert = build_alert(msgspec.structs.replace(OPEN, trace=kept), "store")
    assert (alert.reason, alert.at, alert.trace) == ("charge: card declined", "", ())


# --- alerts of one cause
def _held(no: int, **changes: Any) -> AlertRow:
    fields: dict[str, Any] = {"no": no, "task_id": f"order-{no}", "cause": "replay", "step": "", "code": "replay"}
    return msgspec.structs.replace(OPEN, **(fields | {"opened_at": Instant(OPEN.opened_at + no * 1_000_000)} | changes))


def test_the_line_of_a_group_says_how_many_and_the_one_command_for_all() -> None:
    line = format_alert_line(build_group_alert([_held(no) for no in range(1, 181)], "store"))
    assert line.startswith(
        "180 tasks of orders need an operator: charge: card declined (cause replay, code replay, first order-1"
    )
    assert line.endswith(
        "; see: arriero task list --state held --workflow orders --code replay"
        "; for all of them: arriero task resubmit --state held --workflow orders --code replay"
    )


def test_a_group_s_event_has_its_count_its_first_and_last_and_names_some_tasks() -> None:
    data = msgspec.json.decode(encode_alert(build_group_alert([_held(no) for no in range(1, 181)], "store")))["data"]
    assert (data["count"], data["task_id"], len(data["task_ids"])) == (180, "order-1", TASK_IDS_MAX)
    assert (data["opened_at"], data["last_opened_at"]) == ("2026-01-01T00:00:01Z", "2026-01-01T00:03:00Z")


@pytest.mark.parametrize(
    ("changes", "selected"),
    [
        ({"cause": "step", "step": "charge", "code": ""}, "--state held --workflow orders --step charge"),
        (
            {"cause": "undo", "step": "charge", "code": "undo_failed"},
            "--state held --workflow orders --step charge --code undo_failed",
        ),
        ({"cause": "replay", "step": "charge"}, "--state held --workflow orders --code replay"),
        ({"workflow": "two words"}, "--state held --workflow 'two words' --code replay"),
    ],
)
def test_a_selection_names_what_the_filters_of_the_command_line_know(changes: dict[str, Any], selected: str) -> None:
    assert format_selection(_held(1, **changes)) == selected


def test_what_each_task_is_told_alone_for_is_in_no_group() -> None:
    for cause in ("breaker", "schedule", "unreadable", "gap"):
        assert find_group(_held(1, cause=cause)) is None
    assert [len(group) for group in group_rows([_held(1, cause="gap"), _held(2, cause="gap")])] == [1, 1]


def test_open_alerts_are_summarized_by_cause_the_largest_group_first() -> None:
    rows = [_held(1, cause="step", step="charge"), *(_held(no) for no in range(2, 5)), _held(5, cause="gap")]
    first, second = summarize_groups(rows)
    assert (first.cause, first.count, first.first_task, first.select) == (
        "replay",
        3,
        "order-2",
        "--state held --workflow orders --code replay",
    )
    assert (second.cause, second.count) == ("step", 1)
    assert (first.first_at, first.last_at) == (rows[1].opened_at, rows[3].opened_at)


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"cause": "breaker", "task_id": "", "step": "bank card[eu]"}, "arriero agent show 'bank card'"),
        ({"cause": "schedule", "task_id": "", "step": "nightly"}, "arriero schedule show nightly"),
        ({"cause": "unreadable", "task_id": "", "step": "lease nightly"}, "arriero doctor"),
        ({"cause": "unreadable"}, "arriero task explain order-1"),
        ({"cause": "gap"}, "arriero task explain order-1"),
    ],
    ids=lambda value: value["cause"] if isinstance(value, dict) else None,
)
def test_an_alert_whose_remedy_is_its_own_is_a_cause_alone_with_a_command_of_its_own(
    changes: dict[str, Any], command: str
) -> None:
    rows = [msgspec.structs.replace(OPEN, no=number, **changes) for number in (1, 2)]
    causes = summarize_alerts(rows)
    assert [(one.count, one.select, format_next_command(one)) for one in causes] == [(1, "", command)] * 2
    assert summarize_groups(rows) == []
