"""The choice of embedders by the settings.

Not here: the embedders (`builtin.py`, `openai.py`), which one a query needs (`models.py`).

- The libraries of an embedder that the settings do not name are not loaded.
"""

import os
import re
from collections.abc import Awaitable, Callable
from typing import Final

from relayer.embedding import model
from relayer.embedding.cache import Around, CachedEmbedder, CoalescingEmbedder
from relayer.embedding.embedders import Embedder, Vectors
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.published import BY_ID, Published, find_published
from relayer.errors import Unavailable
from relayer.settings import Settings

_DIM: Final = re.compile("[0-9]{1,9}")


def build_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder the settings name, behind the cache; None for none.

    Raises:
        Unavailable: the built-in model is not in its folder, which the message names.
    """
    if settings.embedder == "none":
        return None
    if is_remote(settings):
        return _endpoint_embedder(settings, settings.embedding_model, settings.embedding_dim)
    published = find_published(settings.embedder)
    try:
        return _builtin_embedder(settings, published)
    except Unavailable as error:
        # Only whoever starts or administers a relayer is told this.
        message = f"{error.message} The folder: {model.folder_of(published, settings.model_dir)}"
        raise Unavailable(message, code=error.code) from None


def is_remote(settings: Settings) -> bool:
    """Return True if texts are embedded at endpoints, not in the relayer."""
    return settings.embedder == "openai" or (
        settings.embedder == "auto" and bool(settings.embedding_model)
    )


def build_older_embedder(settings: Settings, model_id: str) -> Embedder | None:
    """Return the embedder of a model that memories still have vectors of.

    None unless the settings still let queries go to who serves it.
    """
    if model_id in BY_ID:
        return _builtin_embedder(settings, BY_ID[model_id])
    name, _, _ = model_id.rpartition("/")
    dim = dim_of(model_id)
    away = settings.embedder in (
        "builtin",
        "multilingual",
        "none",
    )  # whoever says so wants texts to stay here
    named = settings.embedding_base_urls or settings.embedding_model
    if away or not named or dim is None:
        return None
    return _endpoint_embedder(settings, name, dim)


def dim_of(model_id: str) -> int | None:
    """Return the dimension of a model's vectors; None if its id does not say it."""
    if model_id in BY_ID:
        return BY_ID[model_id].dim
    _, slash, dim = model_id.rpartition("/")
    return int(dim) if slash and _DIM.fullmatch(dim) else None


def for_storing(embedder: Embedder | None) -> Embedder | None:
    """Return the embedder itself, without what is around it for queries.

    What is stored is embedded once, so a cache would only forget queries for it, and then perhaps
    by another file; and queries should not be sent together with it, to wait for all of it. Nor is
    anybody waiting while it waits for an endpoint that rests.
    """
    while isinstance(embedder, Around):
        embedder = embedder.inner
    return embedder


def _builtin_embedder(settings: Settings, published: Published) -> Embedder:
    from relayer.embedding import builtin  # noqa: PLC0415  # brings onnxruntime

    embedder = builtin.BuiltinEmbedder(
        folder=model.folder_of(published, settings.model_dir), published=published
    )
    together = CoalescingEmbedder(
        inner=embedder, flights_max=builtin.THREADS, embed=embedder.embed_query
    )
    return _add_cache(settings, together)


def _endpoint_embedder(settings: Settings, name: str, dim: int) -> Embedder:
    from relayer.embedding.openai import OpenAIEmbedder  # noqa: PLC0415  # brings `openai`

    urls = settings.embedding_urls or [settings.openai_base_url]
    embedder = OpenAIEmbedder(
        endpoints=[Endpoint(url, settings.openai_api_key or None) for url in urls],
        model=name,
        dim=dim,
        timeout_s=settings.embedding_timeout_s,
        related=settings.embedding_related,
    )
    return _add_cache(settings, embedder, embedder.embed_query)


def _add_cache(
    settings: Settings, inner: Embedder, embed: Callable[..., Awaitable[Vectors]] | None = None
) -> Embedder:
    return CachedEmbedder(
        inner=inner,
        entries_max=settings.embedding_cache_entries,
        secret=os.urandom(32),
        embed=embed,
    )
