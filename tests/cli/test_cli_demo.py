"""`arriero demo`: finding the example, passing the options on, saying what is missing. Not the demonstration itself."""

import sys
from pathlib import Path

import pytest
from cli_calls import Call

from arriero.cli import demo


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An example that prints how it is called."""
    folder = tmp_path / "installed" / "examples" / "orders"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "demo.py").write_text("def run_demo(**options):\n    print(sorted(options.items()))\n    return 1\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(demo, "ROOTS", (tmp_path / "nowhere", tmp_path / "installed"))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        del sys.modules[name]


def test_its_options_and_its_exit_code_are_passed_on(call: Call, fake: Path) -> None:
    (fake / "ledger.csv").touch()
    options = [
        "--orders",
        "7",
        "--ledger",
        "ledger.csv",
        "--faults",
        "storm",
        "--outage",
        "payments:20s",
        "--kills",
        "3",
        "--processes",
        "4",
        "--supervisors",
        "3",
        "--seed",
        "9",
        "--break",
        "fence",
        "--json",
        "--keep",
        "kept",
    ]
    result = call("demo", *options, "--store", "sqlite:///x.db")
    assert result.exit_code == 1
    wanted = {
        "as_json": True,
        "broken": "fence",
        "faults": "storm",
        "keep": Path("kept"),
        "kills": 3,
        "ledger": Path("ledger.csv"),
        "orders": 7,
        "outage": ("payments", 20.0),
        "processes": 4,
        "seed": 9,
        "serve": False,
        "store": "sqlite:///x.db",
        "supervisors": 3,
    }
    assert result.stdout == f"{sorted(wanted.items())}\n"


def test_its_defaults_take_no_store_from_the_environment(
    call: Call, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///precious.db")
    stdout = call("demo").stdout
    for part in ("('store', None)", "('orders', 500)", "('kills', 2)", "('faults', 'some')", "('broken', None)"):
        assert part in stdout
    assert "('outage', None)" in stdout


def test_missing_extras_are_named_with_the_remedy(call: Call, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "uvicorn" else object())
    refused = call("demo")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "arriero: the demo needs uvicorn: run `pip install '.[demo]'` in a clone of arriero, "
        "or `uvx --from '.[demo]' arriero demo` there\n"
    )


def test_an_installation_without_the_example_says_so(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROOTS", (shop,))
    refused = call("demo")
    assert refused.exit_code == 2
    assert "carries no examples/orders" in refused.stderr


def test_the_repository_has_it() -> None:
    assert (demo._root() / "examples" / "orders" / "demo.py").is_file()
