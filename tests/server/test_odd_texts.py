"""Texts that readers of numbers, instants, ids and Unicode stumble over, at every place of a request: none is a failure of ours."""

import re
from typing import Any

import msgspec
import pytest
from server_shop import ShopWorld, open_shop

from arriero.server.caller_limits import RatePolicy
from arriero.server.openapi import build_openapi
from arriero.server.routing import GateLimits

UNLIMITED = GateLimits(rate=RatePolicy(1e9, 10**9), agent_rate=RatePolicy(1e9, 10**9))
JSON = {"Content-Type": "application/json"}
NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "1e-400",
    "1e18",
    "0x10",
    "1_0",
    "+5",
    "\uff11",
    "\u0663",
    " 1 ",
    "1" * 5_000,
]
NUMBERS += ["9223372036854775808", "-9223372036854775809", "true", "null", "[]", "", "a\0b", "\u202e"]
INSTANTS = [
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59+00:00",
    "2026-W01-1",
    "20261120T141517Z",
]
IDS = [
    "%00",
    "%ED%A0%80",
    "%C0%AF",
    "%FF",
    "%2e%2e",
    "%2F",
    "%E2%80%AE",
    "a%0d%0ab",
    "x" * 300,
    "%F0%9F%92%A9",
    "%u1234",
    "%",
    "%zz",
]
IDS += ["a:b:cancel", "%25", "a%3Fb%23"]
ORDER = '"workflow":"fulfil","arguments":{"order":{"item":"lamp"}}'
VALUES = [
    "1e999",
    "-1",
    "NaN",
    "Infinity",
    "1e18",
    "9" * 400,
    "1.5",
    "true",
    '"5"',
    "-0",
    "1e-999",
    "9" * 30,
    "9007199254740993",
]
BODIES = [
    f'{{{ORDER},"{name}":{value}}}' for name in ("delay", "priority", "sequence", "id", "convoy") for value in VALUES
]
BODIES += [
    f'{{"workflow":"fulfil","arguments":{{"order":{{"item":{value}}}}}}}'
    for value in (*VALUES, '"\\ud800"', '"\\u0000"', "1" * 5_000)
]
BODIES += [
    "[" * 5_000,
    '{"a":' * 5_000,
    '"\\ud83d"',
    "\ufeff{}",
    '{"workflow":"\\ud800"}',
    f'{{{ORDER},"id":"{"é" * 256}"}}',
    "",
    "null",
]
HEADERS = [
    ("Prefer", f"wait={'9' * 5_000}"),
    ("Prefer", "wait=\u0663"),
    ("Prefer", "," * 9_000),
    ("Last-Event-ID", "x"),
    ("Content-Length", "\u0663"),
]
HEADERS += [
    ("Idempotency-Key", '"'),
    ("Idempotency-Key", '""'),
    ("Idempotency-Key", "a" * 256),
    ("traceparent", f"00-{'0' * 32}"),
    ("Host", "["),
]


def list_operations(world: ShopWorld) -> list[tuple[str, str, list[str]]]:
    """Method, path with its templates, and the parameters of the query, of each operation but streams of events."""
    document = msgspec.json.decode(msgspec.json.encode(build_openapi(world.server.routes)))
    return [
        (method.upper(), path, [one["name"] for one in of.get("parameters", []) if one["in"] == "query"])
        for path, methods in document["paths"].items()
        for method, of in methods.items()
        if not path.endswith("/events")
    ]


async def test_no_odd_text_in_a_query_or_a_path_is_a_failure() -> None:
    failed: list[Any] = []
    async with open_shop(limits=UNLIMITED) as world:
        for method, path, names in list_operations(world):
            somewhere = re.sub(r"\{[^}]*\}", "x", path)
            urls = [(somewhere, {name: text}) for name in names for text in (*NUMBERS, *INSTANTS)]
            urls += [(f"{somewhere}?{name}={text}", {}) for name in names for text in ("%ED%A0%80", "%FF", "%")]
            urls += [
                (path.replace(template, text), {}) for template in re.findall(r"\{[^}]*\}", path)[:1] for text in IDS
            ]
            for url, query in urls:
                plain = re.sub(r"\{[^}]*\}", "x", url)
                body = {} if method == "GET" else {"json": {"reason": "x"}}
                answer = await world.http.request(method, plain, **({"params": query} if query else {}), **body)
                if answer.status_code >= 500 and answer.json()["code"] != "not-open":
                    failed.append((method, url[:80], query, answer.text[:150]))
    assert failed == []


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks:submit"])
async def test_no_odd_text_in_a_body_is_a_failure(path: str) -> None:
    async with open_shop(limits=UNLIMITED) as world:
        assert any(known == path for _, known, _ in list_operations(world))
        for body in BODIES:
            text = f'{{"tasks":[{body}]}}' if "submit" in path else body
            answer = await world.http.post(path, content=text.encode(), headers=JSON)
            assert answer.status_code < 500, (body[:80], answer.text)


async def test_no_odd_text_in_a_header_is_a_failure() -> None:
    body = b'{"workflow":"inspect_item","arguments":{"item":"x"}}'
    async with open_shop(limits=UNLIMITED) as world:
        for name, text in HEADERS:
            headers = {"content-type": b"application/json", name: text.encode()}
            answer = await world.http.post("/v1/tasks", content=body, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code < 500, (name, text[:40], answer.text)
