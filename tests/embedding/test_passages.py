"""Passages of texts that are longer than a model reads at once."""

import itertools
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers

from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder, splitter_of
from relayer.embedding.passages import Splitter, load_tokenizer
from relayer.errors import Unavailable
from tests.embedding.long_texts import LONG, prose
from tests.embeddings_server import DIM, MODEL


# A Thai letter that the vocabulary lacks makes its whole run one unknown token, so 12,000 of them
# are not long for this model.
@pytest.mark.parametrize("name", sorted(set(LONG) - {"thai"}))
def test_passages_are_within_the_models_real_limit(
    builtin: BuiltinEmbedder, folder: Path, name: str
) -> None:
    """capability 4.25: limits are counted in the model's own tokens, not in characters."""
    text, tokenizer = LONG[name], load_tokenizer(folder / "tokenizer.json")
    passages = builtin.split(text)
    assert len(passages) > 1
    assert max(len(tokenizer.encode(passage).ids) for passage in passages) <= 256
    if name in {"unbroken", "digits"}:
        assert "[UNK]" not in tokenizer.encode(text).tokens
    _assert_cover(text, passages)


def _assert_cover(text: str, passages: list[str]) -> None:
    """Exact substrings, in order, without a gap."""
    start = end = 0
    for passage in passages:
        start = text.find(passage, max(start, end - 200))  # no overlap is longer
        assert 0 <= start <= end < start + len(passage)
        end = start + len(passage)
    assert end == len(text)


def test_passages_end_with_sentences_and_overlap(builtin: BuiltinEmbedder) -> None:
    text = " ".join(f"Entry {n} says that the pump number {n * 7} was oiled." for n in range(300))
    passages = builtin.split(text)
    assert all(
        passage.startswith("Entry") and passage.rstrip().endswith(".") for passage in passages
    )
    for one, following in itertools.pairwise(passages):
        assert following.split(". ")[0] in one
    assert len(passages) < 40


def test_a_text_within_the_limit_is_one_passage(builtin: BuiltinEmbedder) -> None:
    for text in ("Anna prefers tea.", "  spaced  ", " ", "\0", "x"):
        assert builtin.split(text) == [text]
    assert builtin.split("") == []
    exactly = " ".join(["tea"] * 126)
    assert builtin.split(exactly) == [exactly]
    assert len(builtin.split(exactly + " tea")) == 2


async def test_the_end_of_a_long_text_is_found_by_its_passage(builtin: BuiltinEmbedder) -> None:
    text = prose(25_000) + "The spare key hangs behind the blue barrel in the boathouse."
    passages = builtin.split(text)
    question = await builtin.embed(["Where is the spare key?"])
    best = (await builtin.embed(passages) @ question[0]).argmax()
    assert best == len(passages) - 1


@pytest.mark.parametrize("name", LONG)
def test_without_a_tokenizer_bytes_are_counted(name: str) -> None:
    splitter = Splitter(tokenizer=None, tokens_max=500, overlap_tokens=30)
    passages = splitter.split(LONG[name])
    assert max(len(passage.encode()) for passage in passages) <= 500
    _assert_cover(LONG[name], passages)


def test_more_tokens_than_bytes_are_counted_as_tokens() -> None:
    """One sign may stand for many characters, which some tokenizers take it apart into first."""
    pieces = [
        ("<unk>", 0.0),
        *((char, -1.0) for char in "\u0627\u0644\u0644\u0647\u0635\u064a\u0639\u0648\u0633\u0645 "),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.NFKC()
    text = "\ufdfa" * 4  # 12 bytes; each is 18 characters in compatibility form
    assert len(tokenizer.encode(text).ids) > 40 > len(text.encode())
    splitter = Splitter(tokenizer=tokenizer, tokens_max=40, overlap_tokens=0)
    assert len(splitter.split(text)) > 1
    # A sign that alone has more than the limit is a passage of its own, and no reason to go on.
    smaller = Splitter(tokenizer=tokenizer, tokens_max=8, overlap_tokens=3)
    assert set(smaller.split(text)) == {"\ufdfa"}


def test_a_limit_smaller_than_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="8 tokens"):
        Splitter(tokenizer=None, tokens_max=7, overlap_tokens=0)
    with pytest.raises(ValueError, match="overlap"):
        Splitter(tokenizer=None, tokens_max=64, overlap_tokens=32)


def test_a_broken_tokenizer_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"not": "one"}')
    for path in (tmp_path / "tokenizer.json", tmp_path / "none.json"):
        with pytest.raises(Unavailable) as caught:
            load_tokenizer(path)
        assert caught.value.code == "embedder.model_missing"


async def test_an_endpoint_splits_by_its_models_tokenizer_if_it_has_one(folder: Path) -> None:
    endpoints = [Endpoint("http://127.0.0.1:9/v1")]
    counted, guessed = (
        OpenAIEmbedder(endpoints=endpoints, model=MODEL, dim=DIM, splitter=splitter_of(128, place))
        for place in (folder, None)
    )
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    passages = counted.split(LONG["prose"])
    assert 64 < max(len(tokenizer.encode(passage).ids) for passage in passages) <= 128
    assert max(len(passage.encode()) for passage in guessed.split(LONG["prose"])) <= 120
    await counted.close()
    await guessed.close()
