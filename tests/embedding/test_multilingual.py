"""The multilingual model: its tokens, its graph against a plain forward pass, what it knows.

Not here: getting its files (`test_model.py`), what it does for recall
(`test_recall_multilingual.py`).
"""

import math
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession
from tokenizers import Tokenizer, models

from relayer.embedding import sentencepiece, use, vocabulary
from relayer.embedding.building import build_embedder, build_older_embedder
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.embedders import FULL_COVERAGE, RELATED
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.models import Embedders
from relayer.embedding.openai import OpenAIEmbedder
from relayer.embedding.passages import load_tokenizer
from relayer.embedding.published import ENGLISH, MULTILINGUAL
from relayer.settings import Settings, SettingsError
from tests.embeddings_server import DIM, KEY, MODEL, EmbeddingsServer
from tests.model_fixture import model_folder, upstream_folder

Weights = dict[str, np.ndarray]
_PIECE = b"\x0a\x03\x0a\x01a"  # in a SentencePiece model: "a", with a score of 0

SENTENCES = (
    "Was darf ich nicht essen?",
    "ABC-1234 übergroß",
    "我对花生过敏，所以不能吃饼干。",
    "猫の名前はミケで、四歳です。",
    "우리 고양이 이름은 나비예요.",
    "Как зовут мою кошку?",
    "ما اسم قطتي؟",
    "แมวของฉันชื่ออะไร",
    "¿Dónde encuentro la clave de internet?",
    "a",
    "A much longer sentence in English, which is about nothing and goes on for rather a while.",
)


@pytest.fixture(scope="module")
def weights() -> Weights:
    with np.load(upstream_folder(MULTILINGUAL) / "weights.npz", allow_pickle=False) as found:
        return dict(found)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(model_folder(MULTILINGUAL) / "tokenizer.json")


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    path = model_folder(MULTILINGUAL) / "model.onnx"
    return InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture
async def embedder() -> AsyncIterator[BuiltinEmbedder]:
    built = BuiltinEmbedder(folder=model_folder(MULTILINGUAL), published=MULTILINGUAL)
    yield built
    await built.close()


class TestTokens:
    # As another reader of the published model has them; what stands for no text is not read in one.
    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("Was darf ich nicht essen?", [1, 2265, 6967, 242, 204, 12476, 21, 2]),
            ("我对花生过敏", [1, 325, 1084, 1073, 409, 1381, 6177, 2]),
            ("ABC-1234 übergroß", [1, 13514, 18, 43868, 1134, 107597, 2]),
            ("Привет, мир!", [1, 85019, 1183, 7, 19201, 42, 2]),
            ("hello  World", [1, 6, 27492, 1684, 2]),
            (" a\nb ", [1, 10, 254, 2]),
            ("", [1, 2]),
            ("<s>", [1, 87, 9, 65, 2]),
        ],
    )
    def test_they_are_those_of_the_published_model(
        self, tokenizer: Tokenizer, text: str, ids: list[int]
    ) -> None:
        assert tokenizer.encode(text).ids == ids

    def test_a_model_that_is_cut_off_is_refused(self) -> None:
        data = (upstream_folder(MULTILINGUAL) / "sp.model").read_bytes()
        for end in (0, 1, 2, 3, 7, len(data) // 2, len(data) - 1):
            with pytest.raises(ValueError, match="not a SentencePiece model"):
                sentencepiece.tokenizer(data[:end])

    @pytest.mark.parametrize(
        "data", [b"\xff" * 40, b"{}", b"\x0b", b"\x0a\x02\x0a\x00", b"\x0a\xff\xff\xff\xff\x0f"]
    )
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        with pytest.raises(ValueError, match="not a SentencePiece model"):
            sentencepiece.tokenizer(data)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            _PIECE * 2,  # none stands for the end of a text
            b"\x08\x07" * 3,  # numbers, where pieces belong
            _PIECE * 3 + b"\x0a\x08\x0a\x01a\x15\0\0\xc0\x7f",  # a score that is no number
            _PIECE * 3 + b"\x1a\x03\x12\x01a",  # a map of characters that is none
            _PIECE * 3 + b"\x40" + b"\xff" * 10 + b"\0",  # a number of more than 64 bits
        ],
    )
    def test_what_is_no_model_in_such_fields_is_refused(self, data: bytes) -> None:
        published = (upstream_folder(MULTILINGUAL) / "sp.model").read_bytes()
        normalizer = published[published.rindex(b"\x1a\xfa\xbf\x0e\x0a\x08nmt") :]
        assert Tokenizer.from_str(sentencepiece.tokenizer(normalizer + _PIECE * 3))
        with pytest.raises(ValueError, match="not a SentencePiece model"):
            sentencepiece.tokenizer(normalizer + data)


# The encoder once more, in plain numpy, one text and one token at a time.


