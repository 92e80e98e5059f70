"""A memory read from its sealed bytes: whatever else a relayer gives for it is not believed."""

import json
from typing import Any
from uuid import UUID

import pytest

from memrelay.errors import NotGranted, UntrustedRelayer
from memrelay.operations.decryption import open_memory
from memrelay.sealed.envelope import MEMORY, SUMMARY, Address, blob_id, seal_envelope
from memrelay.sealed.objects import to_base64
from tests.client.session_scene import IDS, NOW_MS, fails, scene
from tests.client.shell_scene import Machine

__all__ = ["scene"]  # a fixture

TEXT = "Anna prefers tea."


def sealed(scene, *, id=IDS[0], revision=1, type=MEMORY, **record):
    data = json.dumps({"ns": "team", "text": TEXT, **record}).encode()
    address = Address(type, scene.example.account, UUID(id), revision)
    return seal_envelope(address, scene.example.team, data, created_ms=NOW_MS)


def answers(scene, bytes_, *, told=TEXT, **blob):
    name = blob_id(bytes_)
    memory = {"id": IDS[0], "namespace": "team", "text": told, "blob_id": name, "revision": 1}
    bytes_of = {"blob_id": name, "data": to_base64(bytes_), "problem": None, **blob}
    return [
        ("/v1/grants", scene.grants()),
        ("/v1/relayer", scene.statement()),
        (f"/v1/memories/{IDS[0]}", memory),
        ("/v1/blobs", {"blobs": [bytes_of], "left": []}),
    ]


@pytest.mark.parametrize("type", [MEMORY, SUMMARY])
def test_what_is_sealed_is_read_with_ones_own_key(scene, type):
    replies = answers(scene, sealed(scene, type=type))
    assert scene.play(open_memory(scene.client, IDS[0]), *replies).text == TEXT


def test_what_is_claimed_to_be_known_is_not_there_until_it_is_sealed(scene):
    """No receipt comes with `duplicate`; the id that does leads to bytes, or to nothing."""
    lies: list[tuple[str, bytes, dict[str, Any]]] = [
        ("sealed", sealed(scene, id=IDS[1]), {}),
        ("sealed", sealed(scene, revision=2), {}),
        ("sealed", b"no envelope" * 50, {}),
        ("text", sealed(scene, text="Ben sells cups."), {}),
        ("text", sealed(scene, ns="shop"), {}),
        ("blob", sealed(scene), {"data": None, "problem": "missing"}),
        ("blob", sealed(scene), {"data": to_base64(sealed(scene, text="Another."))}),
    ]
    for code, data, blob in lies:
        scene.restart()
        operation = open_memory(scene.client, IDS[0])
        fails(UntrustedRelayer, code, scene, operation, *answers(scene, data, **blob))
    scene.restart()
    operation = open_memory(scene.client, IDS[0], revision=2)
    fails(UntrustedRelayer, "revision", scene, operation, *answers(scene, sealed(scene))[:-1])


def test_what_another_client_sealed_is_not_to_be_opened(scene):
    replies = answers(scene, sealed(scene), told=None)
    fails(NotGranted, None, scene, open_memory(scene.client, IDS[0]), *replies[:-1])


@pytest.mark.parametrize("custody", ["sealed", "managed"])
def test_a_known_memory_is_opened_by_command(run: Machine, custody: str) -> None:
    memory_id = run.remember(TEXT, "--wait")
    told = run("remember", TEXT)
    assert (told["id"], told["duplicate"]) == (memory_id, True)
    assert run.lines("get", memory_id, "--open") == [TEXT]
    assert run("get", memory_id, "--open") == run("get", memory_id)
