"""Our own routes on conversations: those that are kept or wait for their facts.

Not here: what these do (`memories/episodes.py`, `memories/analysis.py`).
"""

import uuid
from datetime import timedelta
from typing import Final, TypedDict

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody

from relayer import cursors
from relayer.clock import EPOCH, rfc3339
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.memories.analysis import Analysis
from relayer.memories.episodes import FIRST_PAGE, Episode, Episodes, PagePosition
from relayer.memories.opener import Caller
from relayer.routes import shapes
from relayer.routes.arguments import PageLimit, parse_id, parse_sequence
from relayer.sealed.keys import Identity

_MICROSECOND: Final = timedelta(microseconds=1)


class EpisodeBody(bodies.Change):
    """POST /v1/episodes/{id}/analyze."""


class EpisodeSummary(TypedDict):
    """A kept conversation, without its text."""

    id: shapes.Id
    namespace: str
    state: str
    created_at: shapes.Time
    occurred_at: shapes.Time | None
    source: str | None
    fact_ids: list[shapes.Id]
    extractor: str | None
    failure: str | None


class EpisodesAnswer(TypedDict):
    """A page of conversations, newest first."""

    episodes: list[EpisodeSummary]
    next_cursor: str | None


class EpisodeAnswer(EpisodeSummary):
    """A kept conversation; `text` is null where its blob is lost or altered."""

    text: str | None


@get("/episodes")
async def list_episodes(
    caller: NamedDependency[Caller],
    episodes: NamedDependency[Episodes],
    namespace: FromQuery[str | None] = None,
    namespaces: FromQuery[list[str] | None] = None,
    limit: PageLimit = 50,
    cursor: FromQuery[str | None] = None,
) -> EpisodesAnswer:
    """Return a page of conversations that are kept or wait for their facts, newest first."""
    page = await episodes.newest(
        caller,
        bodies.namespaces_of(namespace, namespaces),
        before=FIRST_PAGE if cursor is None else _position(cursor),
        limit=limit,
    )
    return {
        "episodes": [_episode(found) for found in page],
        "next_cursor": _cursor(page[-1]) if len(page) == limit else None,
    }


def _cursor(episode: Episode) -> str:
    return f"{(episode.created_at - EPOCH) // _MICROSECOND}.{episode.id}"


def _position(cursor: str) -> PagePosition:
    moment, _, episode = cursor.partition(".")
    try:
        return EPOCH + parse_sequence(moment) * _MICROSECOND, uuid.UUID(episode)
    except (ValueError, OverflowError):
        raise cursors.not_ours() from None


@get("/episodes/{episode_id:str}")
async def get_episode(
    episode_id: FromPath[str], caller: NamedDependency[Caller], episodes: NamedDependency[Episodes]
) -> EpisodeAnswer:
    """Return one conversation, with its text."""
    found = await episodes.get(caller, parse_id(episode_id))
    return {**_episode(found), "text": found.text}


@post("/episodes/{episode_id:str}/analyze", status_code=202, opt={WEIGHT: 5})
async def analyze_episode(
    episode_id: FromPath[str],
    data: JSONBody[EpisodeBody],
    caller: NamedDependency[Caller],
    analysis: NamedDependency[Analysis],
    identity: NamedDependency[Identity],
) -> shapes.AnalyzeAnswer:
    """Take the facts out of a kept conversation once more."""
    bodies.check_relayer(data.relayer, identity)
    return shapes.to_analyze_answer(await analysis.again(caller, parse_id(episode_id)))


def _episode(found: Episode) -> EpisodeSummary:
    """Return a kept conversation, without its text."""
    return {
        "id": str(found.id),
        "namespace": found.namespace,
        "state": found.state,
        "created_at": rfc3339(found.created_at),
        "occurred_at": rfc3339(found.occurred_at),
        "source": found.source,
        "fact_ids": [str(i) for i in found.fact_ids],
        "extractor": found.extractor,
        "failure": found.failure,
    }


HANDLERS: Final = (list_episodes, get_episode, analyze_episode)
