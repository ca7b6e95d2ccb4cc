"""The OpenAPI document, as the server that is asked has it."""

from starlette.responses import Response

from ..calls import Call
from ..openapi import build_openapi
from ..routing import RouteGroup
from ..scopes import ANY_TOKEN

document = RouteGroup("document")


@document.operation(
    "GET",
    "/v1/openapi.json",
    ANY_TOKEN,
    summary="This document, in OpenAPI 3.1.",
    answer=dict,
    answer_example={"openapi": "3.1.0"},
)
async def show_document(call: Call) -> Response:
    state = call.request.app.state
    if not hasattr(state, "openapi"):
        document = build_openapi(call.request.app.routes)
        if call.root:
            document["servers"] = [{"url": call.root}]
        state.openapi = call.encode(document)
    return Response(state.openapi, media_type="application/json")
