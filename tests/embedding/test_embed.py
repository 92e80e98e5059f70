"""The embedders: the built-in model, and OpenAI-compatible endpoints that misbehave."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relayer.embedding import model
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.errors import Unavailable
from tests.sentences import PARAPHRASES, sentences

# The built-in model


async def test_builtin_needs_no_endpoint_and_gives_unit_vectors(builtin: BuiltinEmbedder) -> None:
    """capability 3.20: embeddings without any API."""
    vectors = await builtin.embed(sentences())
    assert (vectors.shape, vectors.dtype) == ((200, 384), np.dtype(np.float32))
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_builtin_embeds_nothing_and_what_has_no_token(builtin: BuiltinEmbedder) -> None:
    assert (await builtin.embed([])).shape == (0, 384)
    odd = await builtin.embed(["", " \n", "\0\0", "\u200d", "x" * 100_000])
    assert np.isfinite(odd).all()
    np.testing.assert_allclose(np.linalg.norm(odd, axis=1), 1, atol=1e-5)


async def test_vectors_do_not_depend_on_batch_or_order(builtin: BuiltinEmbedder) -> None:
    texts = sentences()
    alone = np.concatenate([await builtin.embed([text]) for text in texts])
    order = np.random.default_rng(5).permutation(len(texts))
    shuffled = await builtin.embed([texts[at] for at in order])
    np.testing.assert_allclose(shuffled, alone[order], atol=1e-6)
    np.testing.assert_array_equal(await builtin.embed(texts), await builtin.embed(texts))


async def test_paraphrases_find_each_other(builtin: BuiltinEmbedder) -> None:
    questions = await builtin.embed([question for question, _ in PARAPHRASES])
    others = [text for text in sentences() if text.isascii() and len(text) > 20]
    known = await builtin.embed([*(answer for _, answer in PARAPHRASES), *others])
    best = (questions @ known.T).argmax(axis=1)
    assert len(others) > 100
    assert best.tolist() == list(range(len(PARAPHRASES)))


async def test_many_calls_at_once_get_their_own_vectors(builtin: BuiltinEmbedder) -> None:
    texts = sentences()[:60]
    want = await builtin.embed(texts)
    got = await asyncio.gather(*(builtin.embed([text]) for text in texts))
    np.testing.assert_allclose(np.concatenate(got), want, atol=1e-6)


async def test_the_event_loop_goes_on_during_an_embedding(builtin: BuiltinEmbedder) -> None:
    call = asyncio.create_task(builtin.embed(sentences()))
    turns = 0
    while not call.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20
    assert (await call).shape == (200, 384)


async def test_a_query_does_not_wait_for_a_long_call(builtin: BuiltinEmbedder) -> None:
    long_call = asyncio.create_task(builtin.embed(sentences() * 3))
    await asyncio.sleep(0.05)
    await builtin.embed(["Where does Anna live?"])
    assert not long_call.done()
    await long_call


_SERVING = """
import asyncio, sys
from pathlib import Path

def no_network(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        raise SystemExit(f"{event} while serving")

sys.addaudithook(no_network)
from relayer.embedding.builtin import BuiltinEmbedder

embedder = BuiltinEmbedder(folder=Path(sys.argv[1]))
assert asyncio.run(embedder.embed(["hello"])).shape == (1, 384)
assert embedder.split("hello") == ["hello"]
asyncio.run(embedder.close())
assert "onnx" not in sys.modules
assert "pip" not in sys.modules
"""


def test_serving_touches_no_network_and_not_the_graph_builder(folder: Path) -> None:
    path = os.pathsep.join([str(Path(model.__file__).parents[2]), *sys.path])
    command = [sys.executable, "-c", _SERVING, str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})


def test_a_missing_model_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="relayer model fetch") as caught:
        BuiltinEmbedder(folder=tmp_path / "nothing")
    assert caught.value.code == "embedder.model_missing"
    assert str(tmp_path) not in str(caught.value)
