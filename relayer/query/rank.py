"""The order of recalled memories: times and order asked for, age, importance; copies behind.

Not here: one score of several legs (`fusion`). Pure: takes numbers and a `now`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.query.order import Order

IMPORTANCE: Final = np.array([1.0, 0.5, 0.0])  # of `record.IMPORTANCES`
PERIOD_WEIGHT: Final = 0.2
# At .1 one in four of `bench/data/order` stays in the wrong order, from .2 on one in eight or less.
ORDER_WEIGHT: Final = 0.2
ORDERED_SHARE: Final = 0.6  # of the best score: those below are about something else
ORDERED_SECONDS_MIN: Final = 3600  # within less, most are of one import, which has no order
# From .2 to .4 conversations gain more and more, and a right answer of somebody else has it harder.
# The other role often has the answer, too: at .05 long messages lose.
SPEAKER_WEIGHT: Final = 0.3
SEVERAL_SPEAKER_WEIGHT: Final = 0.6  # where several memories answer, others tell them less often
ROLE_WEIGHT: Final = 0.03
# From .1 to .4 the same questions gain: most of what only asks stands less than that before.
ASKING_DISCOUNT: Final = 0.3
COPY_SHARE: Final = 0.8  # of the words of two texts together that both have
COPIED_CHARACTERS_MAX: Final = 2_000
_EDGES: Final = ".,;:!?…()[]\"'“”‘’«»"
_DENIALS: Final = frozenset(
    "no not never none without nicht kein keine nie ohne ne pas jamais non".split()
)
T = TypeVar("T")


@dataclass(frozen=True)
class Weights:
    """Weights of meaning, age and importance, each in 0–100."""

    semantic: float = 1.0
    recency: float = 0.0
    recency_half_life_days: float = 30.0
    importance: float = 0.0

    @property
    def semantic_only(self) -> bool:
        """Return true if the order is the search's own."""
        return self.recency == 0 and self.importance == 0

    @property
    def of_search(self) -> float:
        """Return the factor of the search's own score: 1 while it stands alone."""
        return 1.0 if self.semantic_only else self.semantic


def weigh(
    scores: npt.NDArray[np.float64],
    moments: npt.NDArray[np.float64],
    importances: npt.NDArray[np.int8],
    weights: Weights,
    now: datetime,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return scores with age and importance, and what each of the two added.

    `moments` are seconds since 1970, `importances` places in `record.IMPORTANCES`.
    """
    if weights.semantic_only:
        return scores, np.zeros_like(scores), np.zeros_like(scores)
    age_days = np.maximum(now.timestamp() - moments, 0.0) / 86400
    with np.errstate(over="ignore"):  # of a half-life of next to nothing, nothing is left
        recency = weights.recency * 0.5 ** (age_days / weights.recency_half_life_days)
    importance = weights.importance * IMPORTANCE[importances]
    return weights.of_search * scores + recency + importance, recency, importance


def prefer_periods(
    moments: npt.NDArray[np.float64],
    spans: Sequence[tuple[datetime, datetime]],
    found: npt.NDArray[np.int64],
    days: Sequence[int],
) -> npt.NDArray[np.float64]:
    """Return the addition to each score for being of a time that the query names, or naming it.

    `found` has (position, ordinal) of what memories hold, `days` the ordinals of these times.
    """
    inside = np.zeros(len(moments), bool)
    for start, end in spans:
        inside |= (start.timestamp() <= moments) & (moments < end.timestamp())
    inside[found[np.isin(found[:, 1], days), 0]] = True
    return PERIOD_WEIGHT * inside


def prefer_order(
    scores: npt.NDArray[np.float64], moments: npt.NDArray[np.float64], order: Order | None
) -> npt.NDArray[np.float64]:
    """Return the addition to each score for being early or late among the best, as is asked.

    It goes in even steps from one moment to the next: how far apart they are tells nothing.
    """
    added = np.zeros_like(scores)
    if order is None or not len(scores):
        return added
    best = np.flatnonzero(scores >= ORDERED_SHARE * scores.max())
    distinct, step = np.unique(moments[best], return_inverse=True)
    if not len(best) or distinct[-1] - distinct[0] < ORDERED_SECONDS_MIN:
        return added
    late = step / (len(distinct) - 1)
    added[best] = ORDER_WEIGHT * (late if order == "latest" else 1.0 - late)
    return added


def prefer_speaker(
    count: int,
    found: npt.NDArray[np.int64],
    speaker: Sequence[int],
    *,
    is_role: bool,
    several: bool = False,
) -> npt.NDArray[np.float64]:
    """Return the addition to each score for being said by the one whom the query names.

    `found` has (position, ordinal) of what memories hold, `speaker` the ordinals of all parts of
    the name; a name weighs more where `several` memories answer.
    """
    if not speaker:
        return np.zeros(count)
    parts = np.bincount(found[np.isin(found[:, 1], speaker), 0], minlength=count)
    weight = SEVERAL_SPEAKER_WEIGHT if several else SPEAKER_WEIGHT
    return np.where(parts >= len(speaker), ROLE_WEIGHT if is_role else weight, 0.0)


class Copies(Generic[T]):
    """The items found so far: `kept` says something of its own, `copies` nearly repeat it.

    Each is read once and compared with those before it only, of which most tell other facts.
    """

    def __init__(self, text: Callable[[T], str]) -> None:
        self.kept: list[T] = []
        self.copies: list[T] = []
        self._text = text
        # By the words that may tell two facts apart, the words of each that was kept.
        self._said: defaultdict[frozenset[str], list[frozenset[str]]] = defaultdict(list)

    def add(self, found: Iterable[T]) -> None:
        """Take what stands behind all that was added before."""
        for item in found:
            words = _words(self._text(item))
            alike = self._said[frozenset(filter(_tells_apart, words))]
            if words and any(_are_copies(words, other) for other in alike):
                self.copies.append(item)
            else:
                self.kept.append(item)
                alike.append(words)


def _words(text: str) -> frozenset[str]:
    """Return the words to compare a text by; a long one is nobody's copy, and costs nothing."""
    if len(text) > COPIED_CHARACTERS_MAX:
        return frozenset()
    words = frozenset(word.strip(_EDGES) for word in text.split())
    return words - {""} or frozenset({text})


def _tells_apart(word: str) -> bool:
    return word in _DENIALS or not word.islower() or not word.isalpha()


def _are_copies(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return true for nearly the same words, which no two of very different lengths can have."""
    lengths = len(one) + len(other)
    if min(len(one), len(other)) < COPY_SHARE * max(len(one), len(other)):
        return False
    both = len(one & other)
    return both >= COPY_SHARE * (lengths - both)
