"""Doubtful JSON: what is refused, compared with two readers that build all values."""

import json
import random
from typing import Any

import msgspec
import pytest

from arriero import (
    InvalidInput,
)
from arriero.payloads import codec
from arriero.payloads.codec import PAYLOAD_DEPTH_MAX, refuse_deep, refuse_doubtful_json

DEEP = PAYLOAD_DEPTH_MAX
FINE = [
    b"0",
    b"-0",
    b'"a"',
    b" [1, 2.5, -3e10, 1E+99, 0.0000000000001e-300, null, true, false] ",
    b'{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}',
    b'["a", "a", {"a": "a"}]',
    b'{"a": "b", "b": "a"}',
    b'["{\\"a\\": 1, \\"a\\": 2}"]',
    b'"[[[[' + b"[" * 1_000 + b'"',
    b'"1e999"',
    b'["1e999", 1e99]',
    b'"\\\\u0000"',
    b'"\\\\\\\\u0000 \\u0001"',
    b'"\\ud83d\\ude00"',
    b"9" * 4_300,
    b"-" + b"9" * 4_299,
    b"1" * 400,
    b"[" * DEEP + b"]" * DEEP,
    '{"ä": 1, "a": 2}'.encode(),
    b'{"\\u00e4": 1, "a": 2}',
    b'{"a\\"": 1, "a": 2}',
]
REFUSED = {
    b'{"a": 1, "a": 2}': "the key 'a' twice",
    b'{"a": 1, "\\u0061" : 2}': "the key 'a' twice",
    b'{"\\u0061": 1, "a": 2}': "the key 'a' twice",
    '{"ä": 1, "\\u00e4": 2}'.encode(): "the key 'ä' twice",
    b'{"\\"": 1, "\\u0022": 2}': "the key '\"' twice",
    b'[{"b": [{"x": 1}], "b" :1}]': "the key 'b' twice",
    b'"\\u0000"': "a NUL character",
    b'"\\\\\\u0000"': "a NUL character",
    b'{"\\u0000": 1}': "a NUL character",
    b'"\\ud800"': "is not JSON",
    b'"\\ude00\\ud83d"': "is not JSON",
    b'"\xff"': "is not JSON",
    b"1e999": "is not JSON",
    b'["1e999", -1e999]': "is not JSON",
    b"1" * 400 + b".5": "is not JSON",
    b"9" * 4_301: "is not JSON",
    b"-" + b"9" * 4_300: "is not JSON",  # the sign counts
    b"NaN": "is not JSON",
    b"[Infinity]": "is not JSON",
    b"\xef\xbb\xbf1": "is not JSON",
    b"": "is not JSON",
    b"[1,]": "is not JSON",
    b'{"a": 1': "is not JSON",
    b"]": "is not JSON",
    b"[" * (DEEP + 1) + b"]" * (DEEP + 1): "levels deep",
    b'{"a":' * (DEEP + 1) + b"1" + b"}" * (DEEP + 1): "levels deep",
    b"[" * 100_000: "levels deep",
}


@pytest.mark.parametrize("text", FINE, ids=lambda text: ascii(text[:30]))
def test_json_that_every_reader_takes_for_the_same_passes(text: bytes) -> None:
    refuse_doubtful_json(text, "the body")


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=lambda text: ascii(text[:30]))
def test_doubtful_json_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        refuse_doubtful_json(text, "the body")
    assert str(refused.value).startswith("the body ")


PIECES = [
    *(b"[", b"]", b"{", b"}", b",", b":", b'"', b" ", b"\n", b'"a"', b'"b"', b'"a":', b'"\\u0061":', b'{"a":1}'),
    *(b"1", b"-1.5", b"1e999", b"1e99", b"0.1", b"true", b"null", b"NaN", b"\\", b'\\"', b"\\u0000", b"\\\\"),
    *(b'"\\u0000"', b'"\\\\u0000"', b"\\ud800", b"\\udc00", b"\xff", b"\0", b'"\\n\\t"', "ä".encode(), b"[]", b"{}", b"1" * 310),
]  # fmt: skip


def make_value(chance: random.Random, levels: int) -> Any:
    kind = chance.randrange(8 if levels else 5)
    if kind >= 6:
        return {chance.choice('abcdä"\\'): make_value(chance, levels - 1) for _ in range(chance.randrange(4))}
    if kind == 5:
        return [make_value(chance, levels - 1) for _ in range(chance.randrange(4))]
    return (
        None,
        True,
        chance.randrange(-99, 99),
        chance.random() * 1e300,
        chance.choice(["", "a", 'a"\\', "\x01", "\U0001f600"]),
    )[kind]


def is_refused_by_readers(text: bytes) -> bool:
    """The judgement of readers that build all values."""

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a key twice")
        return made

    try:
        json.loads(text, object_pairs_hook=check)
        return "\\u0000" in json.dumps(msgspec.json.decode(text)).replace("\\\\", "")
    except (ValueError, RecursionError):
        return True


@pytest.mark.parametrize("seed", range(20))
def test_random_texts_are_refused_if_a_reader_refuses_them_or_its_value_holds_nul(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(400):
        text = json.dumps(make_value(chance, 4), ensure_ascii=chance.random() < 0.5).encode()
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(PIECES) + text[at + chance.randrange(2) :]
        try:
            refuse_doubtful_json(text, "it")
            is_refused = False
        except InvalidInput:
            is_refused = True
        assert is_refused == is_refused_by_readers(text), text
        refused += is_refused
    assert 50 < refused < 350


@pytest.mark.parametrize("data", [b"[" * 100_000 + b"]" * 100_000, b"[" * 100_000, b'{"a":' * 100_000])
def test_of_a_deep_text_only_the_beginning_is_measured(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[bytes] = []

    def measure(data: bytes, what: str) -> None:
        measured.append(data)
        refuse_deep(data, what)

    monkeypatch.setattr(codec, "refuse_deep", measure)
    with pytest.raises(InvalidInput, match="nested more than 100 levels deep"):
        refuse_doubtful_json(data, "the body")
    assert len(measured) == 1
    assert len(measured[0]) < 1_000


def test_a_refusal_shows_the_beginning_of_a_long_key() -> None:
    key = "k" * 100_000
    with pytest.raises(InvalidInput) as refused:
        refuse_doubtful_json(f'{{"{key}": 1, "{key}": 2}}'.encode(), "the body")
    assert len(str(refused.value)) < 200
