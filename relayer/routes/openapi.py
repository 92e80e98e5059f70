"""GET /schema/openapi.json: what every route takes and how it answers, for whoever asks.

Not here: what the document says (`http/openapi.py`). The framework would serve pages around it,
which load programs from elsewhere, and says in HTML which of them it lacks; so it serves none.
"""

from typing import Annotated, Any, Final, Literal, TypedDict

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from msgspec import Meta

from relayer.http.checks import PUBLIC
from relayer.http.openapi import OPENAPI, Document

# Without this, generators take an object for one that is always empty.
_Parts = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]


class Info(TypedDict):
    """The name of what is described, and its version."""

    title: str
    version: str


class OpenApiAnswer(TypedDict):
    """An OpenAPI 3.1 document."""

    openapi: Literal["3.1.0"]
    info: Info
    paths: _Parts
    components: _Parts


_DOCUMENT: Final = ResponseSpec(
    OpenApiAnswer, generate_examples=False, description="this document", media_type=OPENAPI
)


@get(["/schema", "/schema/openapi.json"], opt={PUBLIC: True}, responses={200: _DOCUMENT})
async def get_document(
    request: Request[Any, Any, Any], document: NamedDependency[Document]
) -> Response[bytes]:
    """Return the OpenAPI document of this relayer."""
    return Response(document.of(request.app.routes), media_type=OPENAPI)


HANDLERS: Final = (get_document,)
