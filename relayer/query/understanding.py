"""The record of how well the embedding model understands queries, for the relayer's operator.

Not here: what a model knows of a text (`embedding`), what follows for a score (`fusion.py`).

- A model that does not know the language costs right answers, and no request fails of it: the log
  says so once, and the metrics go on saying it. Both hold numbers and nothing of a question.
"""

import logging
from typing import Final

from relayer.embedding.embedders import Coverage
from relayer.query.fusion import KNOWN_NONE
from relayer.telemetry.instruments import query_asked

log = logging.getLogger("relayer.recall")

LOOKED_AT: Final = 100  # queries before it is said, and again if it was not


class Understanding:
    """Counts queries of which the model's vectors say something, and those of which none does."""

    def __init__(self) -> None:
        self._asked = self._foreign = 0
        self._is_said = False

    def note(self, known: Coverage) -> None:
        """Count a query, of which the model knows this."""
        foreign = known.share <= KNOWN_NONE
        query_asked(understood=not foreign)
        self._asked += 1
        self._foreign += foreign
        if self._asked == LOOKED_AT:
            if not self._is_said and 2 * self._foreign > LOOKED_AT:
                self._say(self._foreign)
            self._asked = self._foreign = 0

    def _say(self, foreign: int) -> None:
        self._is_said = True
        log.warning(
            "most queries are in words that the embedding model does not know, and are answered by"
            " words alone: RELAYER_EMBEDDER=multilingual knows sixteen languages, the model of an"
            " endpoint perhaps others",
            extra={"event": "recall.foreign", "queries": foreign, "of": LOOKED_AT},
        )
