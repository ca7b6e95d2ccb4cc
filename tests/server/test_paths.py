"""Ids in paths: what a caller has encoded separates nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_world import open_server

from arriero.server.parameters import keep_encoded, read_id, write_id


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_id_comes_back_out_of_a_path_as_it_was(name: str) -> None:
    path = keep_encoded(f"/v1/tasks/{write_id(name)}:cancel".encode())
    start, _, verb = path.rpartition(":")
    assert verb == "cancel"
    assert start.count("/") == 3
    assert read_id(start.rpartition("/")[2]) == name


@pytest.mark.parametrize("name", ["a/history", "..x", "x:cancel", "%2F", "<b>", "\u202eabc", "a b?c#d"])
async def test_a_route_reads_an_id_with_signs_that_separate(name: str) -> None:
    async with open_server() as world:
        answer = await world.http.get(f"/v1/tasks/{write_id(name)}")
        assert answer.status_code == 404
        assert repr(name) in answer.json()["detail"]
        assert answer.json()["code"] == "task-unknown"
