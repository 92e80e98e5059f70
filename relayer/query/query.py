"""The query of a recall.

Not here: what it is looked up by (`lookup.py`), how a request says it (`routes/recall.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from relayer.query import fusion, rank
from relayer.query.asking import is_about_questions
from relayer.query.heading import read_heading, speaker_terms, terms_of_speaker
from relayer.record import HELD_BACK, Memory
from relayer.sealed.keys import Namespace, PublicKey


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query to recall memories by.

    Attributes:
        mode: `hybrid`, `keyword`, `vector`; or `keyword_first`, where meaning only helps out when
            words find fewer than `min_primary_results`.
        goal: what the asker is about to do: a second, weaker query.
        speaker: only what that person or role said.
        aliases: other words for words of the query.
        as_of: recall what could have been recalled then.
        leg_weights: the caller's own weights of meaning and words, in place of our fusion.
        max_tokens: of all texts together; a text that does not fit is left out, never cut.
    """

    text: str = field(repr=False)
    namespaces: Sequence[Namespace]
    limit: int = 10
    mode: str = "hybrid"
    min_primary_results: int = 2
    goal: str | None = field(default=None, repr=False)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    kinds: Sequence[str] | None = None
    tags: Sequence[str] = field(default=(), repr=False)
    source: str | None = field(default=None, repr=False)
    speaker: str | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    writers: Sequence[PublicKey] | None = None
    after: datetime | None = None
    before: datetime | None = None
    as_of: datetime | None = None
    min_relevance: float = 0.0
    leg_weights: fusion.Weights | None = None
    weights: rank.Weights = rank.Weights()
    max_tokens: int | None = None

    @property
    def prefers_statements(self) -> bool:
        """Return true if what only asks answers it less well than what states something.

        In `keyword_first` scores of several searches stand behind each other.
        """
        own_order = self.leg_weights is not None or self.mode == "keyword_first"
        return not (own_order or is_about_questions(self.text))

    def _is_said(self, memory: Memory) -> bool:
        if self.speaker is None:
            return True
        said = speaker_terms(read_heading(memory.text or ""), memory.metadata)
        return set(terms_of_speaker(self.speaker)) <= set(said)

    def admits(self, memory: Memory) -> bool:
        """Return true if a memory is what is asked for; it may have changed since it was found.

        One that was superseded meanwhile is: what replaces it came after the request.
        """
        moment = memory.event_time or memory.created_at
        return (
            memory.state.review not in HELD_BACK
            and (self.as_of is None or memory.stored_at <= self.as_of)
            and (self.kinds is None or memory.kind in self.kinds)
            and set(self.tags) <= set(memory.tags)
            and self.source in (None, memory.source)
            and self._is_said(memory)
            and self.metadata.items() <= memory.metadata.items()
            and (self.writers is None or memory.writer in self.writers)
            and (self.after is None or moment >= self.after)
            and (self.before is None or moment < self.before)
        )
