"""The OpenAPI document: every operation stands in it, with examples that are what they are examples of."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from server_shop import ShopApp, bearer, open_shop
from server_world import TOKENS, FixedTokens

from arriero.server.application import build_application
from arriero.server.openapi import build_openapi, list_problems
from arriero.server.routes import GROUPS
from arriero.server.routing import Operation

OPERATIONS = [operation for group in GROUPS for operation in group.operations]
NAMES = [f"{operation.method} {operation.path}" for operation in OPERATIONS]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    server = build_application(ShopApp().app, FixedTokens())
    return msgspec.json.decode(msgspec.json.encode(build_openapi(server.routes)))  # type: ignore[no-any-return]


async def test_any_token_reads_the_document_and_nobody_without_one() -> None:
    async with open_shop() as world:
        for scope in TOKENS:
            answer = await world.http.get("/v1/openapi.json", headers=bearer(scope))
            assert answer.json()["openapi"] == "3.1.0"
        assert (await world.http.get("/v1/openapi.json", headers={"Authorization": ""})).status_code == 401


def test_every_operation_stands_in_the_document_with_its_scope_and_its_refusals(document: dict[str, Any]) -> None:
    count = sum(len(methods) for methods in document["paths"].values())
    assert count == len(OPERATIONS)
    for operation in OPERATIONS:
        part = document["paths"][operation.path][operation.method.lower()]
        assert part["operationId"] == operation.function.__name__
        assert ("x-scope" in part) is not bool(operation.needs.public)
        for problem in list_problems(operation):
            said = _resolve(document, part["responses"][str(problem.status)])["content"]["application/problem+json"]
            assert problem.code in said["examples"]


def test_operations_have_names_of_their_own() -> None:
    names = [operation.function.__name__ for operation in OPERATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_every_example_is_what_it_is_an_example_of(operation: Operation, document: dict[str, Any]) -> None:
    part = document["paths"][operation.path][operation.method.lower()]
    if operation.body is not None:
        assert operation.examples, "an operation with a body has an example of it"
        schema = part["requestBody"]["content"][operation.body_media]["schema"]
        for example in operation.examples.values():
            _validate(document, schema, example)
            msgspec.json.decode(msgspec.json.encode(example), type=operation.body)
    if operation.answer is not None:
        media = part["responses"][str(operation.status)]["content"][operation.answer_media]
        _validate(document, media["schema"], operation.example)
        msgspec.json.decode(msgspec.json.encode(operation.example), type=operation.answer)
    for response in part["responses"].values():
        for media in _resolve(document, response).get("content", {}).values():
            for example in media.get("examples", {}).values():
                _validate(document, media["schema"], example["value"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_no_example_of_an_answer_has_an_empty_id(operation: Operation) -> None:
    if operation.answer is not None:
        assert list(_list_empty_ids(operation.example)) == []


def _list_empty_ids(example: Any) -> Iterator[str]:
    """List the members that tools take for an id in a path, and that are empty."""
    for name, value in example.items() if isinstance(example, dict) else ():
        if value == "" and name in ("agent", "id", "key", "ledger", "name"):
            yield name
        yield from _list_empty_ids(value)
    for value in example if isinstance(example, list) else ():
        yield from _list_empty_ids(value)


def _resolve(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    name = response.get("$ref", "").rpartition("/")[2]
    return dict(document["components"]["responses"][name]) if name else response


def _validate(document: dict[str, Any], schema: Any, value: Any) -> None:
    jsonschema_rs.validate({**schema, "components": document["components"]}, value)


def test_the_document_names_no_schema_that_is_not_there(document: dict[str, Any]) -> None:
    text = msgspec.json.encode(document).decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])
