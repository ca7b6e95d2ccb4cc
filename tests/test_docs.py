"""What the pages show is run as it stands there, what they take from the code is current, and links lead somewhere.

A page may hold, beside its prose:

- a block that begins with a comment naming a file, ``# shop.py``: it is saved under that name;
- ``console``: each line after ``$ `` is run by a shell; what stands below must be printed, ``...`` standing for anything,
  and nothing below means any output. ``arriero run`` and ``arriero lead`` go on in the background until the page ends;
- ``python``: the inside of an async function, run as a program; a ``text`` block right below is what it must print.

Comments, which readers do not see, tell what a reader waits for: ``<!-- until 1001 processed -->`` a task's state,
``<!-- until FILE -->`` a file. ``<!-- exits 2 -->`` is the exit code of the next block's last command. After
``<!-- not run: WHY -->`` a block must only be right Python.

``<!-- stop -->`` is Ctrl-C in every terminal where something goes on in the background, ``<!-- stop arriero lead -->`` in the
first one where that command does. ``<!-- with PostgreSQL -->``
starts a server for the page: it answers to the name ``db.example.com``, its superuser is ``postgres``, and its own
programs (psql, pg_dump) are found first. ``export`` holds for the commands below it.
"""

import ast
import asyncio
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from postgres_servers import describe_missing
from waiting import call_until_answered, wait_until

from arriero import Agent, App, Attempt, Permanent, Supervision, TaskFailed, UnknownTask, workflow
from arriero.cli.main import commands
from arriero.testing.postgres import Server, installations

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ALL = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("bench/*.md")]
PAGES = sorted(page for page in DOCS.glob("**/*.md") if "adr" not in page.parts and "reference" not in page.parts)
SECONDS_MAX = 60.0
POSTGRES = 16
BANK_PORT = "8410"  # in the tutorial
API_PORT = "8478"
LEADS_OR_WAITS = "INFO arriero: lease "  # what `arriero lead` says first
SERVER_HOST = "db.example.com"  # in the pages

BLOCK = re.compile(r"^<!-- (?P<said>[^\n]*?) -->$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\S+\.\w+)\n")
DIFFER = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "TIME"),
    (r"\b[0-9a-f]{32}\b", "KEY"),
    (r"\+\d+(\.\d+)? s\b|\b\d+\.\d{1,3} s\b", "SPAN"),
    (r"(less than )?\d+ \w+( \d+ \w+)? ago", "AGO"),
    (r"[ \t]+", " "),
)


