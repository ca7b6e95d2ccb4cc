"""Every module can be imported with the packages that its extra allows: `make test-lowest` runs this with the lowest versions."""

import subprocess
import sys

from source_modules import list_modules


def test_every_module_can_be_imported() -> None:
    names = [f"arriero.{module.name}" for module in list_modules() if module.name.rpartition(".")[2] != "__main__"]
    assert len(names) > 300
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
