"""The libraries of providers are optional, and are loaded for their provider alone."""

import subprocess
import sys

import pytest

from arriero import InvalidInput
from arriero.leases import open_lease


def test_the_leases_load_no_library_of_a_provider() -> None:
    code = "import sys, arriero, arriero.leases; print(sorted({'kazoo', 'httpx2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [("zookeeper://host", "kazoo", "zookeeper"), ("etcd+http://host", "httpx2", "etcd")],
)
def test_a_missing_extra_is_named(url: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("arriero.leases.zookeeper", "arriero.leases.etcd", f"{library}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidInput, match=rf"run `pip install '\.\[{extra}\]'` in a clone"):
        open_lease(url, "nightly")