def _norm(x: np.ndarray, weights: Weights, which: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * weights[f"ln_g{which}"] + weights[f"ln_b{which}"]


def _beside(x: np.ndarray, at: int, width: int) -> np.ndarray:
    """The rows around one, one behind the other, as many before it as after it or one fewer."""
    first = at - (width - 1) // 2
    rows = [x[n] if 0 <= n < len(x) else np.zeros(256) for n in range(first, first + width)]
    return np.concatenate(rows)


def _forward(weights: Weights, ids: list[int]) -> np.ndarray:
    tokens = np.array(
        [
            weights[f"q{token % 17 + 1}"][token // 17] * weights["scale"][token % 17]
            + weights["lo"][token % 17]
            for token in ids
        ]
    )
    seen = [tokens]
    for width in (2, 3, 5):
        x = _norm(tokens @ weights[f"proj{width}"] + weights[f"proj_b{width}"], weights, str(width))
        for layer in (f"1_{width}", f"2_{width}"):
            inner = np.array([_beside(x, at, width) @ weights[f"w{layer}"] for at in range(len(x))])
            x = x + np.maximum(inner + weights[f"b{layer}"], 0)
        seen.append(x)
    features = _norm(np.concatenate(seen, axis=-1), weights, "")
    mean = (features @ weights["cnn_W"] + weights["cnn_b"]).sum(0) / np.sqrt(len(ids))
    y = np.maximum(mean @ weights["p1"] + np.maximum(mean @ weights["d0"], 0) @ weights["d1"], 0)
    z = np.tanh(y @ weights["p3"] + np.maximum(y @ weights["d2"], 0) @ weights["d3"])
    return z / np.linalg.norm(z)


class TestGraph:
    def test_it_agrees_with_a_plain_forward_pass(
        self, weights: Weights, tokenizer: Tokenizer, session: InferenceSession
    ) -> None:
        rows = [tokenizer.encode(text).ids for text in SENTENCES]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)  # together, so that some pad
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)], mask[at, : len(row)] = row, 1
        (vectors,) = session.run(["vectors"], {"ids": ids, "mask": mask})
        assert vectors.shape == (len(SENTENCES), MULTILINGUAL.dim)
        double = {name: values.astype(np.float64) for name, values in weights.items()}
        np.testing.assert_allclose(vectors, [_forward(double, row) for row in rows], atol=1e-4)

    def test_every_weight_is_read(self, weights: Weights) -> None:
        read = set[str]()

        class Told(dict[str, np.ndarray]):
            def __getitem__(self, name: str) -> np.ndarray:
                read.add(name)
                return super().__getitem__(name)

        use.build(Told(weights))
        assert set(weights) - read == {"bits", "eps"}  # 1 and 1e-12

    def test_it_is_the_same_each_time(self, weights: Weights) -> None:
        assert use.build(weights) == use.build(weights)


class TestEmbedder:
    async def test_a_text_s_vector_does_not_depend_on_its_batch(
        self, embedder: BuiltinEmbedder
    ) -> None:
        together = await embedder.embed(SENTENCES)
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
        alone = np.concatenate([await embedder.embed([text]) for text in SENTENCES])
        np.testing.assert_allclose(together, alone, atol=1e-5)

    async def test_its_folder_may_be_replaced_while_it_serves(
        self, embedder: BuiltinEmbedder, tmp_path: Path
    ) -> None:
        """The words' vectors are read when they are needed, from the file that was there first."""
        folder = tmp_path / "model"
        shutil.copytree(model_folder(MULTILINGUAL), folder)
        served = BuiltinEmbedder(folder=folder, published=MULTILINGUAL)
        for name in MULTILINGUAL.files:
            (tmp_path / name).write_bytes(b"")
            os.replace(tmp_path / name, folder / name)
        given = await served.embed(SENTENCES)
        np.testing.assert_allclose(given, await embedder.embed(SENTENCES), atol=1e-5)
        await served.close()

    async def test_a_question_in_one_language_is_near_what_another_says(
        self, embedder: BuiltinEmbedder
    ) -> None:
        memories = [
            "Unsere Katze heißt Minka.",
            "La voiture est une Clio blanche.",
            "ぼくは看護師です。",
            "Мы летим в Лиссабон в июле.",
        ]
        questions = [
            "What is our cat called?",
            "What colour is the car?",
            "What is my job?",
            "Where are we flying in summer?",
        ]
        cosines = await embedder.embed(questions) @ (await embedder.embed(memories)).T
        assert cosines.argmax(axis=1).tolist() == [0, 1, 2, 3]

    def test_what_is_cut_is_within_the_limit_and_whole(self, embedder: BuiltinEmbedder) -> None:
        said = " ".join(f"{n} {text}" for n in range(20) for text in SENTENCES)
        text = said + "".join(chr(0x4E00 + n) for n in range(2_000))
        passages = embedder.split(text)
        assert len(passages) > 2
        assert all(embedder.count_tokens(passage) <= 126 for passage in passages)
        at = 0
        for passage in passages:  # in order, and nothing between two of them
            start = text.index(passage, max(0, at - 400))
            assert start <= at
            at = start + len(passage)
        assert at == len(text)


