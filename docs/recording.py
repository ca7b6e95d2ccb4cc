"""Records a worker that is killed after a charge, and the worker that refunds it; draws the lines as docs/recording.svg.

python docs/recording.py             # two processes on a new SQLite file, and SIGKILL; a few seconds
python docs/recording.py --redraw    # draw the lines that the file holds again
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from html import escape
from pathlib import Path
from typing import IO, NamedTuple

DRAWING = Path(__file__).with_name("recording.svg")
PROGRAM = Path(__file__).parents[1] / "examples" / "quickstart" / "quickstart.py"  # the program of the README

CLIENT = 'arriero submit quickstart:shop fulfil --wait --task-id 1002 --arguments \'{"order": {"id": "1002", "pieces": 99}}\''
KILLED = "ARRIERO_CRASH_AT=after_send:1 arriero run quickstart:shop"  # SIGKILL after the first call of a service
SURVIVOR = "arriero run quickstart:shop"
PANES = {
    "client": "terminal 1: submit an order that cannot be fulfilled, and wait",
    "killed": "terminal 2: a worker charges the card and is killed before it can record that",
    "survivor": "terminal 3: another worker repeats the charge under the same key, then refunds it",
}
READY = "arriero: ready"
SECONDS_MAX = 120.0

WIDTH, MARGIN, ROW, COLUMNS = 840, 16, 19, 100
SECONDS_PER_LINE = 0.9  # of playback: as long as a line takes to read


class Line(NamedTuple):
    """A line of a terminal.

    Attributes:
        pane: key of ``PANES``.
        at: seconds since the order was submitted.
    """

    pane: str
    at: float
    text: str


class Terminal:
    """A command that runs as in a terminal; its lines are recorded."""

    def __init__(self, pane: str, command: str, folder: Path, recorded: list[Line]) -> None:
        self.pane = pane
        self.recorded = recorded
        self.is_ready = threading.Event()
        self.note(f"$ {command}")
        words = shlex.split(command)
        named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words[len(named) :]],
            cwd=folder,
            env=inherited | named | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.reader = threading.Thread(target=self.read, args=(self.process.stdout,))
        self.reader.start()

    def read(self, output: IO[str]) -> None:
        for text in output:
            self.note(shorten(text.rstrip("\n")))
            if text.startswith(READY):
                self.is_ready.set()
        self.is_ready.set()  # it ended, and says why

    def note(self, text: str) -> None:
        self.recorded.append(Line(self.pane, time.monotonic(), text))

    def wait(self) -> int:
        code = self.process.wait(SECONDS_MAX)
        self.reader.join()
        return code


def shorten(text: str) -> str:
    """Leave out what is particular to one run, or too long for a picture: instants, the store's place, where code failed."""
    text = re.sub(r"^\d{4}-\d\d-\d\d [\d:,]+ ", "", text)
    text = re.sub(rf"^({READY}: App \w+, ).*", r"\1...", text)
    return re.sub(r" \(raised at .*\); ", "; ", text)


def record() -> list[Line]:
    """Submit the order, kill the worker that charges, and start another one. Returns the lines of all terminals in their order.

    Raises: RuntimeError - a process ended as it should not; the message has all lines.
    """
    recorded: list[Line] = []
    started: list[Terminal] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROGRAM, folder)
        try:
            started.append(killed := Terminal("killed", KILLED, folder, recorded))
            killed.is_ready.wait(SECONDS_MAX)
            started.append(client := Terminal("client", CLIENT, folder, recorded))
            codes = [killed.wait()]
            killed.note("Killed")
            started.append(survivor := Terminal("survivor", SURVIVOR, folder, recorded))
            codes.append(client.wait())
            lines = list(recorded)  # without what the survivor says when it is stopped
            survivor.process.send_signal(signal.SIGTERM)
            codes.append(survivor.wait())
        finally:
            for terminal in started:
                terminal.process.kill()
    if codes != [-signal.SIGKILL, 1, 0]:  # a task that was undone makes `submit --wait` exit with 1
        raise RuntimeError(f"exit codes {codes}:\n" + "\n".join(f"{line.pane}: {line.text}" for line in recorded))
    began = next(line.at for line in lines if line.pane == "client")
    return [line._replace(at=round(max(0.0, line.at - began), 2)) for line in lines]


