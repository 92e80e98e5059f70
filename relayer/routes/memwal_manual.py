"""MemWal's routes for clients that encrypt by themselves: embed, remember and recall by vector.

Not here: what these do (`memories/manual.py`), MemWal's other routes (`memwal.py`).
"""

import base64
from typing import Annotated, Final

import numpy as np
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation
from msgspec import Meta

from relayer.embedding.embedders import Embedder
from relayer.errors import BadRequest, NotConfigured
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.memories.manual import Manual
from relayer.memories.opener import Caller
from relayer.memories.sealed_drafts import without_secrets
from relayer.routes import memwal_answers as answers
from relayer.routes.memwal import MemwalScoringWeights, Tolerant
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import account_text
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.recall_counts import RecallCounts

Vector = Annotated[list[float], Meta(min_length=1, max_length=Limits.embedding_dim_max)]


class EmbedBody(bodies.Body):
    """POST /api/embed."""

    text: str


class ManualBody(Tolerant):
    """POST /api/remember/manual."""

    vector: Vector
    encrypted_data: str | None = None


class ManualRecallBody(Tolerant):
    """POST /api/recall/manual."""

    vector: Vector
    limit: bodies.RecallLimit = 10
    scoring_weights: MemwalScoringWeights | None = None


@post("/api/embed", status_code=200, opt={WEIGHT: 3})
async def embed(
    data: JSONBody[EmbedBody],
    access: NamedDependency[Access],
    embedder: NamedDependency[SkipValidation[Embedder | None]],  # a protocol, not a class
) -> answers.EmbedAnswer:
    """Return the vector of a text without its secrets, as the embedder gives it."""
    text = bodies.check_memwal_text(data.text, Limits.bulk_text_bytes_max)
    if embedder is None:
        raise NotConfigured("This relayer has no embedder.", code="embedder.not_configured")
    text, _ = await without_secrets(access, text)
    vectors = await embedder.embed([text], account=access.account)
    return {"vector": vectors[0].tolist()}


@post("/api/remember/manual", status_code=200, opt={WEIGHT: 3})
async def remember_manual(
    data: JSONBody[ManualBody],
    caller: NamedDependency[Caller],
    manual: NamedDependency[Manual],
) -> answers.ManualAnswer:
    """Keep a client's own ciphertext under its own vector."""
    if data.encrypted_data is None:
        raise BadRequest(
            "Send encrypted_data: this relayer stores blobs itself and cannot fetch a blob_id.",
            code="manual.blob_id",
        )
    try:
        ciphertext = base64.b64decode(data.encrypted_data, validate=True)
    except ValueError:
        raise BadRequest("encrypted_data is not base64.") from None
    if not ciphertext:
        raise BadRequest("encrypted_data is empty.")
    if len(ciphertext) > Limits.manual_bytes_max:
        raise BadRequest(
            f"encrypted_data exceeds maximum length of {Limits.manual_bytes_max} bytes."
        )
    namespace = bodies.namespace_of(data.namespace)
    vector = np.array(data.vector, float)
    memory_id, blob_id = await manual.remember(caller, namespace, ciphertext, vector)
    return {
        "id": str(memory_id),
        "blob_id": blob_id,
        "owner": account_text(caller.access.account),
        "namespace": namespace,
    }


@post("/api/recall/manual", status_code=200)
async def recall_manual(
    data: JSONBody[ManualRecallBody],
    caller: NamedDependency[Caller],
    manual: NamedDependency[Manual],
    recall_counts: NamedDependency[RecallCounts],
) -> answers.ManualRecallAnswer:
    """Find what is nearest to a client's own vector."""
    namespace = bodies.namespace_of(data.namespace)
    weights = bodies.weights_of(data.scoring_weights)
    vector = np.array(data.vector, float)
    hits = await manual.recall(caller, namespace, vector, data.limit, weights)
    recall_counts.note(caller.access, [blob_hash(name) for name, _ in hits])
    return {
        "results": [{"blob_id": name, "distance": distance} for name, distance in hits],
        "total": len(hits),
    }


HANDLERS: Final = (embed, remember_manual, recall_manual)
