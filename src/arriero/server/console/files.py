"""The route of the files that pages load. They hold no data, and the page to sign in needs them."""

import mimetypes

from starlette.responses import Response

from ..calls import Call
from ..problems import NOT_FOUND, Problem
from ..scopes import Needs
from .assets import compute_edition, read_assets
from .page import console

FOR_A_YEAR = "public, max-age=31536000, immutable"  # another content has another path


@console.operation(
    "GET",
    "/static/{edition}/{name}",
    Needs(public="a style sheet and programs for browsers hold no data, and the page to sign in needs them"),
    is_page=True,
    summary="A file that pages load.",
    answer_media="text/css",
)
async def show_file(call: Call, edition: str, name: str) -> Response:
    content = read_assets().get(name)
    if content is None:
        raise Problem(NOT_FOUND, "the console has no file of this name")
    caching = FOR_A_YEAR if edition == compute_edition() else "no-cache"  # of a page from before a release
    media, _ = mimetypes.guess_type(name)
    return Response(content, media_type=media or "text/plain", headers={"Cache-Control": caching})
