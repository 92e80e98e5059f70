"""Every vector, read by the relayer's code and by the client's: one table of operations for both.

It does not own what the vectors say (`scenarios*.py`) or how each side is called (`vector_*.py`).
"""

import json
from base64 import b64decode
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nacl import bindings

from tests import generate_vectors, reference, vector_client, vector_relayer

Json = dict[str, Any]

SIDES = {"relayer": vector_relayer, "client": vector_client}
FILES = sorted(generate_vectors.FOLDER.glob("*.json"))
TURN_ERROR_MAX = 2e-6  # float32 against double precision, entries of a unit vector

# Operation → members of `input`, `output` and `made_with`. A file with any other member is refused.
_KEY = "namespace epoch namespace_key"
_UNLOCK = "seed unlock_keys content_key box_nonces nonce payload"
SHAPES = {
    operation: tuple(frozenset(members.split()) for members in shape)
    for operation, shape in {
        "mac": ("key size label parts", "mac", ""),
        "keys": (
            "seed root epoch namespace",
            "public_key exchange_public exchange_secret account root_id namespace_key key_id"
            " seal index vector fingerprint idempotency",
            "",
        ),
        "public-key": ("public_key", "exchange_public", ""),
        "namespace": ("name", "namespace", ""),
        "envelope": (
            f"{_KEY} type account memory revision envelope",
            "record padded_bytes created blob_id",
            "nonce",
        ),
        "token": (f"{_KEY} field term", "token", ""),
        "fingerprint": (f"{_KEY} kind event_time text", "fingerprint", ""),
        "idempotency": (f"{_KEY} writer route item key text", "mark text_mark", ""),
        "lengths": ("words", "rounded", ""),
        "index-record": (
            f"{_KEY} account memory revision record",
            "length source postings vectors padded_bytes",
            "nonce",
        ),
        "turn": (f"{_KEY} model vector", "seed first every_64th weighted_sum", ""),
        "request": (
            "seed timestamp method target body nonce account_id",
            "text public_key signature",
            "",
        ),
        "json": ("head byte run tail members", "value", ""),
        "object": ("kind signer object", "members", "seed"),
        "grant": ("grant recipient_seed", "members keys", "seed ephemeral boxed"),
        "revocation": ("object", "members", "seed"),
        "join": ("object account issuer recipient relayer", "members", "seed"),
        "statement": ("object pinned now", "members", "seed"),
        "receipts": ("relayers account seq head receipts", "seq head members", "seeds"),
        "checkpoint": ("object account relayers", "members", "seed"),
        "succession": ("objects last", "keys", ""),
        "chain": ("account now objects succession about", "serial live", ""),
        "epochs": ("account now objects about", "oldest", ""),
        "archive": (
            "archive account recipient_seed",
            "archive_id created signer relayer records chunk_sizes",
            "key nonces",
        ),
        "unlock": (
            "header unlock_secrets relayer account sender now",
            "iat hold keys",
            _UNLOCK,
        ),
    }.items()
}


def load(path: Path) -> Json:
    """A vector, its form checked: an unknown or missing member would be a case never tested."""
    vector = json.loads(path.read_text())
    ok = vector["expect"] == "ok"
    top = {"operation", "spec", "input", "expect"} | ({"output", "made_with"} if ok else set())
    assert vector.keys() == top
    given, output, made_with = SHAPES[vector["operation"]]
    assert vector["input"].keys() == given
    if ok:
        assert vector["output"].keys() == output
        assert vector["made_with"].keys() == made_with
    return vector


def expanded(operation: str, given: Json) -> Json:
    """The input with its rules carried out."""
    if operation == "json":
        head, tail = (b64decode(given[end]) for end in ("head", "tail"))
        payload = head + given["byte"].encode() * given["run"] + tail
        return {"payload": payload, "members": given["members"]}
    if operation == "turn":
        rule = given["vector"]
        vector = [float(rule["first"] + rule["step"] * n) for n in range(rule["size"])]
        return {**given, "vector": [*vector[:-1], float(rule.get("last", vector[-1]))]}
    return given


