"""The files that pages load: style sheet, programs of others with their licences, icon."""

import functools
import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent / "static"


@functools.cache
def read_assets() -> dict[str, bytes]:
    """Read all files, by name. They are small, and a name from a request never becomes a path."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.is_file()}


@functools.cache
def compute_edition() -> str:
    """Compute what stands in the paths of the files: it changes with their content."""
    digest = hashlib.blake2b(digest_size=6)
    for name, content in read_assets().items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()
