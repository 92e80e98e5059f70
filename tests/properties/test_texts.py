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
from memrelay.sealed import forms as their_forms
from memrelay.sealed import keys as client
from relayer import normalization
from relayer.extraction.facts import normalise
from relayer.extraction.injection_filter import orders_the_reader
from relayer.query.period_words import tokens
from relayer.sealed import index
from relayer.sealed.keys import Namespace, NamespaceKey, parse_namespace
from relayer.sealed.primitives import CryptoError
from relayer.words.tokens import words
from tests import relayers_part
from tests import scenarios as sc
from tests.properties.drawn import blanks, few, letters, many, texts

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
TEAM = NamespaceKey(Namespace("team"), 1, sc.TEAM.key)
THEIR_TEAM = client.NamespaceKey(sc.TEAM.key, 1, "team")
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")


# Marks of many classes, and what is taken apart into several of them, alone or after a letter.
marks = st.text(
    "\u0300\u0301\u0307\u0315\u0316\u0323\u0334\u0338\u0340\u0341\u0343\u0344\u0345\u05b0\u0e38\u0f71"
    "\u0f72\u0f73\u0f75\u0f81\u3099\uff9e\uff9f\U0001d165\U0001d16d",
    min_size=20,
    max_size=70,
)
starters = st.text(
    "aAKeoα1 \u00a8\u00c5\u0f40\u0fb2\u1100\u1161\u11a8\u1ebf\u1f82\u1fbf\u1fc1\u212b\uac00\uac01"
    "\ufb2c\ufdfa\ufe70\u30ab\u30f0\uff76\u2adc\u09c7\u09be\U0001d15e\ud800",
    max_size=3,
)


def canonical(text: str) -> str:
    """SPEC §8's words about what is fingerprinted, in one line."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def fingerprint(text: str, *, kind: str = "fact", event_time_ms: int | None = None) -> bytes:
    """The fingerprint of a text, which both sides agree on."""
    ours = index.fingerprint(TEAM, kind=kind, event_time_ms=event_time_ms, text=text)
    theirs = relayers_part.fingerprint(THEIR_TEAM.subkey("fingerprint"), kind, event_time_ms, text)
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
    counts = {relayers_part.token(key, "w", word): n for word, n in Counter(found).items()}
    assert held == {token: relayers_part.term_frequency(n) for token, n in counts.items()}
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
    rounded = index.round_length(one)
    assert rounded == relayers_part.length_bucket(one) == index.round_length(rounded)
    assert max(one, 1) <= rounded <= max(1, one * 3 // 2)
    assert (one <= other) <= (rounded <= index.round_length(other))


pairs = st.dictionaries(st.text("ab\u0000:", max_size=3), st.text("ab\u0000:", max_size=3))


@few
@given(st.lists(texts, max_size=4), st.none() | texts, pairs)
def test_a_filter_finds_what_was_tagged_so_and_no_word(
    tags: list[str], source: str | None, metadata: Any
) -> None:
    held = index.postings(TEAM, words=[], tags=tags, source=source, metadata=metadata)
    key = THEIR_TEAM.subkey("index")
    assert {relayers_part.token(key, "t", tag) for tag in tags} <= held.keys()
    assert not {index.token(TEAM, "w", tag) for tag in tags} & held.keys()
    if source is not None:
        assert relayers_part.token(key, "s", source) in held


@pytest.mark.parametrize("field", ["w", "t", "s", "m"])
@few
@given(texts)
def test_tokens_are_the_same_on_both_sides(field: index.Field, term: str) -> None:
    assert index.token(TEAM, field, term) == relayers_part.token(
        THEIR_TEAM.subkey("index"), field, term
    )


@many
@given(st.lists(marks | starters, max_size=5).map("".join), st.sampled_from(FORMS))
def test_long_runs_of_marks_come_to_the_same_normal_forms(text: str, form: Form) -> None:
    expected = unicodedata.normalize(form, text)
    assert normalization.normalize(form, text) == their_forms.normalize(form, text) == expected


@many
@given(st.lists(marks | starters, max_size=5).map("".join), st.sampled_from(FORMS))
def test_marks_are_in_order_before_they_are_normalised(text: str, form: Form) -> None:
    """What is out of order is exchanged one by one; only short runs, and the few marks that a
    letter is taken apart into, are left to that."""
    base = normalization._APART[form]
    ready = normalization.in_order(form, text)
    apart = "".join(unicodedata.normalize(base, char) for char in ready)
    classes = [unicodedata.combining(char) for char in apart]
    exchanges, run = 0, list[int]()
    for mark_class in classes:
        run = [*run, mark_class] if mark_class else []
        exchanges += sum(before > mark_class for before in run)
    assert exchanges <= 2 * normalization._RUN_MAX * max(1, len(text))


def test_no_character_of_a_name_is_spelt_with_more_than_four() -> None:
    """So a name of more than four times the limit is none, before it is normalised."""
    spelt = {char: unicodedata.normalize("NFD", char) for char in map(chr, range(0x110000))}
    assert max(map(len, spelt.values())) == 4
    assert parse_namespace(spelt["\u1f82"] * 128) == "\u1f82" * 128
    assert client.normalise_namespace(spelt["\u1f82"] * 128) == "\u1f82" * 128


@pytest.mark.parametrize(
    "wild",
    ["\u0315" * 2**18 + "\u0316" * 2**18, "\u0316\u0f73" * 2**18, "\u0315\uff9e" * 2**18],
    ids=["halves", "of no class", "apart in one form"],
)
def test_a_mib_of_marks_takes_no_hours(wild: str) -> None:
    text = "a" + wild
    fingerprint(text)
    words(text)
    normalise(text)
    tokens(text)
    assert not orders_the_reader(text)
    with pytest.raises(CryptoError):
        parse_namespace(text)
    with pytest.raises(Invalid):
        client.normalise_namespace(text)
