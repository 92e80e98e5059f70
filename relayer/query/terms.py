"""The terms of a query in the keyword index: words, their aliases, tags it names, a goal.

Not here: what a word is (`words/`), hashing (`sealed.index`), scores (`fusion`). Pure.

- Every word of the query has an ordinal. Whatever else may stand for it, another form, an alias or
  a tag, shares the ordinal and so counts at most once.
- A goal's words come after the query's own: they add, and their absence takes nothing away.
- Particles stand behind all, of a query that has other words: they tell equals apart, and their
  absence takes nothing away either. So do emoji, and the groups that a number is written in.
- One character can stand for eighteen: what is looked at is counted after normalising.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import Final, Literal

from relayer.normalization import normalize
from relayer.query.order import Order
from relayer.settings import Limits
from relayer.words.foreign import particles
from relayer.words.languages import PARTICLES
from relayer.words.tokens import QueryWords, distinct_words, is_emoji, words

GOAL_WEIGHT: Final = 0.5  # of a goal's words, and of its vector, beside the query's
# With nothing, questions in other words than the text lose the little that they share with it (R@10
# of Chinese .948 to .931); with a fifth, unrelated ones find more (Japanese .30 to .40).
PARTICLE_WEIGHT: Final = 0.1
# Of a speaker: enough to be looked at, since what that is worth is added by itself (`rank`). A role
# has none: half of all memories are of it.
SPEAKER_LOOKED_AT_WEIGHT: Final = 0.1
NAMES_MAX: Final = 24  # words of a query that may be a speaker's name
FORM_WEIGHT: Final = 0.8  # of another form of a word, beside the word as it was asked for
TAGGED_WORDS_MAX: Final = 64  # of a query, that may be names of tags
_EDGES: Final = ".,;:!?…\"'“”‘’«»()[]{}<>。，、！？「」『』（）"


@dataclass(slots=True)  # not frozen: a short question has forty, and those take thrice as long
class Term:
    """One entry of the index to look up, for the query's word `ordinal`.

    It is a word, a tag, a speaker or the time that a text mentions.
    """

    index: Literal["w", "t", "p", "d"]
    text: str = field(repr=False)
    ordinal: int
    weight: float = 1.0


@dataclass(frozen=True)
class QueryTerms:
    """The terms to look up and the words behind the ordinals.

    It is asked by the first `query_words` of them. A memory that has all ordinals of `speaker` is
    of the one speaker that the query names, or of whom it addresses (`is_role`); one that has an
    ordinal of `days` mentions a time that it names. `order` is what it asks for of several; where
    `several` is set, more than one memory answers it.
    """

    terms: Sequence[Term] = field(repr=False)
    words: Sequence[str] = field(repr=False)
    query_words: int
    speaker: Sequence[int] = ()
    is_role: bool = False
    days: Sequence[int] = ()
    order: Order | None = None
    several: bool = False

    @property
    def names(self) -> Sequence[str]:
        """Return the first words of the query itself, which may be names of speakers."""
        return self.words[: min(self.query_words, NAMES_MAX)]

    def with_speaker(self, parts: Sequence[str], *, is_role: bool = False) -> "QueryTerms":
        """Return these and the terms of a speaker, all of which a memory of his has."""
        more = self._with("p", parts, 0.0 if is_role else SPEAKER_LOOKED_AT_WEIGHT)
        return replace(more, speaker=range(len(self.words), len(more.words)), is_role=is_role)

    def with_days(self, days: Sequence[str]) -> "QueryTerms":
        """Return these and the times that the query names."""
        more = self._with("d", days, 1.0)
        return replace(more, days=range(len(self.words), len(more.words)))

    def _with(self, index: Literal["p", "d"], texts: Sequence[str], weight: float) -> "QueryTerms":
        begins = len(self.words)
        terms = [Term(index, t, begins + n, weight) for n, t in enumerate(texts)]
        return replace(self, terms=[*self.terms, *terms], words=[*self.words, *texts])

    def ordinals_of(self, typed: Iterable[str]) -> list[int]:
        """Return the ordinals of the query's words among some that were typed."""
        found = {term for word in typed for term in words(normalize("NFKC", word))}
        return [n for n, word in enumerate(self.words) if word in found]


