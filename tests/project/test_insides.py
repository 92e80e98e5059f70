"""Where we reach inside a library: what has to be there, in which modules, and up to which release.

Not here: that what is built on it works (`routes/test_dispatch.py`, `telemetry/`, `client/` …).

- A name below is no public interface, or is one that we subclass and rely on being called.
- A library that is reached into has an upper bound; who raises it runs this first.
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from litestar import Litestar, Request, get
from litestar.routes import HTTPRoute
from nacl import _sodium
from packaging.requirements import Requirement
from pgqueuer import AsyncpgDriver, Queries, QueueManager
from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ROOT = Path(__file__).parents[2]


class Inside(NamedTuple):
    """What we reach for in one library.

    Attributes:
        project: the file that bounds it.
        modules: those that reach for it, and no other may.
        words: what marks a module that does.
        wanted: an object by name, and the attributes that it must have.
    """

    project: str
    modules: frozenset[str]
    words: str
    wanted: Callable[[], dict[str, tuple[object, str]]]


def _of_litestar() -> dict[str, tuple[object, str]]:
    @get("/", sync_to_thread=False)
    def handler() -> None:
        pass

    app = Litestar([handler], openapi_config=None, logging_config=None)  # it would be for all tests
    [route] = app.routes
    assert isinstance(route, HTTPRoute)
    node = app.asgi_router.root_route_map_node
    called = node.children["/"].asgi_handlers["GET"]
    found, model = route.route_handler_map["GET"]
    scope: Any = {"type": "http"}  # all that the request looks at here
    return {
        "a node of the router": (node, "children"),
        "what is called for a method": (called, "asgi_app _replace"),
        "a route": (route, "handle path_parameters"),
        "the model of a handler's parameters": (model, "dependency_batches"),
        "a handler": (
            found,
            "authorize_connection fn has_sync_callable ownership_layers parsed_data_field"
            " parsed_fn_signature resolve_after_response resolve_before_request resolve_guards"
            " resolve_request_class resolve_response_class to_response",
        ),
        "a request": (Request(scope), "_body"),
    }


def _of_uvicorn() -> dict[str, tuple[object, str]]:
    config = Config(app="nothing:here", http="httptools", log_config=None)
    protocol = inspect.getsource(HttpToolsProtocol)
    own = "connections cycle headers loop parser transport".split()
    return {
        "a protocol's source": ([n for n in own if f"self.{n}" in protocol], "__len__"),
        "a protocol": (
            HttpToolsProtocol,
            "connection_made connection_lost data_received on_message_begin on_url on_header"
            " on_headers_complete on_message_complete on_response_complete pause_writing"
            " resume_writing send_400_response timeout_keep_alive_handler shutdown"
            " _unset_keepalive_if_required",
        ),
        "a server": (Server(config), "server_state startup capture_signals"),
        "a server's state": (Server(config).server_state, "connections"),
    }


def _of_prometheus() -> dict[str, tuple[object, str]]:
    return {
        "a file of counts": (MmapedDict, "read_all_values_from_file read_value write_value close"),
        "the module for several processes": (
            multiprocess,
            "mark_process_dead MultiProcessCollector",
        ),
    }


def _of_pgqueuer() -> dict[str, tuple[object, str]]:
    manager = dict.fromkeys(inspect.signature(QueueManager).parameters)
    fields = {**manager, **QueueManager.__dataclass_fields__}
    assert {"job_context", "shutdown"} <= fields.keys(), missing("pgqueuer", "a queue manager")
    return {
        "its statements": (
            Queries,
            "dequeue update_heartbeat retry_job log_jobs enqueue install upgrade"
            " schema_is_installed",
        ),
        "a queue manager": (QueueManager, "entrypoint run"),
        "a driver": (AsyncpgDriver, "execute fetch"),
    }


def _of_pynacl() -> dict[str, tuple[object, str]]:
    return {
        "what calls libsodium": (_sodium.lib, "crypto_aead_xchacha20poly1305_ietf_decrypt"),
        "its buffers": (_sodium.ffi, "from_buffer NULL"),
    }


def _of_httpx() -> dict[str, tuple[object, str]]:
    with httpx.Client() as client:
        pool: Any = getattr(client._transport, "_pool", None)
        backend: Any = getattr(pool, "_network_backend", None)
        return {
            "a client": (client, "_transport _mounts _cookies"),
            "a transport": (client._transport, "_pool"),
            "a pool": (pool, "_network_backend"),
            "what connects": (
                backend,
                "connect_tcp connect_unix_socket sleep",
            ),
            "the module of what connects": (
                sys.modules[type(backend).connect_tcp.__module__],
                "SyncStream",
            ),
        }


INSIDES = {
    "litestar": Inside(
        "pyproject.toml",
        frozenset(["relayer/http/dispatch.py"]),
        r"asgi_router|route_map_node|dependency_batches|authorize_connection",
        _of_litestar,
    ),
    "uvicorn": Inside(
        "pyproject.toml",
        frozenset(["relayer/http/connections.py", "relayer/serve.py"]),
        r"uvicorn\.protocols|server_state|\(uvicorn\.Server\)",
        _of_uvicorn,
    ),
    "prometheus-client": Inside(
        "pyproject.toml",
        frozenset(["relayer/telemetry/dead_workers.py"]),
        r"mmap_dict|mark_process_dead",
        _of_prometheus,
    ),
    "pgqueuer": Inside(
        "pyproject.toml",
        frozenset(["relayer/acknowledgements.py", "relayer/jobs.py"]),
        r"(?s)from pgqueuer import.*\(Queries\)|\.job_context",
        _of_pgqueuer,
    ),
    "pynacl": Inside(
        "pyproject.toml",
        frozenset(["relayer/sealed/bulk_opening.py"]),
        r"nacl\._sodium",
        _of_pynacl,
    ),
    "httpx": Inside(
        "client/pyproject.toml",
        frozenset(["client/memrelay/transport.py"]),
        r"\._network_backend|\._mounts|\._cookies\b|client\._transport",
        _of_httpx,
    ),
}


def missing(library: str, what: str) -> str:
    """What to do, for whoever raised a bound."""
    inside = INSIDES[library]
    return (
        f"{library} {metadata.version(library)} changed {what}, which {sorted(inside.modules)}"
        f" reach for. Mend these, or keep {library} below this release in {inside.project}."
    )


@pytest.mark.parametrize("library", INSIDES)
def test_what_we_reach_for_is_there(library: str) -> None:
    try:
        wanted = INSIDES[library].wanted()
    except (AttributeError, KeyError, TypeError) as error:
        raise AssertionError(missing(library, f"a way to its insides ({error})")) from error
    for what, (found, names) in wanted.items():
        absent = [name for name in names.split() if not hasattr(found, name)]
        assert not absent, missing(library, f"{', '.join(absent)} of {what}")


@pytest.mark.parametrize("library", INSIDES)
def test_what_is_reached_into_has_an_upper_bound(library: str) -> None:
    declared = tomllib.loads((ROOT / INSIDES[library].project).read_text())["project"]
    required = {one.name: one for one in map(Requirement, declared["dependencies"])}[library]
    bounds = [one for one in required.specifier if one.operator == "<"]
    assert bounds, f"{library} has no upper bound in {INSIDES[library].project}"
    # No release that nobody has looked into: the next minor one is beyond it.
    major, minor = metadata.version(library).split(".")[:2]
    assert not required.specifier.contains(f"{major}.{int(minor) + 1}")


@pytest.mark.parametrize("library", INSIDES)
def test_nobody_else_reaches_inside(library: str) -> None:
    inside = INSIDES[library]
    files = [*(ROOT / "relayer").rglob("*.py"), *(ROOT / "client/memrelay").rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)) for path in files if re.search(inside.words, path.read_text())
    }
    assert found == inside.modules
