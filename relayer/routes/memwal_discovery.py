"""Routes that clients ask first: version, health, and MemWal's stand-in for a blockchain.

Not here: what the stand-in says (`http/sui.py`).
"""

from typing import Any, Final, Literal, TypedDict

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import SkipValidation

from relayer import __version__
from relayer.embedding.embedders import Embedder
from relayer.errors import BadRequest
from relayer.http import bodies, sui
from relayer.http.checks import PUBLIC
from relayer.http.public_url import PublicUrl
from relayer.monitoring.readiness import Readiness
from relayer.prompts import PROMPT_VERSIONS
from relayer.settings import Limits
from relayer.words.tokens import INDEX_VERSION

API_VERSION: Final = "1.0.0"
FEATURE_FLAGS: Final = {
    # Those of MemWal's own relayer, by its names: all of it holds here as well.
    "auth.accountBoundNonce": True,
    "auth.sealSessionHeader": True,
    "config.publicDeploymentMetadata": True,
    "remember.asyncJobs": True,
    "remember.bulk": True,
    "runtime.versionEndpoint": True,
    # Ours.
    "hybridSearch": True,
    "sealedAccounts": True,
}


class SdkVersions(TypedDict):
    """The oldest version of each client that is served."""

    typescript: str
    python: str
    mcp: str


class Build(TypedDict):
    """The program that answers."""

    name: str
    version: str


class VersionAnswer(TypedDict):
    """The version contract that every MemWal client checks before its first call."""

    relayerVersion: str
    apiVersion: str
    minSupportedSdk: SdkVersions
    featureFlags: dict[str, bool]
    deprecations: list[str]
    build: Build


class HealthAnswer(VersionAnswer):
    """The relayer's health, and the versions of prompts, embedding and index in use."""

    status: Literal["ok"]
    write_ready: bool
    version: str
    mode: Literal["relayer"]
    prompt_versions: dict[str, str]
    embedding_version: str | None
    index_version: int


class ReadyAnswer(TypedDict):
    """The readiness for writes: true if one would be durable now."""

    write_ready: bool


class ConfigAnswer(TypedDict):
    """The place where MemWal's clients find what they take for a blockchain."""

    packageId: str
    network: Literal["local"]
    suiRpcUrl: str


_NOT_READY: Final = ResponseSpec(
    ReadyAnswer, generate_examples=False, description="a write would not be durable now"
)
_GRPC_WEB: Final = ResponseSpec(
    str,
    generate_examples=False,
    description="base64 of a gRPC answer",
    media_type="application/grpc-web-text",
)


def version_contract() -> VersionAnswer:
    """Return the version contract that every MemWal client checks before its first call."""
    return {
        "relayerVersion": __version__,
        "apiVersion": API_VERSION,
        "minSupportedSdk": {"typescript": "0.0.2", "python": "0.1.0", "mcp": "0.0.1"},
        "featureFlags": FEATURE_FLAGS,
        "deprecations": [],
        "build": {"name": "memrelay", "version": __version__},
    }


@get("/version", opt={PUBLIC: True})
async def get_version() -> VersionAnswer:
    """Return the version contract."""
    return version_contract()


@get("/health", opt={PUBLIC: True})
async def get_health(
    embedder: NamedDependency[SkipValidation[Embedder | None]],  # a protocol, not a class
    readiness: NamedDependency[Readiness],
) -> HealthAnswer:
    """Return health: readiness for writes, the relayer's version, and those of its index."""
    return {
        **version_contract(),
        "status": "ok",
        "write_ready": await readiness.write_ready(),
        "version": __version__,
        "mode": "relayer",
        "prompt_versions": PROMPT_VERSIONS,
        "embedding_version": None if embedder is None else embedder.version,
        "index_version": INDEX_VERSION,
    }


@get("/ready", opt={PUBLIC: True}, responses={503: _NOT_READY})
async def get_readiness(readiness: NamedDependency[Readiness]) -> Response[ReadyAnswer]:
    """Return readiness for writes, also as the status: 200 or 503."""
    takes = await readiness.write_ready()
    return Response({"write_ready": takes}, status_code=200 if takes else 503)


@get("/config", opt={PUBLIC: True})
async def get_config(
    request: Request[Any, Any, Any], public_url: NamedDependency[PublicUrl]
) -> ConfigAnswer:
    """Return our own address as the place of what MemWal's clients take for a blockchain."""
    return {
        "packageId": sui.PACKAGE_ID,
        "network": "local",
        "suiRpcUrl": public_url.of(request) + "/sui",
    }


@post(
    "/sui",
    status_code=200,
    opt={PUBLIC: True},
    request_max_body_size=Limits.stand_in_bytes_max,
)
async def call_sui(request: Request[Any, Any, Any]) -> sui.JsonRpcAnswer:
    """Answer over JSON-RPC that the package exists, in version 1."""
    try:
        call = bodies.decode(await request.body(), Any)
    except BadRequest:
        call = None
    return sui.json_rpc(call)


@post(
    "/sui/sui.rpc.v2.LedgerService/BatchGetObjects",
    status_code=200,
    responses={200: _GRPC_WEB},
    opt={PUBLIC: True},
    request_max_body_size=Limits.stand_in_bytes_max,
)
async def get_sui_objects(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the same over gRPC-web."""
    answer = sui.grpc_web_objects(await request.body())
    return Response(answer, media_type="application/grpc-web-text")


HANDLERS: Final = (
    get_version,
    get_health,
    get_readiness,
    get_config,
    call_sui,
    get_sui_objects,
)
