"""Pages, files for operators and the texts of src are written in plain words: forms that must be read twice are not in them.

Only prose counts: not blocks of code, not text in backticks, not what is generated from the code.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_modules import Module, for_every_module

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = ("*.md", "how-to/*.md", "internals/*.md", "comparison/*.md", "../*.md", "../examples/*/*.md", "../bench/*.md")
PAGES = sorted({page.resolve() for folder in FOLDERS for page in DOCS.glob(folder)})
DEPLOYED = sorted(file for file in (ROOT / "deploy").rglob("*") if file.is_file() and file.suffix != ".json")
NOT_PROSE = re.compile(
    r"^    [^\n]*$|^<!-- generated:.*?^<!-- end:[^\n]*$|^<!--.*?-->$|^```.*?^```$|``[^\n]*?``|`[^`\n]*`|\]\([^)\n]*\)",
    re.MULTILINE | re.DOTALL,
)
HINTS = {  # a form to avoid -> what to write in its place
    r"(re)?tell(s|ing)?|told": "report, log, notify, deliver, print",
    r"(go|goes|went|gone)\s+on": "continue, resume",
    r"at\s+once": "immediately, or at a time",
    r"so\s+(many|soon|often|far\s+back)": "name the quantity",
    r"for\s+good": "permanently",
    r"who(m)?ever": "the role: the caller, any process",
    r"nobody": "say what is true and what to do",
    r"somebody|a\s+person|persons|people": "operator, approver, customer",
    r"(?<!there )(is|are|was|were)\s+no\s+(?!longer|more|later|other)\w+": "is not a valid ...",
    r"any\s+more": "no longer",
    r"for\s+ever": "indefinitely, or name the bound",
    r"anew": "again",
    r"under\s+way": "running",
    r"made up|make up|makes up": "caught up, run late",
    r"surely|for\s+certain": "definitely, or known",
    r"(stands?|standing|stood)\s+still": "is blocked, hung, idle",
    r"(is|are|was|were)\s+gone": "was deleted, ended, disconnected",
    r"(is|are)\s+well|well\s+again": "is healthy",
    r"of\s+(its|their|your|our)\s+own": "a separate, a dedicated",
    r"in\s+the\s+middle": "median, or during",
    r"anybody|everybody": "any user, every process",
    r"on\s+(its|their)\s+way": "in transit",
}  # fmt: skip

IN_PAGES_ALONE = ("nobody", "anybody|everybody", r"of\s+(its|their|your|our)\s+own")  # comments may say these


def blank(code: re.Match[str]) -> str:
    """As many lines as before, so that a line's number stays right."""
    return ("]" if code[0].startswith("]") else "_") + "\n" * code[0].count("\n")


def find_forms(text: str) -> list[str]:
    """Each form to avoid, with its line and what to write."""
    prose = NOT_PROSE.sub(blank, text)
    return [
        f"{prose.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}: write {hint}"
        for form, hint in HINTS.items()
        for found in re.finditer(rf"\b(?:{form})\b", prose, re.IGNORECASE)
    ]


def test_a_form_is_found_in_prose_alone() -> None:
    page = "`told`\n\n```text\nat once\n```\n\nIt goes\non. [x](told.md) [told](x.md)\n<!-- generated: a -->\nfor good\n<!-- end: a -->\n"
    assert [found.split(": write")[0] for found in find_forms(page)] == ["8: told", "7: goes on"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert find_forms(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", DEPLOYED, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_comments_of_a_deployed_file_are_in_plain_words(file: Path) -> None:
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
    comments = {number: line.partition("#")[2] for number, line in lines if "#" in line}
    assert [(number, form) for number, text in comments.items() for form in find_forms(text)] == []


def list_comments(module: Module) -> Iterator[tuple[int, str]]:
    """Each comment and each docstring, with its line."""
    text = module.path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    opened = [node.body[0] for node in module.nodes if isinstance(node, documented) and ast.get_docstring(node)]
    for node in opened:
        yield node.lineno, ast.get_source_segment(text, node) or ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@for_every_module()
def test_comments_and_docstrings_are_in_plain_words(module: Module) -> None:
    forms = [form for form in HINTS if form not in IN_PAGES_ALONE]
    found = [
        (line, " ".join(match[0].split()), HINTS[form])
        for line, prose in list_comments(module)
        for form in forms
        for match in re.finditer(rf"\b(?:{form})\b", re.sub(r"``[^`]*``|`[^`\n]*`", "_", prose), re.IGNORECASE)
    ]
    assert found == []


def list_messages(module: Module) -> Iterator[tuple[int, str]]:
    """Each text of several words in the code that is not a docstring: messages, help and sentences of histories."""
    bodies = [node.body for node in module.nodes if isinstance(getattr(node, "body", None), list)]
    documented = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in module.nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
        if is_text and " " in node.value.strip():
            yield node.lineno, node.value


@for_every_module()
def test_messages_are_in_plain_words(module: Module) -> None:
    forms = [form for form in HINTS if form not in IN_PAGES_ALONE]
    found = [
        (line, " ".join(match[0].split()), HINTS[form])
        for line, text in list_messages(module)
        for form in forms
        for match in re.finditer(rf"\b(?:{form})\b", re.sub(r"``[^`]*``|`[^`\n]*`", "_", text), re.IGNORECASE)
    ]
    assert found == []
