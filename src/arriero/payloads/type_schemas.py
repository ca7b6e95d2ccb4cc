"""JSON Schemas of the types that code declares, for those who make forms of them. Imported by nobody who runs tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .pydantic_models import is_model

ANY: Mapping[str, Any] = {}  # the schema of any value
NO_DEFAULT: Any = object()


def describe_type(of: Any) -> bytes:
    """Describe a type as JSON Schema; of a type that has none, the schema of any value."""
    (schema,), defs = _describe([of])
    return msgspec.json.encode({**schema, "$defs": defs} if defs else schema)


def describe_members(members: Sequence[tuple[str, Any, Any]]) -> bytes:
    """Describe a JSON object with members of these types.

    Args:
        members: the name, the type and the default of each; ``NO_DEFAULT``: it is required.
    """
    schemas, defs = _describe([of for _, of, _ in members])
    properties = {}
    for (name, _, default), schema in zip(members, schemas, strict=True):
        properties[name] = dict(schema)
        if default is not NO_DEFAULT and (plain := _write_default(default)) is not NO_DEFAULT:
            properties[name]["default"] = plain
    required = [name for name, _, default in members if default is NO_DEFAULT]
    found = {"type": "object", "properties": properties, "required": required}
    return msgspec.json.encode({**found, "$defs": defs} if defs else found)


def _write_default(default: Any) -> Any:
    try:
        return msgspec.to_builtins(default)
    except Exception:  # a type of users, which only its own annotation could write
        return NO_DEFAULT


def _describe(types: Sequence[Any]) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """Describe types, which share their definitions; each of those that has no schema as any value."""
    try:
        return _describe_all(types)
    except Exception:  # also what a model's own hooks raise
        if len(types) < 2:
            return [ANY] * len(types), {}
    found, shared = [], dict[str, Any]()
    for of in types:
        (schema,), defs = _describe([of])
        is_clash = any(shared.get(name, one) != one for name, one in defs.items())
        found.append(ANY if is_clash else schema)
        shared |= {} if is_clash else defs
    return found, shared


def _describe_all(types: Sequence[Any]) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    of_models: dict[str, Any] = {}

    def describe_model(of: Any) -> dict[str, Any]:
        if not is_model(of):
            raise NotImplementedError
        schema: dict[str, Any] = of.model_json_schema()
        for name, one in schema.pop("$defs", {}).items():
            if of_models.setdefault(name, one) != one:
                raise ValueError(name)
        return schema

    schemas, defs = msgspec.json.schema_components(types, schema_hook=describe_model, ref_template="#/$defs/{name}")
    if any(of_models.get(name, one) != one for name, one in defs.items()):
        raise ValueError("two types of one name")
    return list(schemas), {**of_models, **defs}
