"""The ledger: every line becomes an order or is set aside with the reason."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from examples.orders.generated import write_ledger
from examples.orders.ledger import Kind, Ledger, LedgerError, parse_ledger, read_ledger

HEADER = "invoice_no,invoice_date,customer_id,country,quantity,unit_price"
REAL_LEDGER = Path(__file__).parents[2].parent / "shared" / "data" / "online-retail-2010-12_2011-06.csv.gz"


def read_lines(*lines: str) -> Ledger:
    return parse_ledger([HEADER, *lines])


def reason_of(line: str) -> str:
    ledger = read_lines(line)
    assert ledger.orders == ()
    (set_aside,) = ledger.set_aside
    assert set_aside.line == 2
    return set_aside.reason


def pence_of(quantity: int, price: str) -> int:
    (order,) = read_lines(f"1,2026-01-05T08:00:00,7,Spain,{quantity},{price}").orders
    return order.pence


def test_a_purchase_a_cancellation_and_a_correction_are_told_apart() -> None:
    ledger = read_lines(
        "1,2026-01-05T08:00:00,7,Spain,4,2.50",
        "C2,2026-01-05T08:01:00,7,Spain,-4,2.50",
        "3,2026-01-05T08:02:00,(blank),Spain,-9,0",
    )
    assert [(order.kind, order.pieces, order.pence) for order in ledger.orders] == [
        (Kind.PURCHASE, 4, 1000),
        (Kind.CANCELLATION, -4, -1000),
        (Kind.CORRECTION, -9, 0),
    ]
    assert ledger.set_aside == ()


def test_a_customer_that_the_shop_did_not_know_stays_unknown() -> None:
    ledger = read_lines("1,2026-01-05T08:00:00,(blank),Spain,4,2.50", "2,2026-01-05T08:00:00,7,Spain,4,2.50")
    assert [order.customer_id for order in ledger.orders] == [None, "7"]


@pytest.mark.parametrize(
    ("quantity", "price", "pence"),
    [
        (1, "0.005", 0),
        (1, "0.015", 2),
        (1, "0.025", 2),
        (-1, "0.025", -2),
        (3, "0.0050", 2),
        (83, "4.8533", 40282),
        (74215, "1.0401", 7719102),
        (5, "0", 0),
        (99_999_999, "0.0001", 1_000_000),
    ],
)
def test_an_amount_is_rounded_once_half_to_even(quantity: int, price: str, pence: int) -> None:
    assert pence_of(quantity, price) == pence


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,2026-01-05T08:00:00,7,Spain,four,2.50", "quantity is not a whole number: 'four'"),
        ("1,2026-01-05T08:00:00,7,Spain,4.0,2.50", "quantity is not a whole number: '4.0'"),
        ("1,2026-01-05T08:00:00,7,Spain,4_0,2.50", "quantity is not a whole number: '4_0'"),
        ("1,2026-01-05T08:00:00,7,Spain,\uff14,2.50", "quantity is not a whole number: '\uff14'"),
        ("1,2026-01-05T08:00:00,7,Spain,9999999999999,2.50", "quantity has more than 12 characters: '9999999999999'"),
        ("1,2026-01-05T08:00:00,7,Spain,0,2.50", "quantity is zero: nothing was bought, brought back or corrected"),
        ("1,2026-01-05T08:00:00,7,Spain,4,NaN", "unit_price is not a number: 'NaN'"),
        ("1,2026-01-05T08:00:00,7,Spain,4,1e3", "unit_price is not a number: '1e3'"),
        ("1,2026-01-05T08:00:00,7,Spain,4,-2.50", "unit_price is negative: -2.50"),
        ("1,2026-01-05T08:00:00,7,Spain,99999999999,99999999999999", "the amount is larger than can be booked"),
        ("1,yesterday,7,Spain,4,2.50", "invoice_date is not a date and time: 'yesterday'"),
        (
            "1,2026-01-05T08:00:00Z,7,Spain,4,2.50",
            "invoice_date bears a zone, the ledger's times are local: '2026-01-05T08:00:00Z'",
        ),
        ("C1,2026-01-05T08:00:00,7,Spain,4,2.50", "a cancellation must bring pieces back, its quantity is 4"),
        (",2026-01-05T08:00:00,7,Spain,4,2.50", "invoice_no is empty"),
        ("1,2026-01-05T08:00:00,7,Spain,4,", "unit_price is empty"),
        ("1,2026-01-05T08:00:00,7,Spain,4", "too few fields: 5 where the header names 6"),
        ("1,2026-01-05T08:00:00,7,Spain,4,2,50", "too many fields: 7 where the header names 6"),
        ('1,2026-01-05T08:00:00,7,"Spain,4,2.50', "not a line of CSV: unexpected end of data"),
        ("1\x00,2026-01-05T08:00:00,7,Spain,4,2.50", "invoice_no holds a control character"),
        (f"{'1' * 201},2026-01-05T08:00:00,7,Spain,4,2.50", "invoice_no is longer than 200 characters"),
    ],
)
def test_a_line_that_cannot_be_handled_is_set_aside_with_the_reason(line: str, reason: str) -> None:
    assert reason_of(line) == reason


def test_an_unclosed_quote_spoils_its_own_line_only() -> None:
    ledger = read_lines('1,2026-01-05T08:00:00,7,"Spain,4,2.50', "2,2026-01-05T08:00:00,7,Spain,4,2.50")
    assert [order.id for order in ledger.orders] == ["2"]
    assert [line.line for line in ledger.set_aside] == [2]


def test_what_is_set_aside_keeps_its_invoice_number() -> None:
    (line,) = read_lines("536365,2026-01-05T08:00:00,7,Spain,0,2.50").set_aside
    assert line.invoice_no == "536365"


def test_an_invoice_in_several_lines_is_handled_in_parts() -> None:
    ledger = read_lines(
        "1,2026-01-05T08:00:00,(blank),Spain,4,2.50",
        "2,2026-01-05T08:00:00,7,Spain,1,1",
        "1,2026-01-05T08:01:00,(blank),Spain,5,1",
        "1,2026-01-05T08:02:00,(blank),Spain,6,1",
    )
    assert [order.id for order in ledger.orders] == ["1", "2", "1-2", "1-3"]
    assert ledger.set_aside == ()
    assert len({order.customer_id for order in ledger.orders if order.id != "2"}) == 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ("1,2026-01-05T08:00:00,7,Spain,4,2.50", "the same as line 2"),
        ("1,2026-01-05T08:00:00,7,Spain,5,2.50", "invoice 1 has another content for the same time on line 2"),
        ("1,2026-01-05T08:01:00,8,Spain,4,2.50", "invoice 1 is another customer's, country's or kind's on line 2"),
        ("1,2026-01-05T08:01:00,7,Spain,-4,2.50", "invoice 1 is another customer's, country's or kind's on line 2"),
    ],
)
def test_a_repeated_or_contradicted_invoice_is_set_aside(second: str, reason: str) -> None:
    ledger = read_lines("1,2026-01-05T08:00:00,7,Spain,4,2.50", second)
    assert [order.id for order in ledger.orders] == ["1"]
    assert [(line.line, line.reason) for line in ledger.set_aside] == [(3, reason)]


def test_an_id_that_a_part_has_taken_is_not_given_twice() -> None:
    ledger = read_lines(
        "1,2026-01-05T08:00:00,7,Spain,4,2.50",
        "1,2026-01-05T08:01:00,7,Spain,4,2.50",
        "1-2,2026-01-05T08:02:00,7,Spain,4,2.50",
    )
    assert [order.id for order in ledger.orders] == ["1", "1-2"]
    assert [line.reason for line in ledger.set_aside] == ["the id 1-2 is taken by line 3"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "invoice_no,invoice_date,customer_id,country,quantity",
        f"{HEADER},quantity",
        HEADER.replace(",", ";"),
    ],
)
def test_a_header_without_the_columns_refuses_the_file(header: str) -> None:
    with pytest.raises(LedgerError, match="must name these columns once"):
        parse_ledger([header])


def test_columns_may_come_in_another_order_and_with_company() -> None:
    ledger = parse_ledger(
        [
            "unit_price,quantity,country,customer_id,invoice_date,invoice_no,note",
            "2.50,4,Spain,7,2026-01-05T08:00:00,1,gift",
        ]
    )
    assert [(order.id, order.pence) for order in ledger.orders] == [("1", 1000)]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_may_be_plain_or_gzipped(tmp_path: Path, zipped: bool) -> None:
    content = f"\ufeff{HEADER}\r\n1,2026-01-05T08:00:00,7,Spain,4,2.50\r\n\r\n".encode()
    path = tmp_path / "ledger"
    path.write_bytes(gzip.compress(content) if zipped else content)
    ledger = read_ledger(path)
    assert [(order.id, order.pence) for order in ledger.orders] == [("1", 1000)]
    assert ledger.set_aside == ()


def test_a_line_that_is_not_utf_8_spoils_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    lines = [HEADER.encode(), b"1,2026-01-05T08:00:00,7,Espa\xf1a,4,2.50", b"2,2026-01-05T08:00:00,7,Spain,4,2.50"]
    path.write_bytes(b"\n".join(lines))
    ledger = read_ledger(path)
    assert [order.id for order in ledger.orders] == ["2"]
    assert [(line.line, line.reason) for line in ledger.set_aside] == [(2, "country is not UTF-8")]


def test_a_truncated_or_missing_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.csv.gz"
    with pytest.raises(LedgerError, match="cannot be read"):
        read_ledger(path)
    path.write_bytes(gzip.compress(f"{HEADER}\n".encode() * 1000)[:-12])
    with pytest.raises(LedgerError, match="cannot be read"):
        read_ledger(path)


def test_a_generated_ledger_is_decided_by_its_seed_and_wholly_usable(tmp_path: Path) -> None:
    first, again, other = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    write_ledger(first, 500, seed=1)
    write_ledger(again, 500, seed=1)
    write_ledger(other, 500, seed=2)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    ledger = read_ledger(first)
    assert len(ledger.orders) == 500
    assert ledger.set_aside == ()
    assert {order.kind for order in ledger.orders} == set(Kind)
    assert any(order.customer_id is None for order in ledger.orders)
    assert any(order.kind is Kind.PURCHASE and order.pence == 0 for order in ledger.orders)


@pytest.mark.skipif(not REAL_LEDGER.exists(), reason="the real ledger is not beside the repository")
def test_a_real_shops_ledger_is_handled_line_by_line_to_the_penny() -> None:
    ledger = read_ledger(REAL_LEDGER)
    assert ledger.set_aside == ()
    assert len(ledger.orders) == len({order.id for order in ledger.orders}) == 12_830
    assert Counter(order.kind for order in ledger.orders) == {
        Kind.PURCHASE: 10_065,
        Kind.CANCELLATION: 2_007,
        Kind.CORRECTION: 758,
    }
    assert sum(order.pence for order in ledger.orders) == 683_890_636
    assert sum(order.pence for order in ledger.orders if order.kind is Kind.CANCELLATION) == -44_444_318
    assert sum(order.kind is Kind.PURCHASE and order.pence == 0 for order in ledger.orders) >= 372
