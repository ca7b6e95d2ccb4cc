"""How many requests a caller may send: the bucket as a rule, and at the gate."""

import pytest
from server_world import TOKENS, open_server

from arriero.server.caller_limits import BUCKETS_MAX, Bucket, RateLimits, RatePolicy, take_one
from arriero.server.problems import Problem
from arriero.server.routing import GateLimits

POLICY = RatePolicy(per_second=2, burst=3)


@pytest.mark.parametrize(
    ("bucket", "now", "left", "wait"),
    [
        (None, 0.0, 2, 0),
        (Bucket(1, 0), 0.0, 0, 0),
        (Bucket(0, 0), 0.0, 0, 0.5),
        (Bucket(0, 0), 0.25, 0.5, 0.25),
        (Bucket(0, 0), 0.5, 0, 0),
        (Bucket(0, 0), 100.0, 2, 0),
        (Bucket(0.5, 10), 5.0, 0.5, 0.25),
    ],
)
def test_a_bucket_fills_up_to_its_burst_and_gives_one_for_each_request(
    bucket: Bucket | None, now: float, left: float, wait: float
) -> None:
    after, seconds = take_one(bucket, POLICY, now)
    assert (after.left, after.at, seconds) == (left, now, wait)


def test_callers_have_buckets_of_their_own_and_the_table_is_bounded() -> None:
    limits = RateLimits(RatePolicy(1, 1), lambda: 0.0)
    limits.admit("first")
    with pytest.raises(Problem):
        limits.admit("first")
    for number in range(BUCKETS_MAX):
        limits.admit(str(number))
    assert len(limits._buckets) == BUCKETS_MAX


async def test_a_caller_who_sends_too_much_is_told_when_to_come_again() -> None:
    limits = GateLimits(rate=RatePolicy(0.5, 2))
    async with open_server(limits=limits) as world:
        answers = [await world.http.get("/v1/tokens") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].json()["code"] == "too-many-requests"
        assert int(answers[-1].headers["retry-after"]) >= 2
        other = await world.http.get("/v1/tasks/none", headers={"Authorization": f"Bearer {TOKENS['read']}"})
        assert other.status_code == 404
        assert (await world.http.get("/v1/health/live")).status_code == 200
