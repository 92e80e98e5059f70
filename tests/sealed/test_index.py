"""The blind index and turned vectors: what holds for any text and any vector."""

import hashlib
import uuid
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.sealed import index
from relayer.sealed.keys import (
    Namespace,
)
from relayer.sealed.vector_turn import DIMENSION_MAX, derive_vector_turn
from tests.sealed.altered import ACCOUNT, ROOT, TEAM, few, refused


@few
@given(text=st.text(max_size=60), spaces=st.text(alphabet=" \t\n\r\u00a0\u3000", min_size=1))
def test_white_space_does_not_make_another_fact(text: str, spaces: str) -> None:
    def mark(said: str) -> bytes:
        return index.fingerprint(TEAM, kind="fact", event_time_ms=None, text=said)

    assert mark(spaces + spaces.join(text.split()) + spaces) == mark(text)


def test_postings_are_those_of_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [f"word{n % 40}" for n in range(100)]
    whole = index.postings(TEAM, words=some)
    monkeypatch.setattr(index, "_AT_ONCE", 7)
    assert list(index.postings(TEAM, words=some).items()) == list(whole.items())
    assert list(whole) == sorted(whole)


def test_a_memory_is_found_by_words_tags_source_and_metadata() -> None:
    found = index.postings(
        TEAM,
        words=["tea"] * 20 + ["anna"],
        tags=["drinks", "drinks"],
        source="chat",
        metadata={"room": "2"},
    )
    filters = index.filters(TEAM, tags=["drinks"], source="chat", metadata={"room": "2"})
    assert found == {
        index.token(TEAM, "w", "tea"): 15,
        index.token(TEAM, "w", "anna"): 1,
        index.token(TEAM, "t", "drinks"): 1,
        index.token(TEAM, "s", "chat"): 1,
        index.token(TEAM, "m", "\0".join(["room", "2"])): 1,
    }
    assert set(filters) < set(found)
    assert list(found) == sorted(found)  # says nothing of the order of words
    assert index.postings(TEAM, words=[]) == {}
    assert index.filters(TEAM) == []


def test_the_key_is_hashed_once_for_all_the_words_of_a_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [f"word{n}" for n in range(1_000)]
    alone = {index.token(TEAM, "w", word) for word in words}
    begun, real = [], hashlib.blake2b

    def counting(*parts: Any, **named: Any) -> Any:
        begun.append(1)
        return real(*parts, **named)

    monkeypatch.setattr(hashlib, "blake2b", counting)
    assert set(index.postings(TEAM, words=words, tags=["drinks", "food"])) > alone
    assert len(begun) <= len(get_args(index.Field))  # once for each field


@few
@given(term=st.text(max_size=20))
def test_a_token_is_a_signed_64_bit_integer_of_its_field_and_key(term: str) -> None:
    other = ROOT.namespace_key(ACCOUNT, Namespace("notes"))
    fields: tuple[index.Field, ...] = get_args(index.Field)
    tokens = {index.token(key, field, term) for key in (TEAM, other) for field in fields}
    assert len(tokens) == 2 * len(fields)
    assert all(-(2**63) <= token < 2**63 for token in tokens)


def test_lengths_are_rounded_up_in_steps_of_at_most_a_half() -> None:
    steps = sorted({index.round_length(words) for words in range(5000)})
    assert steps[:11] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    assert all(words <= index.round_length(words) <= max(1, 1.5 * words) for words in range(5000))
    assert all(3 * low >= 2 * high for low, high in pairwise(steps[1:]))


@few
@given(size=st.integers(1, 300), count=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_a_turn_keeps_every_angle_and_can_be_undone(size: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    turn = derive_vector_turn(TEAM, "test-model", size)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = turn.apply(vectors)
    assert turned.dtype == np.float32
    np.testing.assert_allclose(turned @ turned.T, unit @ unit.T, atol=5e-6)
    np.testing.assert_allclose(turn.undo(turned), unit, atol=5e-6)
    np.testing.assert_allclose(turn.apply(vectors * 3.5), turned, atol=5e-6)


def test_a_turn_does_not_change_its_input() -> None:
    vectors = np.ones((1, 8), dtype=np.float32)
    turn = derive_vector_turn(TEAM, "test-model", 8)
    turn.undo(turn.apply(vectors))
    assert (vectors == 1).all()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 3e38])
def test_a_vector_of_any_length_becomes_a_unit_vector(scale: float) -> None:
    turned = derive_vector_turn(TEAM, "test-model", 6).apply(
        np.full((1, 6), scale, dtype=np.float32)
    )
    assert np.linalg.norm(turned) == pytest.approx(1, abs=1e-6)


def test_another_key_model_or_size_turns_otherwise() -> None:
    other = ROOT.namespace_key(ACCOUNT, Namespace("notes"))
    vector = np.ones((1, 64), dtype=np.float32)
    results = [
        derive_vector_turn(key, model, 64).apply(vector)
        for key, model in ((TEAM, "a"), (TEAM, "b"), (other, "a"))
    ]
    for one, two in pairwise([*results, results[0]]):
        assert abs(float((one @ two.T)[0, 0])) < 0.7
    small, large = (derive_vector_turn(TEAM, "a", size).orders[:, :64] for size in (64, 65))
    assert not np.array_equal(small, large)


@pytest.mark.parametrize("size", [-1, 0, DIMENSION_MAX + 1])
def test_a_turn_has_1_to_4000_dimensions(size: int) -> None:
    refused(derive_vector_turn, TEAM, "test-model", size)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0, 2.0, 3.0]],
        [1.0, 2.0, 3.0, 4.0],
        [[1.0, 2.0, 3.0, float("nan")]],
        [[1.0, 2.0, 3.0, float("inf")]],
        [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]],
    ],
)
def test_what_has_no_direction_is_not_turned(vectors: list[Any]) -> None:
    refused(derive_vector_turn(TEAM, "m", 4).apply, np.array(vectors, dtype=np.float32))


@few
@given(source=st.integers(-(2**63), 2**63 - 1))
def test_a_masked_source_is_undone_with_its_key_and_memory_alone(source: int) -> None:
    one, other = (uuid.UUID(int=n, version=4) for n in (1, 2))
    masked = index.mask_source(TEAM, one, source)
    assert masked is not None
    assert -(2**63) <= masked < 2**63
    assert index.mask_source(TEAM, one, masked) == source
    away = ROOT.namespace_key(ACCOUNT, Namespace("notes"))
    others = (index.mask_source(TEAM, other, source), index.mask_source(away, one, source))
    assert masked not in others
    assert index.mask_source(TEAM, one, None) is None
