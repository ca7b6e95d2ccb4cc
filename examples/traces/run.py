"""Sends one order through two processes and prints its trace as a tree: one process decides, the other one calls services.

    python examples/traces/run.py

It takes a few seconds, and exits with 1 if the tree is not the one below. Its files are in a temporary folder.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from opentelemetry import trace

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder above examples/
from arriero import TaskCompensated
from examples.traces.shop import fulfil, make_app

HERE = Path(__file__).parent
EXPECTED = """\
POST /orders                     client
  fulfil                         scheduler  error
    reserve                      agents
      reserve attempt            agents     error
        SELECT shelf             agents     error
      reserve attempt            agents     after the attempt above
        SELECT shelf             agents
    charge                       agents     error
      charge attempt             agents     error
    undo reserve                 agents
      undo reserve attempt       agents
"""

Span = dict[str, Any]


def start(role: str, store: str, folder: Path) -> "subprocess.Popen[str]":
    """Start a process that runs one half of the App, and wait until it is ready."""
    command = [sys.executable, str(HERE / "shop.py"), role, store, str(folder / f"{role}.jsonl")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process: "subprocess.Popen[str]") -> None:
    """End a process in order."""
    process.terminate()
    process.communicate(timeout=60)


async def submit(store: str, folder: Path) -> None:
    """Submit one order from a span of a web request, and wait for its end."""
    async with make_app(store, folder / "client.jsonl") as app:
        with trace.get_tracer("web").start_as_current_span("POST /orders"):
            task = await app.submit(fulfil("1001"), task_id="1001")
        with suppress(TaskCompensated):
            await task.result()


def read_spans(folder: Path) -> list[Span]:
    """All spans, in the order of their beginnings, each with the process that told it."""
    found = []
    for file in folder.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line) | {"process": file.stem})
    return sorted(found, key=lambda span: (span["start_time"], span["end_time"]))


def draw(spans: list[Span], parent: str | None = None, depth: int = 0) -> list[str]:
    """A line for each span, indented below its parent."""
    lines = []
    for span in spans:
        if span["parent_id"] == parent:
            name = f"{'  ' * depth}{span['name']}"
            notes = ["error"] if span["status"]["status_code"] == "ERROR" else []
            notes += ["after the attempt above"] if span["links"] else []
            lines.append(f"{name:<33}{span['process']:<11}{', '.join(notes)}".rstrip())
            lines += draw(spans, span["context"]["span_id"], depth + 1)
    return lines


def main() -> int:
    """Returns 0 if the trace is one tree, and the expected one."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        store = f"sqlite:///{folder / 'store.db'}"
        for role in ("scheduler", "agents"):
            stack.callback(stop, start(role, store, folder))
        asyncio.run(submit(store, folder))
        stack.close()  # whoever ends exports what it still has
        spans = read_spans(folder)
    tree = "".join(f"{line}\n" for line in draw(spans))
    print(tree)
    traces = {span["context"]["trace_id"] for span in spans}
    if tree != EXPECTED or len(traces) != 1 or len(spans) != len(EXPECTED.splitlines()):
        print(f"expected one trace:\n{EXPECTED}", file=sys.stderr)
        return 1
    print(f"{len(spans)} spans of 3 processes in one trace")
    return 0


if __name__ == "__main__":
    sys.exit(main())
