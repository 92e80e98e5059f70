"""What one request makes the process do, counted: it grows with what was asked, and has an end.

Times are not measured: calls of functions are counted, which are the same on every machine.
"""

import random
import sys
from collections.abc import Callable

from relayer.query.rank import Copies
from relayer.query.terms import query_terms
from relayer.settings import Limits

GROWING = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"  # eighteen characters in NFKC


def calls(work: Callable[[], object]) -> int:
    """How many functions some work calls, ours and Python's."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_aliases_take_no_more_work_than_short_ones() -> None:
    """Words that the query has add nothing, so that a bound of what is added is none of the work.

    As many as there may be, as long as they may be, cost what as many characters cost anywhere.
    """
    names = [f"ab{n:02}" for n in range(Limits.aliases_max)]
    for text in (f"{GROWING} ", "1.1.1.1 ", "aB ", "a's "):
        alias = (text * Limits.alias_characters_max)[: Limits.alias_characters_max]
        others = [alias] * Limits.alias_words_max
        query = " ".join([text, *names])
        few = calls(lambda q=query, o=others: query_terms(q, aliases={names[0]: o}))
        most = calls(lambda q=query, o=others: query_terms(q, aliases=dict.fromkeys(names, o)))
        assert most < 6 * few, text


def test_a_query_is_taken_apart_as_far_as_its_words_count() -> None:
    """What grows counts with its beginning, what comes again is known, and words have an end."""
    longest = Limits.query_bytes_max
    most = 4 * calls(lambda: query_terms(("Where did Anna put the keys? " * longest)[:longest]))
    for text in (GROWING, f"{GROWING} ", "1 ", "aB ", "a's "):
        query = (text * longest).encode()[:longest].decode(errors="ignore")
        assert calls(lambda q=query: query_terms(q)) < most, text
    several, many = (" ".join(f"aB{n}" for n in range(count)) for count in (1_000, 2_000))
    assert calls(lambda: query_terms(many)) == calls(lambda: query_terms(several))


def test_copies_are_looked_for_among_what_is_new() -> None:
    """A page more compares its own memories: what was kept is compared with nothing again."""
    chosen, words = random.Random(7), [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "uvwxyz"]
    texts = [" ".join([*chosen.sample(words, 100), f"{n}"]) for n in range(100)]
    read: list[str] = []

    def text(item: str) -> str:
        read.append(item)
        return item

    def kept(page: int) -> Copies[str]:
        found = Copies(text)
        for at in range(0, len(texts), page):
            found.add(texts[at : at + page])
        return found

    at_once, paged = calls(lambda: kept(len(texts))), calls(lambda: kept(1))
    assert paged < at_once + 10 * len(texts)
    assert read == texts * 2
    assert kept(10).kept == texts
