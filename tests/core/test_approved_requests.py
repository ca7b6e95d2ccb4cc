"""What counts as the same request of a second person."""

import pytest
from msgspec.structs import replace

from arriero.core.approvals import encode_request
from arriero.model import Instant, Verb
from arriero.model.commands import Operate

OPERATE = Operate(actor="operator", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="why")
# Fields that two persons who ask for the same may fill otherwise, or that are compared by themselves.
NOT_ASKED = {"actor", "verb", "task_no", "incarnation", "by", "reason", "store_id", "persons", "approved_since"}
ASKED = {
    "step": 2,
    "arguments": "{}",
    "result": "1",
    "did_not_happen": True,
    "within": 60.0,
    "limits": '{"attempts":5}',
    "tags": '{"a":"b"}',
    "to": "2@blue",
}


def test_each_field_of_a_verb_is_asked_or_named_here() -> None:
    assert ASKED.keys() | NOT_ASKED == set(Operate.__struct_fields__)


@pytest.mark.parametrize("field", ASKED)
def test_two_persons_ask_for_the_same_only_if_all_that_the_verb_carries_is_the_same(field: str) -> None:
    assert encode_request(replace(OPERATE, **{field: ASKED[field]})) != encode_request(OPERATE)


def test_a_result_of_null_is_another_request_than_none() -> None:
    assert encode_request(replace(OPERATE, result="null")) != encode_request(OPERATE)


def test_two_results_with_one_short_hash_are_two_requests() -> None:
    # BLAKE2b of eight bytes is the same for both: c. 2**32 tries found them.
    one, other = ('"refund 0000010 ref ab30a3e4776f4e4a"', '"refund 9999999 ref be5ecb08ee6e754c"')
    assert encode_request(replace(OPERATE, result=one)) != encode_request(replace(OPERATE, result=other))


def test_the_next_person_reads_what_was_approved() -> None:
    asked = replace(OPERATE, step=2, result='{"pence":5}')
    assert encode_request(asked) == '{"step":2,"result":{"pence":5}}'


def test_who_asks_and_why_makes_no_difference() -> None:
    other = replace(OPERATE, by="ben", reason="other words", persons=2, approved_since=Instant(5))
    assert encode_request(other) == encode_request(OPERATE)
