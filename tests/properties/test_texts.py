"""Canonical texts, names and keyword postings of any text, on both sides.

Not here: which words a text is known by (`test_words.py`), how hits rank (`test_fusion.py`).
"""

import contextlib
import unicodedata
from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memrelay.errors import Invalid
from memrelay.sealed import keys as client
from relayer.sealed import index
from relayer.sealed.keys import Namespace, NamespaceKey, parse_namespace
from relayer.sealed.primitives import CryptoError
from relayer.words import words
from tests import scenarios as sc
from tests.properties.drawn import blanks, few, letters, many, texts

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
TEAM = NamespaceKey(Namespace("team"), 1, sc.TEAM.key)
THEIR_TEAM = client.NamespaceKey(sc.TEAM.key, 1, "team")
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")


def canonical(text: str) -> str:
    """SPEC §8's words about what is fingerprinted, in one line."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def fingerprint(text: str, *, kind: str = "fact", event_time_ms: int | None = None) -> bytes:
    """The fingerprint of a text, which both sides agree on."""
    ours = index.fingerprint(TEAM, kind=kind, event_time_ms=event_time_ms, text=text)
    theirs = client.fingerprint(THEIR_TEAM.subkey("fingerprint"), kind, event_time_ms, text)
    assert ours == theirs
    return ours


@many
@given(texts)
def test_a_canonical_text_is_the_same_fact_and_its_own_canonical_text(text: str) -> None:
    assert canonical(canonical(text)) == canonical(text)
    assert fingerprint(canonical(text)) == fingerprint(text)


@many
@given(st.lists(letters | blanks, max_size=12), st.data())
def test_fingerprints_are_equal_for_equal_canonical_texts_only(
    parts: list[str], data: st.DataObject
) -> None:
    """Two spellings of one text, or of nearly one."""
    change = st.sampled_from(["NFC", "NFD", "blank", "case", "drop"])
    one = other = "".join(parts)
    for how in data.draw(st.lists(change, max_size=3)):
        other = changed(other, how)
    assert (fingerprint(one) == fingerprint(other)) == (canonical(one) == canonical(other))


def changed(text: str, how: str) -> str:
    for form in FORMS:
        if how == form:
            return unicodedata.normalize(form, text)
    if how == "blank":
        return " \u3000".join(text.split(" ")) + "\n"
    return text.swapcase() if how == "case" else text[1:]


@few
@given(texts, st.tuples(st.sampled_from(["fact", "event"]), st.none() | st.integers(-1, 2)))
def test_another_kind_or_time_is_another_fact(text: str, what: tuple[str, int | None]) -> None:
    kind, event_time_ms = what
    same = fingerprint(text) == fingerprint(text, kind=kind, event_time_ms=event_time_ms)
    assert same == (what == ("fact", None))


@many
@given(texts)
def test_both_sides_settle_or_refuse_the_same_names(name: str) -> None:
    ours = theirs = None
    with contextlib.suppress(CryptoError):
        ours = parse_namespace(name)
    with contextlib.suppress(Invalid):
        theirs = client.normalise_namespace(name)
    assert ours == theirs
    if ours is not None:
        assert parse_namespace(ours) == ours


@many
@given(texts)
def test_words_are_the_same_in_every_normal_form(text: str) -> None:
    found = words(text)
    assert all(words(unicodedata.normalize(form, text)) == found for form in FORMS)


@many
@given(texts, st.integers(1, 40))
def test_a_text_is_found_by_its_own_words(text: str, times: int) -> None:
    """It asks for nothing that its postings lack, however often it says something."""
    found = words(text) * times
    held = index.postings(TEAM, words=found)
    assert {index.token(TEAM, "w", word) for word in words(text)} == held.keys()
    key = THEIR_TEAM.subkey("index")
    counts = {client.token(key, "w", word): n for word, n in Counter(found).items()}
    assert held == {token: client.term_frequency(n) for token, n in counts.items()}
    assert held == {token: min(n, 15) for token, n in counts.items()}


SENTENCE = """
the café on Königstraße opens at 7:30, ask Anna-Lena about order AB-1234_x and ./src/main.rs
в понедельник 会议室 東京タワー naïve résumé don't l'eau v2.10.3 3,141.59 anna@example.org C++
""".split()
FUNCTION_WORDS = frozenset({"the", "on", "at", "about", "and", "в", "don't"})


@many
@given(st.lists(st.sampled_from(SENTENCE), min_size=1, max_size=8), st.data())
def test_a_text_is_found_by_any_one_of_its_words(said: list[str], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(said))
    assume(word not in FUNCTION_WORDS)
    assert set(words(word)) & set(words(" ".join(said)))


@many
@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_lengths_are_the_same_on_both_sides_ordered_and_bounded(one: int, other: int) -> None:
    rounded = index.rounded_length(one)
    assert rounded == client.length_bucket(one) == index.rounded_length(rounded)
    assert max(one, 1) <= rounded <= max(1, one * 3 // 2)
    assert (one <= other) <= (rounded <= index.rounded_length(other))


pairs = st.dictionaries(st.text("ab\u0000:", max_size=3), st.text("ab\u0000:", max_size=3))


@few
@given(st.lists(texts, max_size=4), st.none() | texts, pairs)
def test_a_filter_finds_what_was_tagged_so_and_no_word(
    tags: list[str], source: str | None, metadata: Any
) -> None:
    held = index.postings(TEAM, words=[], tags=tags, source=source, metadata=metadata)
    key = THEIR_TEAM.subkey("index")
    assert {client.token(key, "t", tag) for tag in tags} <= held.keys()
    assert not {index.token(TEAM, "w", tag) for tag in tags} & held.keys()
    if source is not None:
        assert client.token(key, "s", source) in held


@pytest.mark.parametrize("field", ["w", "t", "s", "m"])
@few
@given(texts)
def test_tokens_are_the_same_on_both_sides(field: index.Field, term: str) -> None:
    assert index.token(TEAM, field, term) == client.token(THEIR_TEAM.subkey("index"), field, term)
