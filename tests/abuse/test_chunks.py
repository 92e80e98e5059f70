"""Long texts: no call that keeps the interpreter for itself is given more than a piece of one.

What comes of the pieces is what comes of the whole.
"""

import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tokenizers import Tokenizer

from relayer import chunks, normalization, redact, secret_kinds
from relayer.database import write_statement as rows
from relayer.embedding import passages
from relayer.embedding.passages import Splitter
from relayer.settings import Limits
from relayer.words import spelling, tokens
from relayer.words.tokens import words
from tests.services import Bench

SIGNS = (
    *"aBzé 1.5,-_/:@+#&'!\n=\"",
    *("e\u0301", "\u0915\u094d", "12.5", "a_b", "a.b", "++", "# ", "漢字", "가", "\u1100\u1161"),
    *("😀", "🇩🇪", "🇩", "ก", "ひ", "\U00010330", "\u0300", "\u09c7\u09be", "\ufdfa", "C#"),
    *("+49 30 1234567", "AB12 3456 7890", "secret: ", "://u:", "hf_" + 10 * "aB3", "password=\""),
)  # fmt: skip


def texts(seed: int, number: int, length: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(number):
        some = chance.choices(SIGNS, k=chance.randint(1, 9))
        yield "".join(chance.choice(some) for _ in range(chance.randint(1, length)))


# What comes of them


def test_tokens_are_those_of_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_AT_ONCE", 16)
    for text in texts(1, 400, 200):
        assert list(tokens._tokens(text, 0, len(text))) == tokens._TOKEN.findall(text)
        runs = [run.span() for run in tokens._RUN.finditer(text)]
        assert [run.span() for run in tokens._runs(text)] == runs


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_are_those_of_the_whole_text(
    form: normalization.Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalization, "_PIECE_CHARS", 3)
    for text in texts(2, 400, 60):
        assert normalization.normalize(form, text) == unicodedata.normalize(form, text)


def test_whatever_is_composed_stays_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalization, "_PIECE_CHARS", 1)
    apart = [unicodedata.normalize("NFD", chr(c)) for c in range(0x30000)]
    for text in (text for text in apart if len(text) > 1):
        assert normalization.normalize("NFC", text) == unicodedata.normalize("NFC", text)


def test_secrets_and_numbers_are_those_of_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets stand at the ends of pieces as well, and go on behind them."""
    long = 'password="' + 9 * "aB3cD4 " + '" hf_' + 40 * "aB3" + " secret: " + 9 * "x7Yz1Q"
    found = [*texts(3, 200, 400), *(n * "é" + f" {long} https://u:{n * 'p'}@h" for n in range(80))]
    whole = [(redact.redact(text), spelling.take_out_numbers(text)) for text in found]
    assert sum(bool(counts) for (_, counts), _ in whole) > 80
    for module in (chunks, redact):
        monkeypatch.setattr(module, "AT_ONCE", 64)
    monkeypatch.setattr(redact, "_BLANKS_WITHIN", 160)
    assert [(redact.redact(text), spelling.take_out_numbers(text)) for text in found] == whole


def test_no_number_in_groups_is_longer_than_what_is_looked_at() -> None:
    longest = "(+(" + " / ".join(16 * ["a" * 3 + "1" + "a" * 11])
    assert (
        max(len(found[0]) for found in spelling._GROUPED.finditer(longest)) < spelling._WRITTEN_MAX
    )


@pytest.mark.parametrize("text", ["one two  three\nfour five", "漢字" * 9, " a" * 9, "a " * 9])
def test_spans_are_those_of_the_whole_text(
    embedder: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    splitter: Splitter = embedder._splitter
    assert splitter.tokenizer is not None
    whole = splitter.tokenizer.encode(text, add_special_tokens=False).offsets
    monkeypatch.setattr(passages, "_PIECE_CHARS", 4)
    assert splitter._spans(text) == whole
    assert splitter.count(text) == len(whole)


async def test_words_of_a_long_text_are_stored_in_several_statements(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "WORDS_AT_ONCE", 1_000)
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, " ".join(f"word{n}" for n in range(5_000)))
    assert await bench.texts(caller, "word4999", mode="keyword")
    assert await bench.value("SELECT count(*) FROM postings") >= 5_000


# How much one call is given


class Spy:
    """A shape that notes how much of a text it is looked for in."""

    def __init__(self, shape: re.Pattern[str]) -> None:
        self._shape = shape
        self.longest = 0

    def __getattr__(self, name: str) -> Any:
        looked_for = getattr(self._shape, name)

        def noted(*arguments: Any) -> Any:
            [text] = [each for each in arguments if isinstance(each, str)]
            first, end = [*(a for a in arguments if isinstance(a, int)), 0, len(text)][:2] or (0, 0)
            self.longest = max(self.longest, min(end, len(text)) - first)
            return looked_for(*arguments)

        return noted if callable(looked_for) else looked_for


LONGEST = [
    "secret: aB3 " * (Limits.text_bytes_max // 12),
    "a" * Limits.text_bytes_max,
    "a.b-" * (Limits.text_bytes_max // 4),
    "é 1" * (Limits.text_bytes_max // 4),
    "\U00010330" * (Limits.text_bytes_max // 4),
]


@pytest.mark.parametrize("text", LONGEST, ids=["labels", "one word", "joints", "numbers", "gothic"])
def test_no_shape_is_looked_for_in_all_of_a_long_text(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = [Spy(shape) for shape, _ in secret_kinds.SHAPES]
    accepting = [accepts for _, accepts in secret_kinds.SHAPES]
    monkeypatch.setattr(redact, "SHAPES", tuple(zip(secrets, accepting, strict=True)))
    others = [Spy(tokens._TOKEN), Spy(tokens._MORE_OF_TOKEN), Spy(spelling._GROUPED)]
    names = [(tokens, "_TOKEN"), (tokens, "_MORE_OF_TOKEN"), (spelling, "_GROUPED")]
    for (module, name), spy in zip(names, others, strict=True):
        monkeypatch.setattr(module, name, spy)
    redact.redact(text)
    words(text)
    assert max(spy.longest for spy in (*secrets, *others)) <= 3 * chunks.AT_ONCE


def test_no_long_text_is_normalised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character may become eighteen, and a MiB of them took a second."""
    lengths: list[int] = []
    normalize = unicodedata.normalize

    def noted(form: Any, text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(normalization.unicodedata, "normalize", noted)  # type: ignore[attr-defined]
    normalization.normalize("NFKC", "\ufdfa" * 100_000)
    assert max(lengths) <= normalization._PIECE_CHARS


def test_no_tokenizer_gets_a_long_text_at_once(
    embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But by a call within which other threads go on."""
    tokenizer: Tokenizer = embedder._splitter.tokenizer
    given: list[str] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def encode_batch(self, texts: list[str], **how: Any) -> Any:
            given.extend(texts)
            return tokenizer.encode_batch(texts, **how)

        encode: Callable[..., Any] | None = None

    monkeypatch.setattr(embedder._splitter, "tokenizer", Noting())
    for text in ("tea " * 50_000, "a" * 200_000):
        embedder._splitter._spans(text)
    assert "".join(given) == "tea " * 50_000 + "a" * 200_000
    assert max(map(len, given)) <= 2 * passages._PIECE_CHARS
