"""A relayer's next key, which the pinned one has to name, and keys that pose as its forerunner."""

import json

import pytest

from memrelay.errors import BadRequest, UntrustedGrant, UntrustedRelayer
from memrelay.operations import archives
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.keys import Identity, hash_256
from memrelay.sealed.objects import from_base64, sign_object, to_base64
from memrelay.sealed.receipts import NO_HEAD
from tests.client.session_scene import (
    NIL,
    NOW_MS,
    Scene,
    account,
    chain,
    fails,
    history,
    owner,
    path_of_account,
    recall,
    scene,
)

__all__ = ["owner", "scene"]  # fixtures


# A relayer's next key


NEXT = Identity(bytes([21]) * 32)
AFTER_NEXT = Identity(bytes([22]) * 32)


def named(relayer, following, signer=None):
    payload = {
        "relayer": relayer.public_key.hex(),
        "next": following.public_key.hex(),
        "created": NOW_MS,
    }
    return to_base64(sign_object("relayer-next", payload, signer or relayer))


def succeeded(scene, *succession, signer=NEXT):
    return ("/v1/relayer", scene.statement(signer=signer) | {"succession": list(succession)})


def test_a_successor_named_by_the_pinned_key_is_followed_for_good(scene):
    first = named(scene.example.relayer, NEXT)
    scene.play(scene.client.statement(), succeeded(scene, first))
    assert scene.session.find_pin() == NEXT.public_key
    scene.restart()
    assert scene.session.find_pin() == NEXT.public_key
    both = (first, named(NEXT, AFTER_NEXT))
    scene.play(scene.client.statement(), succeeded(scene, *both, signer=AFTER_NEXT))
    assert scene.session.find_pin() == AFTER_NEXT.public_key
    # Who stole the first key can name another heir, and is not believed any more.
    thief = Identity(bytes([23]) * 32)
    heir = succeeded(scene, named(scene.example.relayer, thief), signer=thief)
    scene.restart()
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), heir)
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), succeeded(scene, first))


@pytest.mark.parametrize("succession", ["none", "of another", "unsigned", "gap", "twice"])
def test_a_relayer_that_the_pinned_key_does_not_name_is_refused(scene, succession):
    relayer = scene.example.relayer
    objects = {
        "none": [],
        "of another": [named(AFTER_NEXT, NEXT)],
        "unsigned": [named(relayer, NEXT, NEXT)],
        "gap": [named(relayer, AFTER_NEXT)],
        "twice": [named(relayer, NEXT), named(relayer, NEXT)],
    }
    code = {"none": "pin", "of another": "pin", "unsigned": "signature"}
    reply = succeeded(scene, *objects[succession])
    operation = scene.client.statement()
    fails(UntrustedRelayer, code.get(succession, "succession"), scene, operation, reply)
    assert scene.session.find_pin() == relayer.public_key


def test_a_change_signed_for_an_earlier_key_is_signed_again_once(owner):
    agent = owner.example.agent.public_key.hex()
    other = ("/v1/revocations", 400, {"code": "relayer.other", "message": "Another relayer."})
    done = owner.receipt_of("revoke", "revocation", signer=NEXT, recipient=agent, serial=3)
    owner.play(
        owner.client.revoke_key(agent),
        ("/v1/grants", owner.grants()),
        other,
        succeeded(owner, named(owner.example.relayer, NEXT)),
        ("/v1/revocations", 201, done),
    )
    bodies = [json.loads(send.body) for send in owner.sends if send.method == "POST"]
    assert [body["relayer"] for body in bodies] == [
        owner.example.relayer.public_key.hex(),
        NEXT.public_key.hex(),
    ]
    assert bodies[0]["revocation"] == bodies[1]["revocation"]


def test_a_relayer_that_wants_another_ones_changes_gets_none(owner):
    """It refuses the pinned key's name and shows no successor: nothing is signed for it."""
    agent = owner.example.agent.public_key.hex()
    other = ("/v1/revocations", 400, {"code": "relayer.other", "message": "Another relayer."})
    same = ("/v1/relayer", owner.statement())
    grants = ("/v1/grants", owner.grants())
    fails(BadRequest, "relayer.other", owner, owner.client.revoke_key(agent), grants, other, same)
    stranger = succeeded(owner)
    fails(UntrustedRelayer, "pin", owner, owner.client.revoke_key(agent), other, stranger)


def test_custody_passed_on_needs_the_object_that_names_the_successor(example, tmp_path):
    scene = Scene(example, example.founder, tmp_path, custody="auto")
    scene.objects.append(scene.grant(3, example.relayer, "custodian", [example.root]))
    handed = issue_grant(
        example.relayer,
        account=example.account,
        serial=4,
        recipient=NEXT.public_key,
        role="custodian",
        keys=[example.root],
        created_ms=NOW_MS,
    )
    scene.objects.append(handed)
    claim, grants = (path_of_account(scene), account(scene, "managed")), scene.grants()
    operation = scene.client.recall("tea")
    fails(UntrustedGrant, "role", scene, operation, claim, ("/v1/grants", grants))
    proven = ("/v1/grants", grants | {"succession": [named(example.relayer, NEXT)]})
    scene.session.forget_grants()
    recall(scene, claim, proven)


