"""GET /schema/openapi.json: what every route takes and how it answers, for whoever asks.

Not here: what the document says (`http/openapi.py`). The framework would serve pages around it,
which load programs from elsewhere, and says in HTML which of them it lacks; so it serves none.
"""

from typing import Any, Final

from litestar import Request, Response, get
from litestar.di import NamedDependency

from relayer.http.checks import PUBLIC
from relayer.http.openapi import OPENAPI, Document


@get(["/schema", "/schema/openapi.json"], opt={PUBLIC: True})
async def openapi(
    request: Request[Any, Any, Any], document: NamedDependency[Document]
) -> Response[bytes]:
    """The OpenAPI document of this relayer."""
    return Response(document.of(request.app.routes), media_type=OPENAPI)


HANDLERS: Final = (openapi,)
