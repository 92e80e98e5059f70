"""Unlocking and custody: a write sends just the keys that it needs, to whom it believes.

Not here: what a client believes (`test_client_session_trust.py`), what it signs and how many
memories go (`test_client_session_changes.py`).
"""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from nacl import bindings

from memrelay.errors import NotAllowed, NotGranted, UntrustedRelayer
from tests.client.session_scene import (
    IDS,
    Scene,
    account,
    fails,
    listed,
    owner,
    path_of_account,
    recall,
    remembered,
    scene,
)

__all__ = ["owner", "scene"]  # fixtures


# Unlocking


def test_a_write_sends_just_the_key_that_it_needs(scene):
    result = scene.play(
        scene.client.remember("Anna prefers tea.", tags=["a"]),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 202, remembered(scene)),
    )
    assert result.id == IDS[0]
    statement, grants, write = scene.sends
    assert (statement.signed, grants.signed, write.signed) == (False, True, True)
    assert "x-memrelay-unlock" not in {**statement.headers, **grants.headers}
    unlock = scene.unlocked(write)
    assert unlock.keys == (scene.example.team,)
    assert unlock.hold_s == 300
    body = json.loads(write.body)
    assert body.pop("idempotency_key")
    assert body == {
        "text": "Anna prefers tea.",
        "namespace": "team",
        "tags": ["a"],
        "relayer": scene.example.relayer.public_key.hex(),
    }


def test_a_root_never_leaves_even_an_owners_client(owner):
    recall(
        owner,
        ("/v1/relayer", owner.statement()),
        ("/v1/grants", owner.grants()),
        namespace="other",
    )
    keys = owner.unlocked(owner.sends[-1]).keys
    assert [key.name for key in keys] == ["other"]
    assert keys[0] == owner.example.root.namespace_key(owner.example.account, "other")


def test_a_header_is_reused_for_240_seconds_and_no_longer(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    scene.now_ms += 240_000
    recall(scene)
    first, second = (send.headers for send in scene.sends[-2:])
    assert first == second
    scene.now_ms += 1
    recall(scene)
    assert scene.sends[-1].headers != first


def test_a_header_ends_with_the_grants_that_its_keys_are_from(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    now = ("/v1/grants", scene.grants([*scene.objects, scene.withdrawn()]))
    fails(NotGranted, None, scene, scene.client.recall("tea", namespace="other"), now)
    fails(NotGranted, None, scene, scene.client.recall("tea"), now)


def test_statement_and_grants_are_fetched_again_after_ten_minutes(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    scene.now_ms += 600_001
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))


def test_an_unknown_unlock_key_is_cured_once_with_the_same_idempotency_key(scene):
    other = bindings.crypto_scalarmult_base(bytes([6]) * 32)
    unknown = {"code": "unlock_key_unknown", "message": "No."}
    scene.play(
        scene.client.remember("x"),
        ("/v1/relayer", scene.statement(key=other)),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 421, unknown),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 202, remembered(scene)),
    )
    assert scene.sends[2].body == scene.sends[5].body
    assert scene.unlocked(scene.sends[5])


def test_a_second_refusal_is_final(scene):
    rejected = {"code": "unlock_rejected", "message": "No."}
    fails(
        NotAllowed,
        "unlock_rejected",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, rejected),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, rejected),
    )


def test_a_namespace_without_a_grant_is_looked_for_once_and_never_asked_for(scene):
    fails(
        NotGranted,
        None,
        scene,
        scene.client.recall("tea", namespace="other"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/grants", scene.grants()),
    )


def test_a_missing_unlock_is_explained(scene):
    error = fails(
        NotAllowed,
        "unlock_required",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
    )
    assert "proxy" in str(error)


# Custody


def test_a_managed_account_sends_no_keys(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="managed")
    recall(scene)
    assert "x-memrelay-unlock" not in scene.sends[0].headers


def test_a_managed_client_is_told_when_its_account_is_sealed(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="managed")
    error = fails(
        NotAllowed,
        "unlock_required",
        scene,
        scene.client.recall("tea"),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
    )
    assert "set custody to sealed" in str(error)


def test_custody_is_asked_once_and_sealed_stays_sealed(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="auto")
    recall(
        scene,
        (path_of_account(scene), account(scene, "sealed")),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
    )
    recall(scene)
    scene.session.save()
    scene.restart()
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    assert scene.unlocked(scene.sends[-1])


def test_an_owner_believes_custody_only_with_the_grant(example, tmp_path):
    scene = Scene(example, example.founder, tmp_path, custody="auto")
    claim = (path_of_account(scene), account(scene, "managed"))
    fails(
        UntrustedRelayer,
        "custody",
        scene,
        scene.client.recall("tea"),
        claim,
        ("/v1/grants", scene.grants()),
        ("/v1/relayer", scene.statement()),  # the pinned relayer may have another key by now
    )
    scene.objects.append(scene.grant(3, example.relayer, "custodian", [example.root]))
    scene.restart()
    recall(scene, claim, ("/v1/grants", scene.grants()))
    assert "x-memrelay-unlock" not in scene.sends[-1].headers


def test_an_account_that_became_sealed_is_unlocked_from_then_on(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="auto")
    recall(
        scene,
        (path_of_account(scene), account(scene, "managed")),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
        ("/v1/relayer", scene.statement()),
    )
    assert scene.unlocked(scene.sends[-1])


# One memory


def test_a_memory_is_asked_for_with_the_keys_that_are_held(scene):
    memory = {"id": IDS[0], "namespace": "team", "text": "x"}
    scene.play(
        scene.client.get(IDS[0]),
        *reversed(listed(scene, scene.grants())),
        (f"/v1/memories/{IDS[0]}", memory),
    )
    assert [key.name for key in scene.unlocked(scene.sends[-1]).keys] == ["team"]


@pytest.mark.parametrize("memory_id", ["", "../keys", "a/b", "a?b", "a%2fb", "a b"])
def test_an_id_cannot_lead_elsewhere(scene, memory_id):
    with pytest.raises(ValueError, match="An id"):
        scene.play(scene.client.forget(memory_id))
    with pytest.raises(ValueError, match="An id"):
        scene.play(scene.client.get(memory_id, namespace="team"))


def test_erasing_names_the_relayer_in_the_query(scene):
    answer = {
        "id": IDS[0],
        "erased": True,
        "pending": False,
        "receipt": scene.receipt(op="forget"),
    }
    result = scene.play(scene.client.forget(IDS[0]), (f"/v1/memories/{IDS[0]}", answer))
    assert result.erased
    query = parse_qs(urlsplit(scene.sends[0].target).query)
    assert query == {"relayer": [scene.example.relayer.public_key.hex()]}
    assert scene.sends[0].method == "DELETE"
