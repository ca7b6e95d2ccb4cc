"""What counts as the same request of a second person."""

import pytest
from msgspec.structs import replace

from arriero.commands import Operate
from arriero.core.approvals import hash_asked
from arriero.model import Instant, Verb

OPERATE = Operate(actor="operator", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="why")
# Fields that two persons who ask for the same may fill otherwise, or that are compared by themselves.
NOT_ASKED = {"actor", "verb", "task_no", "incarnation", "by", "reason", "store_id", "persons", "approved_since"}
ASKED = {"step": 2, "arguments": "{}", "result": "1", "did_not_happen": True, "within": 60.0}


def test_each_field_of_a_verb_is_asked_or_named_here() -> None:
    assert ASKED.keys() | NOT_ASKED == set(Operate.__struct_fields__)


@pytest.mark.parametrize("field", ASKED)
def test_two_persons_ask_for_the_same_only_if_all_that_the_verb_carries_is_the_same(field: str) -> None:
    assert hash_asked(replace(OPERATE, **{field: ASKED[field]})) != hash_asked(OPERATE)


def test_who_asks_and_why_makes_no_difference() -> None:
    other = replace(OPERATE, by="ben", reason="other words", persons=2, approved_since=Instant(5))
    assert hash_asked(other) == hash_asked(OPERATE)
