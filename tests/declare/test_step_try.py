"""What a try has sent, and which claims that refutes."""

from arriero import Permanent, Transient
from arriero.declare.attempt import StepTry
from arriero.testing import attempt


def test_a_request_counts_until_it_is_taken_back() -> None:
    step_try = StepTry(attempt())
    first, second = step_try.begin_request("POST /a"), step_try.begin_request("POST /b")
    assert step_try.find_request() == "POST /a"
    step_try.withdraw_request(first)
    step_try.withdraw_request(first)
    assert step_try.find_request() == "POST /b"
    step_try.withdraw_request(second)
    assert step_try.find_request() is None


def test_only_a_noted_claim_is_refuted_and_only_by_a_request_that_counts() -> None:
    step_try = StepTry(attempt())
    claim, own = Transient("busy"), Permanent("declined")
    step_try.note_not_happened(claim)
    assert not step_try.is_refuted(claim)
    token = step_try.begin_request("POST /a")
    assert step_try.is_refuted(claim)
    assert not step_try.is_refuted(own)
    step_try.withdraw_request(token)
    assert not step_try.is_refuted(claim)
