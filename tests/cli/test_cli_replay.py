"""`arriero replay`, and the payloads that `arriero export` carries for it."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from cli_calls import APP, Call, json_lines

NEXT = """
from arriero import App, sleep, workflow
from shopfront import Order, buggy, charge, fulfil, payments, stock


@workflow
async def later(order: Order) -> None:
    await sleep(7_200)


@workflow(name="buggy")
async def mended(order: Order) -> None:
    await charge(order)


app = App("shopfront", agents=[payments, stock], workflows=[{workflows}])
"""


@pytest.fixture
def release(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The next release: its sleep is longer, and a bug is mended."""
    path = shop / "next_release.py"
    path.write_text(NEXT.format(workflows="fulfil, later, mended"))
    monkeypatch.delitem(sys.modules, "next_release", raising=False)
    return path


def test_a_store_whose_tasks_agree_with_the_code_exits_with_0(sold: Call) -> None:
    result = sold("replay", APP)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "1 task replayed, 0 would be held, 0 skipped\n"
    everything = sold("replay", APP, "--state", "all")
    assert everything.exit_code == 1  # the task with the bug, if it is resubmitted as the code is
    assert everything.stdout.splitlines()[-1] == "5 tasks replayed, 1 would be held, 1 skipped (1 compensated)"


def test_a_task_that_would_be_held_is_shown_with_its_line_and_the_reason(sold: Call, release: Path) -> None:
    result = sold("replay", "next_release:app")
    assert result.exit_code == 1
    first, source, reason, ids, blank, summary = result.stdout.splitlines()
    assert first.startswith("later: 1 task would be held at next_release.py:8 in later, step ")
    assert (source, blank) == ("    await sleep(7_200)", "")
    assert "code and record disagree" in reason
    assert '{"seconds":3600' in reason
    assert ids == "  later (processing)"
    assert summary == "1 task replayed, 1 would be held, 0 skipped"
    (report,) = json_lines(sold("replay", "next_release:app", "--json").stdout)
    assert (report["replayed"], report["skipped"]) == (1, {})
    (held,) = report["held"]
    assert (held["id"], held["at"]["file"], held["at"]["line"]) == ("later", "next_release.py", 8)
    assert held["reason"] in reason
    mended = sold("replay", "next_release:app", "--state", "held")
    assert (mended.exit_code, mended.stdout) == (0, "2 tasks replayed, 0 would be held, 0 skipped\n")
    only = sold("replay", "next_release:app", "--workflow", "fulfil")
    assert only.stdout == "0 tasks replayed, 0 would be held, 0 skipped\n"


def test_a_workflow_that_the_release_no_longer_has_is_reported(sold: Call, release: Path) -> None:
    release.write_text(NEXT.format(workflows="fulfil"))
    result = sold("replay", "next_release:app")
    assert result.exit_code == 1
    assert "workflow later is not in this App" in result.stdout


def test_a_replay_writes_nothing_also_where_it_may_not(sold: Call, shop: Path) -> None:
    store = shop / "arriero.db"
    before = store.read_bytes(), store.stat().st_mtime_ns
    store.chmod(0o400)
    result = sold("replay", APP)
    assert result.exit_code == 0, result.stderr
    assert (store.read_bytes(), store.stat().st_mtime_ns) == before


def test_an_export_with_payloads_is_replayed_and_checked(sold: Call, shop: Path, release: Path) -> None:
    (shop / "carried.jsonl").write_bytes(sold("export", "--payloads", "all").stdout_bytes)
    assert sold("check", "carried.jsonl").exit_code == 0
    (shop / "arriero.db").unlink()
    assert sold("replay", APP, "--export", "carried.jsonl").exit_code == 0
    assert sold("replay", APP, "--export", "-", given=(shop / "carried.jsonl").read_bytes()).exit_code == 0
    result = sold("replay", "next_release:app", "--export", "carried.jsonl")
    assert result.exit_code == 1
    assert "await sleep(7_200)" in result.stdout
    assert sold("replay", APP, "--export", "carried.jsonl", "--state", "held").exit_code == 1


def test_an_export_without_payloads_stays_as_it_was_and_is_refused_with_the_remedy(sold: Call, shop: Path) -> None:
    plain = sold("export").stdout
    assert "receipt" not in plain
    assert "payloads" not in plain
    (shop / "plain.jsonl").write_text(plain)
    result = sold("replay", APP, "--export", "plain.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "the export carries no payloads" in line
    assert "arriero export --payloads open" in line
    (shop / "open.jsonl").write_bytes(sold("export", "--payloads", "open").stdout_bytes)
    assert sold("replay", APP, "--export", "open.jsonl", "--state", "processing").exit_code == 0
    fewer = sold("replay", APP, "--export", "open.jsonl", "--state", "held")
    assert fewer.exit_code == 2
    assert "--payloads held" in fewer.stderr


@pytest.mark.parametrize("harm", ["cut", "changed", "removed", "added", "not json"])
def test_an_export_that_was_cut_or_changed_is_refused_and_nothing_of_it_is_shown(
    sold: Call, shop: Path, release: Path, harm: str
) -> None:
    *lines, trailer = sold("export", "--payloads", "open").stdout.splitlines()
    match harm:
        case "cut":
            trailer = ""
        case "changed":
            lines[-1] = lines[-1].replace("3600", "3601")
        case "removed":
            lines = lines[:-1]
        case "added":
            lines.append(lines[-1])
        case _:
            lines[-1] = lines[-1][:-20]
    (shop / "harmed.jsonl").write_text("\n".join([*lines, trailer]))
    result = sold("replay", "next_release:app", "--export", "harmed.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the export is mutilated at line" in result.stderr
    assert sold("check", "harmed.jsonl").exit_code == 1


def test_bad_input_is_one_line_with_the_remedy(sold: Call, shop: Path) -> None:
    for arguments, says in (
        (("nothing:app",), "there is no module 'nothing'"),
        ((APP, "--export", "absent.jsonl"), "absent.jsonl cannot be read"),
        ((APP, "--export", "."), "cannot be read"),
        ((APP, "--export", "x", "--store", "sqlite:///arriero.db"), "exclude each other"),
        ((APP, "--state", "lost"), "'lost' is not one of"),
        ((APP, "--store", "sqlite:///absent.db"), "there is no such file"),
        ((APP, "--store", "memory://"), "dies with it"),
    ):
        result = sold("replay", *arguments)
        assert (result.exit_code, result.stdout) == (5 if "absent.db" in arguments[-1] else 2, ""), result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert says in result.stderr
    problem = json.loads(sold("replay", APP, "--export", "absent.jsonl", "--json").stderr)
    assert problem["status"] == 422


def test_many_tasks_of_one_cause_are_one_entry(call: Call, shop: Path, release: Path) -> None:
    from shopfront import Order, app, later

    async def sleep_all() -> None:
        async with app.running():
            for number in range(8):
                task = await app.submit(later(Order(f"o{number}")), task_id=f"later-{number}")
                async for view in task.changes():
                    if view.steps:
                        break

    asyncio.run(sleep_all())
    result = call("replay", "next_release:app")
    head, _, _, ids, _, summary = result.stdout.splitlines()
    assert head.startswith("later: 8 tasks would be held")
    assert ids.startswith("  later-0 (processing), ")
    assert ids.endswith("later-4 (processing) and 3 more; all with --json")
    assert summary == "8 tasks replayed, 8 would be held, 0 skipped"
    (report,) = json_lines(call("replay", "next_release:app", "--json").stdout)
    assert len(report["held"]) == 8
