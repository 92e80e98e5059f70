"""A handler that is called without the framework's way of calling answers as one that is not."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, Response, Router, delete, get, post, route
from litestar.background_tasks import BackgroundTask
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import JSONBody
from litestar.response import Stream
from litestar.types import ASGIApp, Receive, Scope, Send

from relayer.errors import NotFound, RelayerError
from relayer.http import middleware
from relayer.http.bodies import Strict
from relayer.http.dispatch import JsonRequest, JsonResponse, call_plainly
from tests.signing import client_of

JSON = {"content-type": "application/json"}
said: list[str] = []  # what was called beside the handlers, in order


class Form(Strict):
    a: int


class OtherRequest(JsonRequest):
    """What a route may have for itself."""


async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    said.append("guard")
    if "x-refused" in connection.headers:
        raise PermissionDeniedException


async def before(request: Request[Any, Any, Any]) -> dict[str, Any] | None:
    said.append("before")
    return {"early": True} if "x-early" in request.headers else None


async def after_request(response: Any) -> Any:
    said.append("after request")
    return response


async def after_response(_: Request[Any, Any, Any]) -> None:
    said.append("after response")


def around(app: ASGIApp) -> ASGIApp:
    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        said.append("around")
        await app(scope, receive, send)

    return called


async def who(request: Request[Any, Any, Any]) -> str:
    return request.headers.get("x-who", "nobody")


async def somebody_else() -> str:
    return "somebody else"


async def work() -> dict[str, Any]:
    return {"a": 1}


async def taken(data: JSONBody[Form]) -> dict[str, Any]:
    return {"a": data.a}


async def all_taken(
    request: Request[Any, Any, Any],
    data: JSONBody[Form],
    who: NamedDependency[str],
    part: NamedDependency[str],
) -> dict[str, Any]:
    return {"body": (await request.body()).decode(), "a": data.a, "who": who, "part": part}


async def named(who: NamedDependency[str]) -> dict[str, Any]:
    return {"who": who}


async def answered() -> Response[Any]:
    async def noted() -> None:
        said.append("afterwards")

    cookies = [Cookie(key="k", value="v")]
    return Response(
        {}, status_code=207, headers={"x-a": "b"}, cookies=cookies, background=BackgroundTask(noted)
    )


async def streamed() -> Stream:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    return Stream(parts(), media_type="text/event-stream")


async def listed() -> list[int]:
    return [1]


async def nothing() -> None:
    return None


async def refused() -> None:
    raise NotFound("No such thing.", headers={"x-why": "because"})


async def failed() -> None:
    raise ValueError("secret")


async def teapot() -> None:
    raise HTTPException(status_code=418)


async def maybe(data: JSONBody[Form | None] = None) -> dict[str, Any]:
    return {"a": data and data.a}


async def asked(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return {"is": type(request).__name__}


def waited() -> dict[str, Any]:
    return {"a": 1}


def plain() -> list[HTTPRouteHandler]:
    """Handlers that are called plainly."""
    return [
        get("/plain/work")(work),
        post("/plain/taken", status_code=202)(taken),
        post("/plain/all")(all_taken),
        post("/plain/guarded", guards=[guard])(taken),
        post("/plain/before", before_request=before)(taken),
        get("/plain/answered")(answered),
        get("/plain/streamed")(streamed),
        get("/plain/listed")(listed),
        delete("/plain/nothing")(nothing),
        get("/plain/refused")(refused),
        get("/plain/failed")(failed),
        get("/plain/teapot")(teapot),
        route("/plain/several", http_method=["GET", "HEAD", "POST"], status_code=200)(work),
    ]


def peculiar() -> list[HTTPRouteHandler | Router]:
    """Handlers that have something of their own, which is the framework's to do."""
    others = {"who": Provide(somebody_else)}
    return [
        get("/own/around", middleware=[around])(work),
        get("/own/kept", cache=True)(work),
        get("/own/after-request", after_request=after_request)(work),
        get("/own/after-response", after_response=after_response)(work),
        get("/own/request", request_class=OtherRequest)(asked),
        get("/own/answer", response_class=Response)(work),
        get("/own/waited", sync_to_thread=False)(waited),
        post("/own/maybe")(maybe),
        get("/own/part", dependencies=others)(named),
        Router("/own/of-a-router", route_handlers=[get("/")(named)], dependencies=others),
    ]


def application(*, plainly: bool) -> Litestar:
    """These handlers, as `build_app` has its own."""
    parts = {"part": "a part"}
    app = Litestar(
        route_handlers=[*plain(), *peculiar()],
        guards=[guard],
        dependencies={
            "who": Provide(who),
            "part": Provide(lambda: parts["part"], sync_to_thread=False),
        },
        exception_handlers={
            RelayerError: middleware.relayer_error,
            HTTPException: middleware.http_error,
            Exception: middleware.unexpected_error,
        },
        request_class=JsonRequest,
        response_class=JsonResponse,
        request_max_body_size=64,
        openapi_config=None,
        logging_config=None,
    )
    if plainly:
        call_plainly(app, parts, {"who": who})
    return app


def paths_of(handlers: Sequence[HTTPRouteHandler | Router]) -> list[str]:
    return [
        handler.path if isinstance(handler, Router) else min(handler.paths) for handler in handlers
    ]


ASKED: Mapping[str, tuple[dict[str, str], bytes]] = {
    "nothing": ({}, b""),
    "nothing of JSON": (JSON, b""),
    "its form": (JSON | {"x-who": "Anna"}, b'{"a": 1}'),
    "no form": (JSON, b'{"a": "1"}'),
    "an unknown member": (JSON, b'{"a": 1, "b": 2}'),
    "no JSON": (JSON, b"{"),
    "null": (JSON, b"null"),
    "another type": ({"content-type": "text/plain"}, b'{"a": 1}'),
    "packed": (JSON | {"content-encoding": "gzip"}, b'{"a": 1}'),
    "too much": (JSON, b'{"a": 1' + b" " * 64 + b"}"),
    "what is refused": (JSON | {"x-refused": ""}, b'{"a": 1}'),
    "what is answered early": (JSON | {"x-early": ""}, b'{"a": 1}'),
}


async def heard(client: httpx.AsyncClient, method: str, path: str, name: str) -> object:
    """An answer, and what was called for it."""
    headers, body = ASKED[name]
    said.clear()
    answer = await client.request(method, path, headers=headers, content=body)
    answer.headers["allow"] = str(sorted(answer.headers.get("allow", "").split(", ")))
    return answer.status_code, answer.headers.multi_items(), answer.content, list(said)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("handlers", [plain, peculiar])
async def test_answers_are_the_frameworks(
    name: str, handlers: Callable[[], Sequence[HTTPRouteHandler | Router]]
) -> None:
    async with (
        client_of(application(plainly=True)) as ours,
        client_of(application(plainly=False)) as the_frameworks,
    ):
        for path in paths_of(handlers()):
            for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"):
                answer = await heard(ours, method, path, name)
                assert answer == await heard(the_frameworks, method, path, name), (method, path)


def test_whoever_has_something_of_their_own_is_left_to_the_framework() -> None:
    found = application(plainly=True).asgi_router.root_route_map_node.children
    theirs = application(plainly=False).asgi_router.root_route_map_node.children
    ours = {
        str(path)
        for path, node in found.items()
        for method, called in node.asgi_handlers.items()
        if type(called.asgi_app) is not type(theirs[path].asgi_handlers[method].asgi_app)
    }
    assert ours == set(paths_of(plain()))
