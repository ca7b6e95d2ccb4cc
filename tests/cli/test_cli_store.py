"""`arriero store`: what is done to a store as a whole."""

from pathlib import Path

from cli_calls import Call, json_lines


def test_a_new_epoch_is_told_with_its_number_and_who_wanted_it_and_why(sold: Call, shop: Path) -> None:
    done = sold("store", "new-epoch", "--by", "maria", "--reason", "restored from\nMonday's backup")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (f"store sqlite:///{shop}/arriero.db is in epoch 2; processes that run on it begin again\n")
    (line,) = json_lines(sold("store", "new-epoch", "--reason", "again", "--json").stdout)
    assert line == {"store": f"sqlite:///{shop}/arriero.db", "epoch": 3}
    told = [event for event in sold("history").stdout.splitlines() if "epoch.opened" in event]
    assert len(told) == 2
    assert told[0].endswith("reason=restored from Monday's backup by operator maria")
    (shop / "h.jsonl").write_text(sold("export").stdout)
    assert sold("check", "h.jsonl").exit_code == 0


def test_a_store_that_is_not_there_is_refused_and_not_made(call: Call, shop: Path) -> None:
    refused = call("store", "new-epoch", "--reason", "restored")
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "there is no such file" in refused.stderr
    assert not list(shop.glob("*.db*"))


def test_nobody_opens_an_epoch_without_saying_why(sold: Call) -> None:
    assert "--reason" in sold("store", "new-epoch").stderr
    refused = sold("store", "new-epoch", "--reason", " ")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "a verb says who asks for it and why" in refused.stderr
    assert "epoch.opened" not in sold("history").stdout
