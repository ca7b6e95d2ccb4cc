"""Text from outside moves no cursor, hides nothing, and is the same word again when it is typed."""

import io
import logging
import subprocess
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.cli.output import PlainFormatter, escape_for_terminal
from arriero.text.escaping import escape_json, escape_text, one_line, shell_argument, shell_word

HOSTILE = (
    "\x1b[2J", "a\x00b", "\x07", "\x7f", "\x9b31m", "\x85", "\u202egnp.exe", "\u2066x\u2069", "a\u200bb", "a\u200db",
    "\ufeff", "\u00ad", "\u2028", "\u2029", "\u034f", "\u115f", "\u3164", "\uffa0", "\u2800", "\ufe0f",
    "\U000e0041", "\U000e0100", "\u180e", "\ud800", "\u00a0", "\u3000",
)  # fmt: skip
SEEN = ("plain", "MÃ¼nchen".encode("latin-1").decode(), "\u65e5\u672c", "a b", "\\x1b", "\U0001f600")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_cannot_be_seen_as_itself_is_escaped(text: str) -> None:
    shown = one_line(f"<{text}>")
    assert shown.isprintable()
    assert "\\" in shown
    for character in text:
        if unicodedata.category(character)[0] in "CZ" and character != " ":
            assert character not in shown


@pytest.mark.parametrize("text", SEEN)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert escape_text(text) == one_line(text) == text
    assert escape_json(msgspec.json.encode(text).decode()) == msgspec.json.encode(text).decode()


def test_a_line_end_is_a_blank_in_one_line_and_stays_where_it_is_asked_for() -> None:
    assert one_line(" a\n\tb\r\n") == "a  b"
    assert escape_text("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


@given(st.text())
def test_escaped_json_is_the_same_value_and_shows_every_character(text: str) -> None:
    line = escape_json(msgspec.json.encode({"text": text}).decode())
    assert msgspec.json.decode(line) == {"text": text}
    assert escape_text(line) == line


@given(st.text().filter(lambda text: "\0" not in text))
def test_a_word_for_the_shell_is_plain_ascii_and_no_other_word_looks_so(text: str) -> None:
    word = shell_word(text)
    assert word.isascii()
    assert word.isprintable()


@pytest.mark.parametrize("shell", ["bash"])
def test_a_word_for_the_shell_is_the_same_word_again(shell: str) -> None:
    texts = ["", "a b", "it's", "$(reboot)", "\\", "\u00e9\u0031", "'\u202e'", "\u0301", "\n", *HOSTILE, *SEEN]
    for text in (one for one in texts if "\0" not in one and "\ud800" not in one):
        typed = f"printf %s {shell_word(text)}"
        ran = subprocess.run(
            [shell, "-c", typed], env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, capture_output=True, check=True
        )
        assert ran.stdout == text.encode(), ascii(text)


def test_a_word_that_looks_like_an_option_follows_two_dashes() -> None:
    assert shell_argument("-x") == "-- -x"
    assert shell_argument("x-") == "x-"


def test_a_log_record_moves_no_cursor_not_even_by_its_traceback() -> None:
    log = logging.StreamHandler(out := io.StringIO())
    log.setFormatter(PlainFormatter("%(message)s"))
    logger = logging.Logger("escaping")
    logger.addHandler(log)
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        logger.exception("task %s broke", "\u202egnol")
    assert out.getvalue().startswith("task \\u202egnol broke\nTraceback")
    assert escape_text(out.getvalue(), keep="\n") == out.getvalue()
    assert "ValueError: \\x1b[2J" in out.getvalue()


def test_lines_whose_bytes_are_hashed_are_escaped_for_a_terminal_alone() -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    line = msgspec.json.encode("\u202e") + b"\n"
    assert escape_for_terminal(io.BytesIO(), line) == line
    assert escape_for_terminal(Terminal(), line) == b'"\\u202e"\n'
