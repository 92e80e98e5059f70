"""Where a request can name something that belongs to somebody: read from the OpenAPI document.

Not here: values (`scene.py`) and what is asserted (`test_matrix.py`).

- A parameter or member that is in neither table below fails the matrix: who adds a route says
  what its ids mean, or that they mean nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Json = dict[str, Any]
Where = Literal["path", "query", "body"]

# What a parameter or member names, by its name; by route and name where one name means two things.
KINDS: Final[Mapping[str, str]] = {
    "account_id": "account",
    "owner": "account",
    "confirm": "account",
    "memory_id": "memory",
    "superseded_by": "memory",
    "ids": "memory",
    "job_id": "memory",
    "job_ids": "memory",
    "episode_id": "episode",
    "run_id": "run",
    "webhook_id": "webhook",
    "namespace": "namespace",
    "namespaces": "namespace",
    "name": "namespace",
    "reseal": "namespace",
    "blob_ids": "blob",
    "writer": "key",
    "writers": "key",
    "grant": "grant",
    "grants": "grant",
    "join": "join",
    "revocation": "revocation",
    "revocations": "revocation",
    "idempotency_key": "idempotency key",
    "encrypted_data": "sealed bytes",
    "cursor": "cursor",
    "updated_after": "cursor",
    "/v1/import account": "archived account",
    "/v1/import grants": "archived grant",
    "/v1/import namespaces": "archived namespace",
    "/v1/import tombstones": "archived tombstone",
    "/v1/import memories": "archived memory",
    "/v1/import episodes": "archived episode",
    "/v1/import states": "archived state",
}
# What belongs to nobody: words, numbers, choices, times, and containers of the above.
NOTHING: Final = frozenset(
    """
    relayer text question query vector goal aliases tags tag source metadata label token url
    kind kinds importance confidence event_time expires_at occurred_at after before as_of bounds
    limit mode min_primary_results min_relevance vector_weight text_weight max_tokens explain
    scoring_weights semantic recency recency_half_life_days items part dry_run pinned stale
    review state revision ttl_s events active new_secret follow redact contradictions
    low_confidence keep_turns consolidate_every_h sort index speaker count_recalls never_recalled
    deep
    """.split()
)


class Unknown(Exception):
    """The matrix has never heard of a parameter or member."""


@dataclass(frozen=True)
class Place:
    """One thing that a route's request can name; `listed`: in a list."""

    method: str
    path: str
    where: Where
    name: str
    kind: str
    listed: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.name}"


@dataclass(frozen=True)
class Route:
    """A route with its places and what its request must have."""

    method: str
    path: str
    places: tuple[Place, ...]
    required: tuple[tuple[Where, str, bool], ...]
    takes_body: bool
    names_relayer: bool


def routes(document: Json) -> list[Route]:
    """Every route of the document, in order of paths.

    Raises:
        Unknown: one can hold something that neither table knows.
    """
    return [
        _route(document, method.upper(), path, operation)
        for path, operations in sorted(document["paths"].items())
        for method, operation in operations.items()
    ]


def _route(document: Json, method: str, path: str, operation: Json) -> Route:
    found: list[tuple[Where, str, bool]] = []
    required: list[tuple[Where, str, bool]] = []
    for parameter in operation.get("parameters", []):
        where = parameter["in"]
        entry = (where, parameter["name"], _is_list(document, parameter["schema"]))
        found.append(entry)
        if parameter.get("required"):
            required.append(entry)
    body = _body_schema(document, operation)
    for name, listed in _members(document, path, body):
        found.append(("body", name, listed))
    for name in body.get("required", []):
        required.append(("body", name, _is_list(document, body["properties"][name])))
    places = [
        Place(method, path, where, name, kind, listed)
        for where, name, listed in found
        if (kind := _kind(path, name)) is not None
    ]
    return Route(
        method,
        path,
        tuple(places),
        tuple(required),
        bool(operation.get("requestBody")),
        any(name == "relayer" for _, name, _ in found),
    )


def _kind(path: str, name: str) -> str | None:
    leaf = name.rpartition(".")[2]
    kind = KINDS.get(f"{path} {name}") or KINDS.get(leaf)
    if kind is None and leaf not in NOTHING:
        raise Unknown(
            f"{path} takes {name!r}: say in tests/tenants/places.py what it names (KINDS),"
            " or that it names nothing that belongs to anybody (NOTHING)."
        )
    return kind


def _body_schema(document: Json, operation: Json) -> Json:
    content = operation.get("requestBody", {}).get("content", {})
    for described in content.values():
        return _resolved(document, described["schema"])
    return {}


def _resolved(document: Json, schema: Json) -> Json:
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    found: Json = document["components"]["schemas"][name]
    return found


def _members(
    document: Json, path: str, schema: Json, prefix: str = ""
) -> Iterator[tuple[str, bool]]:
    """Dotted names of members, down to what is named as a whole."""
    for variant in _variants(document, schema):
        for name, described in variant.get("properties", {}).items():
            full = f"{prefix}{name}"
            yield full, _is_list(document, described)
            if _kind(path, full) is None:
                yield from _members(document, path, described, f"{full}.")
        if "items" in variant:
            yield from _members(document, path, variant["items"], prefix)


def _variants(document: Json, schema: Json) -> Iterator[Json]:
    schema = _resolved(document, schema)
    yield schema
    for word in ("oneOf", "anyOf", "allOf"):
        for variant in schema.get(word, []):
            yield from _variants(document, variant)


def _is_list(document: Json, schema: Json) -> bool:
    return any(v.get("type") == "array" for v in _variants(document, schema))