def query_terms(
    text: str, *, goal: str | None = None, aliases: Mapping[str, Sequence[str]] | None = None
) -> QueryTerms:
    """Return the terms of a query, at most `Limits.query_words_max` words of it."""
    asked = _first_words(text, Limits.query_bytes_max)
    aims = _first_words(goal or "", Limits.goal_bytes_max)
    every = list(asked.forms)
    aside_of_language = particles(text)
    own = [w for w in every if not (_is_particle(w) or w in aside_of_language)] or every
    aside = [w for w in every if w not in own]
    aside += [group for group in asked.groups if group not in asked.forms]
    further = [w for w in aims.forms if w not in asked.forms and not _is_particle(w)]
    further = further[: max(Limits.query_words_max - len(every), 0)]
    found = [*own, *further, *aside]
    weights = [1.0] * len(own) + [GOAL_WEIGHT] * len(further) + [PARTICLE_WEIGHT] * len(aside)
    forms = {**aims.forms, **asked.forms}
    terms = []
    for n, (word, weight) in enumerate(zip(found, weights, strict=True)):
        terms.append(Term("w", word, n, weight))
        terms += (Term("w", form, n, weight * FORM_WEIGHT) for form in forms.get(word, ()))
    ordinals = {word: n for n, word in enumerate(found) if word in asked.forms}
    aliased = islice(_aliases(ordinals, aliases or {}), Limits.query_words_max)
    terms += [Term("w", word, n) for word, n in dict.fromkeys(aliased)]
    terms += [Term("t", name, n) for name, n in dict.fromkeys(_tags(text, ordinals))]
    return QueryTerms(terms, found, len(own))


def _is_particle(word: str) -> bool:
    return word in PARTICLES or is_emoji(word)


def _first_words(text: str, characters_max: int) -> QueryWords:
    """Return the distinct words of so much of a text: of all, unless it has too many."""
    plain = normalize("NFKC", text)[:characters_max]
    return distinct_words(plain, words_max=Limits.query_words_max)


def _aliases(
    ordinals: Mapping[str, int], aliases: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, int]]:
    """Yield other words for words of the query; a longer name must stand there in full."""
    left = Limits.aliases_characters_max
    for name, others in aliases.items():
        named, left = _within(name, left)
        if named.forms and all(word in ordinals for word in named.forms):
            for other in others:
                found, left = _within(other, left)
                for word in chain(found.forms, *found.forms.values()):
                    if word not in ordinals:
                        yield word, min(ordinals[its] for its in named.forms)


def _within(text: str, left: int) -> tuple[QueryWords, int]:
    """Return the words of a text's first so many characters, and how many are left for others."""
    plain = normalize("NFKC", text)[:left]
    return distinct_words(plain, words_max=Limits.query_words_max), left - len(plain)


def _tags(text: str, ordinals: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield tags that one or two words of the query may name, as typed and folded."""
    typed = [word.strip(_EDGES) for word in text.split(maxsplit=TAGGED_WORDS_MAX)]
    named = [(t, _ordinal(t, ordinals)) for t in typed[:TAGGED_WORDS_MAX]]
    pairs = [
        (f"{a}{joint}{b}", ordinal)
        for (a, m), (b, n) in pairwise(named)
        for joint in " -"
        for ordinal in (m, n)
    ]
    for name, ordinal in [*named, *pairs]:
        if ordinal is not None:
            yield name, ordinal
            yield name.casefold(), ordinal


def _ordinal(typed: str, ordinals: Mapping[str, int]) -> int | None:
    """Return the ordinal of a word of the query; a text longer than a tag names none."""
    if len(typed) > Limits.tag_characters_max:
        return None
    named = words(normalize("NFKC", typed)[: Limits.tag_characters_max])
    return min((ordinals[word] for word in named if word in ordinals), default=None)
