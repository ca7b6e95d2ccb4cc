"""The example of approvals balances its books, and finds out a shop that verifies no signature.

The whole of it, with more orders and kills, runs in `make examples`.
"""

import pytest

from examples.approval import run, world

pytestmark = pytest.mark.acceptance


@pytest.fixture(autouse=True)
def few_orders_and_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "EACH", 1)
    monkeypatch.setattr(world, "KILLS", ())
    monkeypatch.setenv("ARRIERO_STORE", "")  # so that what the example sets does not stay


def test_every_order_is_paid_and_delivered_or_undone(capsys: pytest.CaptureFixture[str]) -> None:
    code = run.main([])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    assert printed.out.splitlines()[-1].startswith("as promised: ")


def test_a_shop_that_verifies_no_signature_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--accept-forged"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert "WRONG: 4 forged webhooks were answered 200" in errors
    assert any("(webhook forged): cents at the bank: 0, not " in error for error in errors), errors