class Block(NamedTuple):
    """A block of code, or what a comment says (``language`` is then ``said``)."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            "said" if found["said"] else found["language"],
            found["said"] or found["text"],
            text.count("\n", 0, found.start()) + 1,
        )
        for found in BLOCK.finditer(text)
    ]


def is_run(page: Path) -> bool:
    return any(block.language == "console" for block in blocks(page))


def environment() -> dict[str, str]:
    """As a reader's, without settings of who runs the tests."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("ARRIERO_")}
    return {**found, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}", "PYTHONUNBUFFERED": "1"}


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reader:
    """Somebody who does in a folder what a page says."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.in_background: list[subprocess.Popen[str]] = []
        self.drains: list[threading.Thread] = []
        self.printed = ""  # by the Python block above
        self.exit_code = 0  # of the next console block's last command
        self.is_not_run = False  # the next block
        self.environment = environment()
        self.server: Server | None = None
        self.bank_port = find_free_port()  # of the service that the tutorial starts
        self.api_port = find_free_port()

    def read(self) -> None:
        for block in blocks(self.page):
            where = f"{self.page.relative_to(ROOT)}:{block.line}"
            match block.language:
                case "said":
                    self.hear(block.text)
                    continue
                case "console":
                    self.type(block.text, where)
                    self.exit_code = 0
                case "text":
                    assert_shown(block.text, self.printed, where)
                case _ if named := FILE_NAME.match(block.text):
                    (self.folder / named[1]).write_text(self.meant(block.text), encoding="utf-8")
                case "python" if self.is_not_run:
                    ast.parse(block.text)
                case "python":
                    self.printed = self.run_python(block.text, where)
            self.is_not_run = False

    def hear(self, said: str) -> None:
        match said.split():
            case ["until", task_id, state]:
                self.wait_for(task_id, state)
            case ["until", file]:
                wait_until(lambda: (self.folder / file).is_file() and (self.folder / file).stat().st_size, file)
            case ["exits", code]:
                self.exit_code = int(code)
            case ["not", "run:", *_]:
                self.is_not_run = True
            case ["stop"]:
                self.stop()
            case ["stop", *command]:
                self.stop_first(command)
            case ["with", "PostgreSQL"]:
                self.start_server()

    def start_server(self) -> None:
        if POSTGRES not in installations():
            pytest.skip(describe_missing(POSTGRES))
        self.server = Server.start(POSTGRES)
        self.server.create_role("postgres", "SUPERUSER")
        self.environment["PGPASSWORD"] = self.server.password
        self.environment["PATH"] = f"{installations()[POSTGRES]}{os.pathsep}{self.environment['PATH']}"

    def meant(self, text: str) -> str:
        """What a page says, with the server's real place and a password for each role, which readers have in .pgpass."""
        text = text.replace(BANK_PORT, str(self.bank_port)).replace(API_PORT, str(self.api_port))
        if self.server is None:
            return text
        placed = text.replace(SERVER_HOST, f"127.0.0.1:{self.server.port}")
        return re.sub(r"(CREATE ROLE \w+ LOGIN)\b", rf"\1 PASSWORD '{self.server.password}'", placed)

    def as_shown(self, printed: str) -> str:
        printed = printed.replace(f"127.0.0.1:{self.bank_port}", f"127.0.0.1:{BANK_PORT}")
        return printed if self.server is None else printed.replace(f"127.0.0.1:{self.server.port}", SERVER_HOST)

    def wait_for(self, task_id: str, state: str) -> None:
        async def wait() -> str:
            async with App("reader", store=f"sqlite:///{self.folder / 'arriero.db'}") as app:
                await call_until_answered(app.task(task_id).view, UnknownTask)  # a child begins after its parent
                with suppress(TaskFailed):
                    await app.task(task_id).result(timeout=SECONDS_MAX)
                return (await app.task(task_id).view()).state

        assert asyncio.run(wait()) == state

    def type(self, session: str, where: str) -> None:
        typed = re.split(r"^\$ ", self.meant(session).replace("\\\n", " "), flags=re.MULTILINE)
        assert typed[0] == "", f"{where}: a console block begins with `$ `"
        for number, one in enumerate(typed[1:], start=1):
            command, _, shown = one.partition("\n")
            if command.startswith(("arriero run ", "arriero serve ", "arriero lead ", "python bank.py")):
                self.run_in_background(command)
                continue
            if command.startswith("export "):
                name, _, value = shlex.split(command, comments=True)[1].partition("=")
                self.environment[name] = value
                continue
            told = self.told(["bash", "-c", command])
            code = self.exit_code if number == len(typed) - 1 else 0
            assert told.returncode == code, f"{where}: {command}: exit code {told.returncode}\n{told.stdout}"
            if shown.strip():
                assert_shown(self.as_shown(shown), self.as_shown(told.stdout), f"{where}: {command}")

    def run_in_background(self, command: str) -> None:
        process = subprocess.Popen(
            shlex.split(command, comments=True),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.in_background.append(process)
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith(("arriero: ready", "bank: ready")) or LEADS_OR_WAITS in line:
                self.drains.append(threading.Thread(target=process.stdout.read))  # lest it blocks
                self.drains[-1].start()
                return
        pytest.fail(f"{command}: {''.join(seen)}")

    def run_python(self, text: str, where: str) -> str:
        body = textwrap.indent(text, "    ")
        body = self.meant(body)
        program = f"import asyncio\n\nasync def main() -> None:\n{body}\n\nasyncio.run(main())\n"
        told = self.told([sys.executable, "-W", "error", "-c", program])
        assert told.returncode == 0, f"{where}:\n{told.stdout}"
        return told.stdout

    def told(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, timeout=SECONDS_MAX, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def stop_first(self, command: list[str]) -> None:
        """End the first of those in the background that run a command, which must end in order."""
        process = next(one for one in self.in_background if one.args[: len(command)] == command)  # type: ignore[index]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS_MAX) == 0

    def leave(self) -> None:
        """End everything that the page started."""
        try:
            self.stop()
        finally:
            if self.server is not None:
                self.server.stop("immediate")

    def stop(self) -> None:
        """End what runs in the background, which must end in order."""
        for process in self.in_background:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=SECONDS_MAX) for process in self.in_background]
        for drain in self.drains:
            drain.join()
        for process in self.in_background:
            assert process.stdout is not None
            process.stdout.close()
        ours = [code for process, code in zip(self.in_background, codes, strict=True) if "bank.py" not in process.args]
        self.in_background, self.drains = [], []
        assert ours == [0] * len(ours)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def pattern_of(line: str) -> str:
    return r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"


