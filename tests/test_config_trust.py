"""Settings that another user gives, or could give, are refused: they name programs that are started."""

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from arriero import InvalidInput
from arriero.config import load_configuration

SOMEBODY = 64_001  # no user of this machine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    made.chmod(0o755)
    return made


@pytest.fixture
def file(folder: Path) -> Path:
    made = folder / "arriero.toml"
    made.write_text("[node]\ntasks_max = 7\n")
    made.chmod(0o644)
    return made


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the path belong to another user; answers how that one is named."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1)
        return f"the user {SOMEBODY}"
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)  # all that is ours now belongs to somebody else
    return f"the user {pwd.getpwuid(ours).pw_name}"


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_configuration(environment={}, folder=folder)
    return str(caught.value)


def test_a_file_of_another_user_in_a_parent_folder_is_refused_with_the_remedy(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "mine"
    below.mkdir()
    owner = give_away(file, monkeypatch)
    told = refusal(below)
    assert told.startswith(
        f"{file}: it belongs to {owner}, who would decide what is run here; if you trust it, run `chown"
    )
    assert "if not, put an arriero.toml of your own into the folder you work in" in told


def test_a_file_of_one_s_own_nearer_by_is_the_way_out(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "mine"
    below.mkdir()
    (below / "arriero.toml").write_text("")
    if os.geteuid() == 0:
        give_away(file, monkeypatch)
    else:
        file.chmod(0o666)
    assert load_configuration(environment={}, folder=below).file == below / "arriero.toml"


def test_a_folder_of_another_user_is_refused_for_its_owner_could_replace_the_file(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = give_away(folder, monkeypatch)
    assert f"{owner}, who would decide" in refusal(folder)


@pytest.mark.parametrize("mode", [0o646, 0o666])
def test_a_file_that_every_user_may_write_is_refused(file: Path, folder: Path, mode: int) -> None:
    file.chmod(mode)
    assert f"{file}: it may be written by every user" in refusal(folder)
    assert f"run `chmod go-w {file}`" in refusal(folder)


def test_a_folder_that_every_user_may_write_is_refused_unless_it_is_sticky(file: Path, folder: Path) -> None:
    folder.chmod(0o777)
    assert f"{file}: the folder {folder} may be written by every user" in refusal(folder)
    folder.chmod(0o1777)
    assert load_configuration(environment={}, folder=folder).tasks_max == 7


def test_a_group_of_others_may_not_write_and_the_user_s_own_group_may(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o664)
    ours = pwd.getpwuid(os.geteuid())
    group = 4_711
    found = os.stat_result((0o100664, 1, 1, 1, os.geteuid(), group, 0, 0, 0, 0))
    members: list[str] = []
    names = {group: ours.pw_name}
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((names[number], "x", number, members)))
    monkeypatch.setattr(
        pwd, "getpwuid", lambda number: pwd.struct_passwd((ours.pw_name, "x", number, group, "", "/", "/bin/sh"))
    )
    from arriero.config.trust import _explain_distrust

    assert _explain_distrust(found) == ""
    members.append(ours.pw_name)
    assert _explain_distrust(found) == ""
    members.append("mallory")
    assert _explain_distrust(found) == f"may be written by the group {ours.pw_name}"
    members.clear()
    names[group] = "staff"
    assert _explain_distrust(found) == "may be written by the group staff"


def test_the_target_of_a_link_counts_and_so_does_its_folder(tmp_path: Path, file: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "arriero.toml").symlink_to(file)
    assert load_configuration(environment={}, folder=here).tasks_max == 7
    file.chmod(0o666)
    assert f"{here / 'arriero.toml'}: its target {file} may be written by every user" in refusal(here)
    file.chmod(0o644)
    file.parent.chmod(0o777)
    assert f"the folder {file.parent} may be written by every user" in refusal(here)


def test_the_command_line_refuses_it_in_one_line_and_runs_nothing(file: Path, folder: Path) -> None:
    file.write_text('app = "planted:app"\n')
    (folder / "planted.py").write_text("import pathlib\npathlib.Path('was_run').touch()\n")
    file.chmod(0o666)
    refused = subprocess.run(
        [sys.executable, "-m", "arriero", "task", "list"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"arriero: {file}: it may be written by every user")
    assert refused.stderr.count("\n") == 1
    assert not (folder / "was_run").exists()
