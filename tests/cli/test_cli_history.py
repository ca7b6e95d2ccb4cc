"""`arriero history`, `arriero export` and `arriero check`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cli_calls import Call, json_lines

from arriero.audit.export import encode_export, read_export
from arriero.cli import output
from arriero.events.base import START, link_hash
from arriero.model import HistoryRow


def test_history_of_one_task_is_a_story_with_one_line_per_event(sold: Call) -> None:
    head, blank, section, *lines = sold("history", "unrefundable").stdout.splitlines()
    assert head == "task unrefundable (number 3) of workflow fulfil, now held"
    assert (blank, section.split(",")[0]) == ("", "incarnation 1")
    told = [line.partition(" s  ")[2] for line in lines]
    assert told[0] == "submitted to workflow fulfil of App 'shopfront' with priority 5"
    assert "step reserve has failed permanently after 1 attempt: permanent: out of stock [out_of_stock]" in told
    assert "the undo is planned: charge" in told
    assert told[-1] == "an alert is opened (cause: undo)"
    rows = json_lines(sold("history", "unrefundable", "--json").stdout)
    assert len(lines) == sum(len(row["events"]) for row in rows)
    assert lines[0].endswith("+0.000 s  submitted to workflow fulfil of App 'shopfront' with priority 5")
    assert not any("  [" in line for line in lines)  # no tag that nobody explains


def test_each_incarnation_is_a_section_and_says_who_opened_it_and_why(sold: Call) -> None:
    acted = sold("task", "resubmit", "unrefundable", "--by", "ana", "--reason", "the bank\x1b[2J is back")
    assert acted.exit_code == 0, acted.stderr
    text = sold("history", "unrefundable").stdout
    assert [line.split(",")[0] for line in text.splitlines() if line.startswith("incarnation")] == [
        "incarnation 1",
        "incarnation 2",
    ]
    assert 'ana resubmitted it (held before, now compensating): "the bank\\x1b[2J is back"' in text
    assert "\x1b" not in text


def test_the_story_shortens_processes_and_leaves_out_what_only_machines_need(sold: Call) -> None:
    story, raw = sold("history", "processed").stdout, sold("history", "processed", "--raw").stdout
    for noise in ("fence=", "key=", "arguments="):
        assert noise in raw
        assert noise not in story
    actors = {line.split()[-1] for line in raw.splitlines() if line.split()[-1] != "client"}
    assert actors
    assert not any(actor in story for actor in actors)
    assert all(actor[:-8] in story for actor in actors)


def test_history_of_one_task_is_raw_when_asked_for(sold: Call) -> None:
    lines = sold("history", "compensated", "--raw").stdout.splitlines()
    types = [line.split()[2] for line in lines]
    assert types[0] == "task.submitted"
    assert types[-1] == "task.terminal"
    assert "undo.planned" in types
    assert {line.split()[1] for line in lines} == {"compensated"}
    assert [line for line in sold("history").stdout.splitlines() if line.split()[1] == "compensated"] == lines


def test_history_of_all_holds_the_stores_own_events(sold: Call) -> None:
    lines = sold("history").stdout.splitlines()
    assert [line for line in lines if line.split()[1:3] == ["-", "process.started"]]


def test_history_as_json_is_the_export_without_its_trailer(sold: Call) -> None:
    *rows, trailer = sold("export").stdout_bytes.splitlines(keepends=True)
    assert sold("history", "--json").stdout_bytes == b"".join(rows)
    assert b"trailer" in trailer
    of_one = [row for row in map(json.loads, rows) if row["task"] == "step"]
    assert json_lines(sold("history", "step", "--json").stdout) == of_one


def test_an_export_is_clean(sold: Call, shop: Path) -> None:
    (shop / "history").write_bytes(sold("export").stdout_bytes)
    checked = sold("check", "history")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.startswith("clean: ")
    verdict = json.loads(sold("check", "history", "--json").stdout)
    assert (verdict["clean"], verdict["tasks"]) == (True, 6)


def test_standard_input_is_checked_too(sold: Call) -> None:
    assert sold("check", "-", given=sold("export").stdout_bytes).exit_code == 0


def test_an_export_with_a_line_removed_is_convicted_with_its_number(sold: Call) -> None:
    lines = sold("export").stdout_bytes.splitlines(keepends=True)
    for at in range(len(lines)):
        checked = sold("check", "-", given=b"".join(lines[:at] + lines[at + 1 :]))
        assert checked.exit_code == 1
        assert checked.stdout.startswith("not clean: the export is mutilated at line ")
    verdict = sold("check", "-", "--json", given=b"".join(lines[:-1]))
    assert verdict.exit_code == 1
    assert json.loads(verdict.stdout)["mutilated"].startswith(
        f"the export is mutilated at line {len(lines)}: the trailer is missing"
    )


def test_a_violation_is_named_and_exits_with_1(sold: Call) -> None:
    rows: list[HistoryRow] = []
    heads: dict[int, str] = {}
    for row in read_export(sold("export").stdout_bytes.splitlines()):  # the chain is right again, the story is not
        events = bytes(row.events).decode().replace('"task.terminal"', '"task.submitted"')
        head = link_hash(heads.get(row.task_no, START), row.task_no, row.link, row.at, row.actor, events)
        heads[row.task_no] = head
        raw = msgspec.Raw(events.encode())
        rows.append(HistoryRow(row.no, row.task_no, row.task_id, row.link, row.at, row.actor, raw, head))
    checked = sold("check", "-", given=b"".join(encode_export(rows, "store")))
    assert checked.exit_code == 1
    assert "processed:" in checked.stdout
    assert checked.stdout.splitlines()[-1].startswith("not clean: ")
    assert json.loads(sold("check", "-", "--json", given=b"".join(encode_export(rows, "store"))).stdout)["violations"]


def test_an_unreadable_file_exits_with_2(call: Call, shop: Path) -> None:
    for file in ("nothing", str(shop)):
        refused = call("check", file)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"arriero: {file} cannot be read: ")


def test_an_export_whose_reader_is_gone_ends_quietly(sold: Call, shop: Path) -> None:
    for command in (["export"], ["history"], ["task", "list"]):
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run(
            [sys.executable, "-m", "arriero", *command],
            cwd=shop,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (1, b"")


def test_an_export_to_a_full_disk_says_so_in_one_line(sold: Call, shop: Path) -> None:
    for command in (["export"], ["task", "list"]):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "arriero", *command],
                cwd=shop,
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
                timeout=60,
            )
        assert ended.returncode == 2
        assert ended.stderr.startswith(b"arriero: standard output cannot be written: ")
        assert len(ended.stderr.splitlines()) == 1


def test_a_long_export_counts_on_a_watching_terminal_and_not_into_the_data(
    sold: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = sold("export")
    assert quiet.stderr == ""
    monkeypatch.setattr(output, "_is_watched", lambda beside_data: True)
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(output, "PROGRESS_EVERY_SECONDS", 0.0)
    watched = sold("export")
    assert watched.stdout == quiet.stdout
    assert watched.stderr.endswith(f"\rexport: {len(quiet.stdout.splitlines()):,} rows\n")