def split_into_rows(text: str) -> list[str]:
    """Rows of at most ``COLUMNS`` characters, cut at spaces, which stay: joined they are the text."""
    rows = [""]
    for word in re.findall(r"\S+\s*", text):
        if rows[-1] and len(rows[-1]) + len(word.rstrip()) > COLUMNS:
            rows.append("")
        rows[-1] += word
    return rows


def choose_style(text: str) -> str:
    for style, form in (
        ("typed", r"\$ "),
        ("lost", r"Killed"),
        ("key", r"charge "),
        ("undone", r"refund |task 1002 is"),
    ):
        if re.match(form, text):
            return style
    return "log"


def draw(lines: list[Line]) -> str:
    """The lines as an SVG. Each appears when its turn comes; without animation all are there."""
    parts, top = [], MARGIN
    for pane, title in PANES.items():
        mine = [(turn, line) for turn, line in enumerate(lines) if line.pane == pane]
        rows = sum(len(split_into_rows(line.text)) for _, line in mine)
        height = (rows + 1) * ROW + MARGIN
        parts.append(
            f'<rect class="pane" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="6"/>'
        )
        parts.append(f'<text class="title" x="{MARGIN + 12}" y="{top + ROW}">{title}</text>')
        y = top + ROW
        for turn, line in mine:
            delay = f"{turn * SECONDS_PER_LINE + 0.5:.1f}s"
            parts.append(
                f'<g class="line {choose_style(line.text)}" data-pane="{pane}" data-at="{line.at}" data-turn="{turn}"'
                f' style="animation-delay:{delay}">'
            )
            for row in split_into_rows(line.text):
                y += ROW
                parts.append(f'<text xml:space="preserve" x="{MARGIN + 12}" y="{y}">{escape(row, quote=False)}</text>')
            parts.append("</g>")
        top += height + MARGIN // 2
    height = top + MARGIN // 2
    return "\n".join([HEAD.format(width=WIDTH, height=height), *parts, "</svg>", ""])


HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
     role="img" aria-labelledby="t">
<title id="t">A worker charges a card and is killed. Another worker repeats the charge under the same key and refunds it.</title>
<!-- made by docs/recording.py from a real run; data-at is seconds since the submission -->
<style>
text {{ font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }}
.pane {{ fill: #f6f8fa; stroke: #d0d7de }}
.title {{ font: 12.5px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #59636e }}
.typed text {{ font-weight: 600 }}
.log text {{ fill: #59636e }}
.lost text {{ fill: #cf222e; font-weight: 600 }}
.key text {{ fill: #8250df }}
.undone text {{ fill: #1a7f37; font-weight: 600 }}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #e6edf3 }}
  .pane {{ fill: #161b22; stroke: #30363d }}
  .title, .log text {{ fill: #9198a1 }}
  .lost text {{ fill: #f85149 }}
  .key text {{ fill: #d2a8ff }}
  .undone text {{ fill: #3fb950 }}
}}
@media (prefers-reduced-motion: no-preference) {{
  .line {{ animation: appear 0.2s backwards }}
}}
@keyframes appear {{ from {{ opacity: 0 }} }}
</style>"""


def read(drawing: str) -> list[Line]:
    """The lines that a drawing holds, in the order in which they were recorded."""
    groups = [group for group in ET.fromstring(drawing).iter() if "data-turn" in group.attrib]
    return [
        Line(group.attrib["data-pane"], float(group.attrib["data-at"]), "".join(row.text or "" for row in group))
        for group in sorted(groups, key=lambda group: int(group.attrib["data-turn"]))
    ]


def main() -> None:
    lines = read(DRAWING.read_text(encoding="utf-8")) if "--redraw" in sys.argv[1:] else record()
    DRAWING.write_text(draw(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
