"""Recognition of the speaker whom a query names or addresses, of those of its namespaces.

Not here: who said a memory (`heading.py`), what that adds to a score (`rank.py`). Pure.

- A name is one or more words side by side, each of which is of a speaker's name. Of two names
  neither says whose memory is meant.
- "I" is the user and "you" the assistant, where a query has one of the two and names nobody.
"""

from collections.abc import Collection, Sequence
from typing import Final

from relayer.normalization import normalize
from relayer.query.heading import role_term
from relayer.query.terms import QueryTerms
from relayer.words.tokens import words

WORDS_MAX: Final = 64  # of a query, that are looked at
_EDGES: Final = ".,;:!?…\"'“”‘’«»()[]{}<>¿¡。，、！？「」『』（）"
_PERSONS: Final = {
    "user": frozenset(
        "i i'm i've i'd i'll me my mine myself we our ours us ich mir mich mein meine meinen meinem"
        " meiner wir uns unser unsere je j'ai moi mon ma mes nous notre nos yo mi mis mío nosotros"
        " nuestro nuestra".split()
    ),
    "assistant": frozenset(
        "you you've you'd your yours du dir dich dein deine deinen deinem deiner tu toi ton tes"
        " vous votre vos tú ti tus usted".split()
    ),
}
_CJK_PERSONS: Final = {"user": "我私僕俺", "assistant": "你您"}


def add_speaker(terms: QueryTerms, text: str, speakers: Collection[str]) -> tuple[QueryTerms, str]:
    """Return the terms with those of the one whom a query names, and the query without names.

    `speakers` are words of the query that are of a speaker's name.
    """
    typed = text.split(maxsplit=WORDS_MAX)
    names, rest = list[tuple[str, ...]](), list[str]()
    run = list[str]()
    for token in typed:
        found = words(normalize("NFKC", token.strip(_EDGES))) if speakers else []
        if found and all(word in speakers for word in found):
            run += found
            continue
        names, run = [*names, tuple(run)] if run else names, []
        rest.append(token)
    distinct = list(dict.fromkeys([*names, tuple(run)] if run else names))
    if not distinct:
        role = _role_addressed(typed)
        return (terms.with_speaker([role_term(role)], is_role=True) if role else terms), text
    without = " ".join(rest) or text
    if len(distinct) > 1:
        return terms, without
    return terms.with_speaker(list(dict.fromkeys(distinct[0]))), without


def _role_addressed(typed: Sequence[str]) -> str | None:
    plain = {token.strip(_EDGES).replace("’", "'").casefold() for token in typed[:WORDS_MAX]}
    characters = set("".join(typed[:WORDS_MAX]))
    found = [
        role
        for role, persons in _PERSONS.items()
        if persons & plain or not characters.isdisjoint(_CJK_PERSONS[role])
    ]
    return found[0] if len(found) == 1 else None