def assert_shown(shown: str, printed: str, where: str) -> None:
    """What differs from run to run is taken out of both; ``...`` stands for anything in its line, or for any lines."""
    for pattern, word in DIFFER:
        shown, printed = re.sub(pattern, word, shown), re.sub(pattern, word, printed)
    pattern = "".join(map(pattern_of, lines_of(shown)))
    found = "".join(f"{line}\n" for line in lines_of(printed))
    assert re.fullmatch(pattern, found), f"{where}\n--- shown\n{shown}\n--- printed\n{found}"


@pytest.mark.acceptance
@pytest.mark.parametrize("page", [page for page in PAGES if is_run(page)], ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_tells_what_happens_when_one_does_what_it_says(page: Path, tmp_path: Path) -> None:
    if page.parent.name == "how-to":
        (tmp_path / "shop.py").write_text((DOCS / "how-to" / "shop.py").read_text(encoding="utf-8"), encoding="utf-8")
        (tmp_path / "arriero.toml").write_text('app = "shop:app"\n', encoding="utf-8")
    reader = Reader(page, tmp_path)
    try:
        reader.read()
    finally:
        reader.leave()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_python_is_run_or_says_why_not(page: Path) -> None:
    if is_run(page):
        return
    found = blocks(page)
    for before, block in zip([None, *found], found, strict=False):
        if block.language == "python":
            assert before is not None and before.text.startswith("not run: "), f"{page.name}:{block.line}"
            compile(block.text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# --- what is taken from the code
def generated() -> Iterator[tuple[Path, str]]:
    made = runpy.run_path(str(DOCS / "reference" / "generate.py"))["pages"]()
    yield from made.items()


def test_what_the_pages_take_from_the_code_is_current() -> None:
    for page, text in generated():
        assert page.read_text(encoding="utf-8") == text, f"{page.relative_to(ROOT)}: run docs/reference/generate.py"


INLINE = re.compile(r"`(arriero [^`\n]+)`|^ {4}(?:\.venv/bin/)?(arriero [^\n]+)$|^\$ (arriero [^\n]+)$", re.MULTILINE)


def named_commands(text: str) -> Iterator[list[str]]:
    for found in INLINE.finditer(text):
        command = next(filter(None, found.groups()))
        yield re.split(r"\s+|;|\|", command.partition(" #")[0].partition(" > ")[0])[1:]


def test_every_command_and_option_that_a_page_names_is_there() -> None:
    counted = 0
    for page in ALL:
        for words in named_commands(page.read_text(encoding="utf-8")):
            counted += 1
            command: click.Command = commands
            while isinstance(command, click.Group) and words and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            where = f"{page.relative_to(ROOT)} names arriero {' '.join(words)}"
            assert command is not commands or words[0].startswith(("-", "[", "COMMAND")), where
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            for word in words:
                if word.startswith("--") and len(word) > 2:
                    assert word.partition("=")[0].rstrip(",.`") in known | {"--help"}, where
    assert counted > 50


# --- links
def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", outside, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def links(page: Path) -> list[tuple[Path, str]]:
    """(page, anchor) of each link inside the repository."""
    found = re.findall(r"\]\(([^)\s#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    return [((page.parent / to).resolve() if to else page, anchor) for to, anchor in found if "://" not in to]


def test_every_link_to_a_heading_finds_it() -> None:
    for page in ALL:
        for to, anchor in links(page):
            assert to.exists(), f"{page.relative_to(ROOT)} links to {to}"
            if anchor:
                assert anchor in slugs(to), f"{page.relative_to(ROOT)} links to {to.name}#{anchor}"


def test_every_page_is_reached_from_the_readme_by_links() -> None:
    reached, fresh = set(), [ROOT / "README.md"]
    while fresh:
        page = fresh.pop()
        reached.add(page)
        fresh += [to for to, _ in links(page) if to.suffix == ".md" and to.is_file() and to not in reached]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


# --- names of files
PATH = re.compile(r"`([\w./-]+/[\w.-]*|\w+\.py)`")
FOR_CONTRIBUTORS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((DOCS / "internals").glob("*.md"))]
BASES = [ROOT, ROOT / "src" / "arriero"]


def test_every_path_that_a_page_for_contributors_names_is_there() -> None:
    """A path is relative to the repository or to ``src/arriero``; a folder may end with a slash."""
    named = [(page, path) for page in FOR_CONTRIBUTORS for path in PATH.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 100
    missing = [
        f"{page.relative_to(ROOT)} names {path}"
        for page, path in named
        if not path.startswith("/") and not any((base / path).exists() for base in BASES)
    ]
    assert missing == []


PLACED = re.compile(r"`([\w.]+)` in `([\w/]+\.py)`|`([\w/]+\.py)` \(`([\w.]+)`")


def test_every_name_that_a_page_for_contributors_puts_into_a_file_is_in_it() -> None:
    placed = [
        (page.name, found[0] or found[3], found[1] or found[2])
        for page in FOR_CONTRIBUTORS
        for found in PLACED.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(placed) > 20
    for page_name, name, path in placed:
        file = next(base / path for base in BASES if (base / path).exists())
        assert name.rpartition(".")[2] in file.read_text(encoding="utf-8"), f"{page_name}: {name} in {path}"


def test_every_test_and_every_breakage_that_the_promises_name_is_there() -> None:
    text = (DOCS / "promises.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "tests").glob("**/test_*.py")}
    patches = {path.stem for path in (ROOT / "tests" / "simulation" / "breakages").glob("*.patch")}
    tests = set(re.findall(r"test_\w+\.py", text))
    lists = re.findall(r"\bbreakages? (`\w+`(?:(?:, | and )`\w+`)*)", text)
    breakages = {name for names in lists for name in re.findall(r"`(\w+)`", names)}
    assert (len(tests) > 40, len(breakages) > 20) == (True, True)
    assert sorted(tests - files) == []
    assert sorted(breakages - patches) == []


def test_contributing_names_every_folder_of_tests() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/*.*") if file.parent.name != "__pycache__"}
    assert [name for name in sorted(folders) if f"`{name}`" not in page and f"`tests/{name}`" not in page] == []


# --- the receiver of alerts
def test_the_receiver_in_the_pages_knows_our_signature_and_refuses_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = [block.text for block in blocks(DOCS / "how-to" / "alerts.md") if block.text.startswith("# receiver.py")]
    (tmp_path / "receiver.py").write_text(text, encoding="utf-8")
    is_genuine = runpy.run_path(str(tmp_path / "receiver.py"))["is_genuine"]
    received: list[tuple[dict[str, str], bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    secret = "whsec_" + "QUJD" * 10
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("ARRIERO_ALERTS_WEBHOOK_URL", f"http://127.0.0.1:{server.server_port}/alerts")
            monkeypatch.setenv("ARRIERO_ALERTS_WEBHOOK_SECRET", secret)
            with failing_app().sync.running() as front:
                with pytest.raises(TaskFailed):
                    front.submit(fail(), task_id="t").result(timeout=SECONDS_MAX)
                wait_until(lambda: received, "the webhook")
        finally:
            server.shutdown()
            thread.join()
    headers, body = received[0]
    assert is_genuine(secret, headers, body)
    assert not is_genuine(secret, headers, body + b" ")
    assert not is_genuine("whsec_" + "QUJE" * 10, headers, body)
    assert not is_genuine(secret, headers | {"webhook-id": "another"}, body)
    assert not is_genuine(secret, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 600)}, body)


calls = Agent("calls")


@calls.step(supervision=Supervision(then="hold"))
def refuse(attempt: Attempt) -> None:
    raise Permanent("no", code="no")


@workflow
async def fail() -> None:
    await refuse()


def failing_app() -> App:
    return App("failing", agents=[calls], workflows=[fail])
