"""Bodies that some door might take otherwise than another, and what each of them is worth at every door."""

import math
from typing import Any, NamedTuple

from arriero import App, workflow
from arriero.payloads.codec import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX


@workflow
async def take(value: Any) -> Any:
    return value


@workflow
async def amount(value: float) -> float:
    return value


class Doors(App):
    """An App that knows the URL it was given, with its password."""

    given = ""


def app_on(store: str) -> Doors:
    app = Doors("doors", workflows=[take, amount], store=store)
    app.given = store
    return app


app = App("doors", workflows=[take, amount])  # for the command line, which is told the store
NOT_AS_VALUE = object()  # only a text can say it


class Body(NamedTuple):
    """One submission.

    Args:
        text: the arguments as JSON.
        value: the same as the argument ``value`` of a call in Python.
        kept: what is recorded, as JSON text; None: it is refused.
        named: what a refusal must say, by some door one of them.
    """

    text: str
    value: Any = NOT_AS_VALUE
    kept: str | None = None
    named: tuple[str, ...] = ()


def levels(count: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(count - 1):
        value = [value]
    return value


def of_bytes(size: int) -> str:
    """A value whose arguments have just so many bytes."""
    return "x" * (size - len('{"value":""}'))


def number(text: str, kept: str | None = None) -> Body:
    kept = text if kept is None else kept
    return Body(f'{{"value": {text}}}', float(text), f'{{"value":{kept}}}')


AT_LIMIT, TOO_DEEP = levels(PAYLOAD_DEPTH_MAX - 1), levels(PAYLOAD_DEPTH_MAX)
LARGE, TOO_LARGE = of_bytes(PAYLOAD_BYTES_MAX), of_bytes(PAYLOAD_BYTES_MAX + 1)
INNERMOST = "[" * (PAYLOAD_DEPTH_MAX - 1) + "]" * (PAYLOAD_DEPTH_MAX - 1)
DIGITS = "7" * 4300
DEEP = ("nested more than 100 levels deep",)
SIZE = ("1,000,001 bytes; the limit is 1,000,000", "1000001 bytes; the limit is 1000000")
BEYOND = ("holds inf", "holds -inf", "out of range")
TOO_LONG = ("Exceeds the limit", "out of range", "4301 characters")
NO_TEXT = ("lone surrogate", "is not JSON", "no JSON that can be recorded")

BODIES: dict[str, Body] = {
    "fields in any order, with spaces": Body(
        '{ "value" : {"b": 1,\n"a": [true, null]} }', {"b": 1, "a": [True, None]}, '{"value":{"a":[true,null],"b":1}}'
    ),
    "escapes": Body('{"value": "\\u00e9\\/\\n\\u007f\\ud83d\\ude00"}', "é/\n\x7f😀", '{"value":"é/\\n\x7f😀"}'),
    "a key twice": Body('{"value": {"a": 1, "a": 2}}', named=("'a' twice",)),
    "a key twice, spelled otherwise": Body('{"value": [{"a": 1, "\\u0061": 2}]}', named=("'a' twice",)),
    "an argument twice": Body('{"value": 1, "value": 2}', named=("'value' twice",)),
    "NaN": Body('{"value": NaN}', math.nan, named=("holds nan", *NO_TEXT)),
    "Infinity": Body('{"value": -Infinity}', -math.inf, named=("holds -inf", *NO_TEXT)),
    "1e400": Body('{"value": 1e400}', math.inf, named=BEYOND),
    "-1e5000": Body('{"value": [-1e5000]}', [-math.inf], named=BEYOND),
    "minus zero": number("-0.0"),
    "minus zero, whole": Body('{"value": -0}', 0, '{"value":0}'),
    "an exponent": number("1e2", "100.0"),
    "a large exponent": number("1.5E+300", "1.5e300"),
    "1e15": number("1e15", "1000000000000000.0"),
    "1e16": number("1e16"),
    "1e-5": number("1e-5", "0.00001"),
    "1e-6": number("1e-6"),
    "the smallest": number("5e-324"),
    "the largest": number("1.7976931348623157e308"),
    "more digits than a float has": number("0.1000000000000000055511151231257827", "0.1"),
    "a whole float": number("2.50", "2.5"),
    "64 bits and one": Body(f'{{"value": {2**64}}}', 2**64, f'{{"value":{2**64}}}'),
    "an integer that no float tells": Body(f'{{"value": {2**53 + 1}}}', 2**53 + 1, f'{{"value":{2**53 + 1}}}'),
    "4,300 digits": Body(f'{{"value": {DIGITS}}}', int(DIGITS), f'{{"value":{DIGITS}}}'),
    "4,300 digits and a sign": Body(f'{{"value": -{DIGITS}}}', -int(DIGITS), named=TOO_LONG),
    "4,301 digits": Body(f'{{"value": 1{DIGITS}}}', 10**4300, named=TOO_LONG),
    "a lone surrogate": Body('{"value": "a\\ud800b"}', "a\ud800b", named=NO_TEXT),
    "a lone surrogate in a key": Body('{"value": {"\\udc00": 1}}', {"\udc00": 1}, named=NO_TEXT),
    "NUL": Body('{"value": "a\\u0000"}', "a\0", named=("NUL character", "cannot be converted to text")),
    "NUL in a key": Body(
        '{"value": {"\\u0000": 1}}', {"\0": 1}, named=("NUL character", "cannot be converted to text")
    ),
    "a bare control character": Body('{"value": "a\tb\x01"}', named=NO_TEXT),
    "as deep as may be": Body(f'{{"value": {INNERMOST}}}', AT_LIMIT, f'{{"value":{INNERMOST}}}'),
    "one level too deep": Body(f'{{"value": [{INNERMOST}]}}', TOO_DEEP, named=DEEP),
    "3,000 levels": Body(
        f'{{"value": {"[" * 3000}{"]" * 3000}}}', levels(3000), named=("nested more than 100 levels deep",)
    ),
    "brackets in texts": Body(f'{{"value": "{"[{" * 200}\\""}}', "[{" * 200 + '"', f'{{"value":"{"[{" * 200}\\""}}'),
    "as large as may be": Body(f'{{"value": "{LARGE}"}}', LARGE, f'{{"value":"{LARGE}"}}'),
    "one byte too large": Body(f'{{"value": "{TOO_LARGE}"}}', TOO_LARGE, named=SIZE),
    "no object": Body("[1]", named=("object",)),
    "null": Body("null", named=("object",)),
    "nothing": Body("", named=NO_TEXT),
    "two values": Body('{"value": 1} {}', named=NO_TEXT),
    "a comma too many": Body('{"value": [1,]}', named=NO_TEXT),
    "not closed": Body('{"value": [[[[', named=NO_TEXT),
}