class TestKnown:
    @pytest.mark.parametrize("text", [text for text in SENTENCES if len(text) > 1])
    def test_sixteen_languages_are_known(self, embedder: BuiltinEmbedder, text: str) -> None:
        known = embedder.coverage(text)
        assert (known.share, known.spelt) == (1.0, ())

    @pytest.mark.parametrize(
        "text", ["मुझे किस चीज़ से एलर्जी है?", "איך קוראים לחתול שלי?", "আমার বিড়ালের নাম কী?"]
    )
    def test_others_are_not_though_it_has_letters_of_them(
        self, embedder: BuiltinEmbedder, text: str
    ) -> None:
        known = embedder.coverage(text)
        assert (known.share, list(known.spelt)) == (0.0, text.split())

    def test_a_word_it_only_spells_is_told_and_the_rest_is_known(
        self, embedder: BuiltinEmbedder
    ) -> None:
        known = embedder.coverage("Où est la clé d'Ελένη ?")
        assert known.spelt == ("d'Ελένη",)
        assert 0 < known.share < 1

    @pytest.mark.parametrize(
        "text",
        ["Où es-tu?", "¿Y tú?", "à?", "(Я)", "Wie heißt „A“?", "5€", "Where is my cat? 😀 🎉"],
    )
    def test_a_short_word_beside_signs_is_one_that_it_knows(
        self, embedder: BuiltinEmbedder, text: str
    ) -> None:
        assert embedder.coverage(text) == FULL_COVERAGE

    def test_of_signs_alone_that_it_lacks_nothing_is_known(self, embedder: BuiltinEmbedder) -> None:
        assert embedder.coverage("😀 🎉").share == 0.0

    def test_one_character_it_lacks_leaves_the_others_known(
        self, embedder: BuiltinEmbedder
    ) -> None:
        known = embedder.coverage("小鸾的筷子在哪里")
        assert known.spelt == ("鸾", "筷")
        assert known.share > 0.5

    def test_of_nothing_all_is_known(self, embedder: BuiltinEmbedder) -> None:
        assert embedder.coverage("").share == embedder.coverage("  ").share == 1.0


async def test_of_several_models_the_strictest_says_what_is_related(
    embedder: BuiltinEmbedder, server: EmbeddingsServer
) -> None:
    endpoints = [Endpoint(server.url, KEY)]
    strict = OpenAIEmbedder(endpoints=endpoints, model=MODEL, dim=DIM, related=0.8)
    embedders = Embedders(current=embedder, load={strict.model_id: strict}.get)
    assert embedders.related([embedder.model_id, strict.model_id]) == MULTILINGUAL.related
    await embedders.embed_queries(["a"], [strict.model_id], account=b"")  # it is loaded now
    assert embedders.related([embedder.model_id]) == MULTILINGUAL.related == 0.26
    assert embedders.related([embedder.model_id, strict.model_id]) == 0.8
    assert embedders.related([]) == RELATED
    await strict.close()


async def test_an_older_model_that_is_not_on_the_disk_is_told_once_and_done_without(
    embedder: BuiltinEmbedder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(embedder="multilingual", model_dir=str(tmp_path))
    embedders = Embedders(
        current=embedder, load=lambda model_id: build_older_embedder(settings, model_id)
    )
    both = [ENGLISH.model_id, MULTILINGUAL.model_id]
    for _ in range(3):
        assert list(await embedders.embed_queries(["tea"], both, account=b"")) == both[1:]
    [record] = caplog.records
    assert record.__dict__["cause"] == "embedder.model_missing"


async def test_what_an_endpoint_s_model_means_by_related_is_the_operator_s_to_say() -> None:
    settings = Settings(
        embedding_model="e5", embedding_base_urls="http://127.0.0.1:9/v1", embedding_related=0.8
    )
    built = build_embedder(settings)
    assert built is not None
    assert built.related == 0.8
    await built.close()


@pytest.mark.parametrize("related", [0.0, 1.0, -0.1, math.nan])
def test_a_cosine_that_tells_nothing_is_refused(related: float) -> None:
    with pytest.raises(SettingsError, match="RELAYER_EMBEDDING_RELATED"):
        Settings(embedding_related=related)


def test_a_vocabulary_that_spells_in_bytes_knows_everything(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), *((f"<0x{n:02X}>", -1.0) for n in range(256))]
    Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True)).save(
        str(tmp_path / "tokenizer.json")
    )
    assert (
        vocabulary.measure_coverage(load_tokenizer(tmp_path / "tokenizer.json"), "मुझे")
        == FULL_COVERAGE
    )
