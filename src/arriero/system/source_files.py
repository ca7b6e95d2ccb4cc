"""The owner of the code in a file: Python, an installed package, arriero, or the user."""

import os
import site
import sysconfig
from functools import cache
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])


@cache
def _list_foreign_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.realpath(one) + os.sep for one in (*named, *site.getsitepackages(), PACKAGE)})


@cache
def is_foreign(path: str) -> bool:
    """Returns True for code of Python, of an installed package or of arriero; also for code that stands in no file."""
    if path.startswith("<"):
        return True
    real = os.path.realpath(path)
    return real.startswith(_list_foreign_folders()) or not {"site-packages", "dist-packages"}.isdisjoint(
        Path(real).parts
    )
