"""Shares of a claim: each workflow with a weight, and all others together."""

from arriero.core.capacity import build_shares
from arriero.model.commands import ClaimShare


def test_without_a_declared_share_a_claim_is_not_divided() -> None:
    assert build_shares({"fulfil": None, "report": None}, ["fulfil"]) == ()


def test_workflows_without_a_share_have_one_together_and_what_is_held_counts() -> None:
    weights = {"fulfil": 3, "report": None, "step:charge": None, "mail": 2}
    held = ["fulfil", "report", "report", "undone elsewhere"]
    assert build_shares(weights, held) == (
        ClaimShare(("fulfil",), 3, 1),
        ClaimShare(("mail",), 2, 0),
        ClaimShare(("report", "step:charge"), 1, 3),
    )