def shortened(operation: str, result: Json) -> Json:
    """A result in the form in which the vectors hold it."""
    if operation == "json":
        value = {
            k: len(v) if isinstance(v, str) and len(v) > 999 else v
            for k, v in result["value"].items()
        }
        return {"value": value}
    if operation == "turn":
        turned = result["turned"]
        close = {"first": turned[:8], "every_64th": turned[::64]}
        total = sum((n + 1) * x for n, x in enumerate(turned)) / len(turned)
        close = {k: [pytest.approx(x, abs=TURN_ERROR_MAX) for x in v] for k, v in close.items()}
        total_error = TURN_ERROR_MAX * len(turned)
        return {
            **close,
            "weighted_sum": pytest.approx(total, abs=total_error),
            "seed": result["seed"],
        }
    return result


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_vector_is_read_as_it_says(path: Path, side: ModuleType) -> None:
    vector = load(path)
    operation, given = vector["operation"], expanded(vector["operation"], vector["input"])
    if vector["expect"] != "ok":
        with pytest.raises(side.REFUSAL) as caught:
            side.OPERATIONS[operation](given)
        word = vector["expect"]
        assert side.refusal(caught.value, operation) in side.WORDS.get(word, {word})
        return
    assert shortened(operation, side.OPERATIONS[operation](given)) == vector["output"]
    if operation in side.REBUILDS:
        rebuilt = side.REBUILDS[operation](given, vector["output"], vector["made_with"])
        assert rebuilt == {name: vector["input"][name] for name in rebuilt}


def test_the_files_are_those_that_the_generator_makes() -> None:
    assert generate_vectors.differing(generate_vectors.files(), generate_vectors.FOLDER) == []


def test_check_tells_missing_changed_and_superfluous_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_vectors.main([], tmp_path) == 0
    assert generate_vectors.main(["--check"], tmp_path) == 0
    (tmp_path / "keys-example.json").write_text("{}")
    (tmp_path / "unlock-1-box.json").unlink()
    (tmp_path / "zebra.json").write_text("{}")
    capsys.readouterr()
    assert generate_vectors.main(["--check"], tmp_path) == 1
    names = ["keys-example.json", "unlock-1-box.json", "zebra.json"]
    assert capsys.readouterr().out.splitlines() == [f"differs: {name}" for name in names]
    assert generate_vectors.main([], tmp_path) == 0
    assert generate_vectors.differing(generate_vectors.files(), tmp_path) == []


@pytest.mark.parametrize("where", ["", "input", "output", "made_with"])
def test_an_unknown_member_fails_the_loader(tmp_path: Path, where: str) -> None:
    vector = json.loads((generate_vectors.FOLDER / "grant-namespace.json").read_text())
    (vector[where] if where else vector)["more"] = 1
    (tmp_path / "more.json").write_text(json.dumps(vector))
    with pytest.raises(AssertionError):
        load(tmp_path / "more.json")


def test_every_operation_has_vectors_and_both_sides() -> None:
    used = {load(path)["operation"] for path in FILES}
    assert (
        used == SHAPES.keys() == vector_relayer.OPERATIONS.keys() == vector_client.OPERATIONS.keys()
    )


def example(name: str) -> Json:
    """What a vector says."""
    return load(generate_vectors.FOLDER / f"{name}.json")["output"]


def test_the_examples_of_the_specification() -> None:
    """SPEC §1 and §9: the numbers that people read are those of the vectors."""
    keys = example("keys-example")
    assert keys["public_key"] == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert keys["account"] == "0x160179a1565ea7cff27ead23f54cc7f50893bf58155cd7285156e57afa31c3ac"
    assert (
        keys["namespace_key"] == "f15c3b83b53b2f3a886569385f5b622dd681de7fd5fee4caeca62968e3f18ffd"
    )
    assert keys["key_id"] == "6cf9172560edc19c0b8fce863656e615edda33d06793053d50dd06efe9c6e3c2"
    assert example("token-word")["token"] == 5293496355168704132
    assert example("fingerprint-example")["fingerprint"] == "df484411cb7bf973ca40e27b5b4d91cd"
    start = [-0.006333, -0.099402, -0.022922, -0.12767]
    assert example("turn-384")["first"][:4] == pytest.approx(start, abs=1e-6)


def test_the_examples_stand_in_the_specification() -> None:
    text = (generate_vectors.FOLDER.parents[1] / "SPEC.md").read_text()
    keys = example("keys-example")
    for value in (keys["public_key"], keys["account"]):
        assert f"`{value}`" in text
    assert f"{keys['namespace_key'][:8]}…{keys['namespace_key'][-4:]}" in text
    assert f"{keys['key_id'][:8]}…{keys['key_id'][-4:]}" in text
    assert str(example("token-word")["token"]) in text
    assert example("fingerprint-example")["fingerprint"] in text


def test_the_sealed_box_of_the_vectors_is_a_sealed_box() -> None:
    """The generator builds them from a fixed ephemeral key: libsodium must open the same bytes."""
    signer, secret = reference.Signer(bytes(32)), bytes(range(32))
    box = reference.sealed_box(b"tea", signer.exchange_public, secret)
    opened = bindings.crypto_box_seal_open(box, signer.exchange_public, signer.exchange_secret)
    assert opened == b"tea"