# Who poses as the pinned key's forerunner


def posing(scene):
    """The relayer's own statement, and before its key one that names it as its heir."""
    return ("/v1/relayer", scene.statement() | {"succession": [named(NEXT, scene.example.relayer)]})


def by_impostor(scene, length, **members):
    relayer = NEXT.public_key.hex()
    return chain(scene, length, relayer=relayer, signer=NEXT, **members)


def checkpoint(scene, signer, seq, head):
    payload = {
        "relayer": signer.public_key.hex(),
        "account": scene.settings.account_id,
        "seq": seq,
        "head": head.hex(),
        "grant_serial": 2,
        "time": NOW_MS,
    }
    return ("/v1/checkpoint", {"checkpoint": to_base64(sign_object("checkpoint", payload, signer))})


def test_receipts_of_a_forerunner_count_if_the_pinned_key_stands_for_them(owner):
    """Receipts of before it was pinned are signed by earlier keys; and anybody can sign some, and
    a word that makes the pinned key their heir."""
    receipts = by_impostor(owner, 2)
    head = hash_256(from_base64(receipts[-1], "receipt"))
    pages = (history(receipts, 2, receipts[-1]), history([], 2, receipts[-1]))
    for signer, ends in ((NEXT, head), (owner.example.relayer, NO_HEAD)):
        owner.restart()
        stands = checkpoint(owner, signer, 2, ends)
        code = "signature" if signer is NEXT else "chain"
        operation = owner.client.receipts()
        fails(UntrustedRelayer, code, owner, operation, posing(owner), *pages, stands)
        assert owner.session.trust_store.value.checked_seq == 0
    owner.restart()
    stands = checkpoint(owner, owner.example.relayer, 2, head)
    operation = owner.client.receipts()
    assert len(owner.play(operation, posing(owner), *pages, stands)) == 2


def test_receipts_of_a_forerunner_that_the_pinned_key_went_on_from_count(owner):
    receipts = by_impostor(owner, 1)
    receipts += chain(owner, 1, 2, hash_256(from_base64(receipts[0], "receipt")))
    page = history(receipts, 2, receipts[-1])
    assert len(owner.play(owner.client.receipts(), posing(owner), page)) == 2


def test_an_archive_takes_no_history_of_a_forerunner(owner):
    newest = from_base64(by_impostor(owner, 2)[-1], "receipt")
    for ends in (hash_256(newest), NO_HEAD):
        owner.restart()
        replies = (posing(owner), checkpoint(owner, owner.example.relayer, 2, ends))
        operation = archives.check_exported(owner.client, newest)
        if ends == NO_HEAD:
            fails(UntrustedRelayer, "chain", owner, operation, *replies)
        else:
            owner.play(operation, *replies)


def test_a_checkpoint_of_a_forerunner_is_none(owner):
    operation = owner.client.checkpoint()
    forged = checkpoint(owner, NEXT, 9, NO_HEAD)
    fails(UntrustedRelayer, "signature", owner, operation, forged, posing(owner))


def test_a_forerunner_is_not_kept_and_hides_no_successor(scene):
    scene.play(scene.client.statement(), posing(scene))
    assert scene.session.trust_store.value.succession == ()
    # What an earlier release kept is gone on from.
    scene.session._note(succession=(named(NEXT, scene.example.relayer),))
    scene.session.save()
    first = named(scene.example.relayer, AFTER_NEXT)
    scene.restart()
    scene.play(scene.client.statement(), succeeded(scene, first, signer=AFTER_NEXT))
    assert scene.session.find_pin() == AFTER_NEXT.public_key
    scene.restart()
    assert scene.session.find_pin() == AFTER_NEXT.public_key


def test_a_verification_does_not_hold_by_a_forerunners_word(owner):
    items = [[NIL, 0, blob_id(data)] for data in owner.objects]
    receipts, prev = [], NO_HEAD
    for seq, item in enumerate(items, 1):
        said = {"op": "grant", "items": [item], "namespace": None, "epoch": None, "serial": seq}
        receipts += by_impostor(owner, 1, start=seq, prev=prev, **said)
        prev = hash_256(from_base64(receipts[-1], "receipt"))
    end = ("/v1/receipts", {"receipts": [], "seq": 2, "head": prev.hex()})
    for head, found in ((NO_HEAD, ["head"]), (prev, [])):
        owner.restart()
        verified = owner.play(
            owner.client.verify(),
            posing(owner),
            ("/v1/grants", owner.grants()),
            history(receipts, 2),
            end,
            checkpoint(owner, owner.example.relayer, 2, head),
            ("/v1/grants", owner.grants()),
            ("/v1/inventory", {"items": [], "next_cursor": None}),
            end,
        )
        assert [finding.what for finding in verified.findings] == found
