"""What a client believes of a relayer: its identity, grants, receipts, history, its next key."""

import json
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from memrelay.errors import BadRequest, NotGranted, ServerError, UntrustedGrant, UntrustedRelayer
from memrelay.operations import moving
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.keys import Identity, hash_256
from memrelay.sealed.objects import from_base64, sign_object, to_base64
from memrelay.sealed.receipts import HEADS_MAX, NO_HEAD, Heads, read_receipt
from memrelay.seen import SeenFile
from tests.client.session_scene import (
    IDS,
    NIL,
    NOW_MS,
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


# The relayer's identity


def test_another_relayer_is_refused(scene):
    fails(
        UntrustedRelayer,
        "pin",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement(signer=scene.example.agent)),
    )


def test_the_first_relayer_is_pinned_and_stays_so(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, relayer_key=None)
    scene.play(scene.client.statement(), ("/v1/relayer", scene.statement()))
    scene.restart()
    other = scene.statement(signer=example.founder)
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), ("/v1/relayer", other))


def test_a_stale_statement_is_refused(scene):
    stale = scene.statement(issued=NOW_MS - 600_001)
    fails(UntrustedRelayer, "stale", scene, scene.client.statement(), ("/v1/relayer", stale))


@pytest.mark.parametrize("answer", [{}, {"statement": 5}, {"statement": "x"}, {"statement": ""}])
def test_a_malformed_statement_is_refused(scene, answer):
    with pytest.raises((UntrustedRelayer, ServerError)):
        scene.play(scene.client.statement(), ("/v1/relayer", answer))


# Grants


def test_a_shorter_history_is_refused_even_after_a_restart(scene):
    recall(scene, *listed(scene, scene.grants()))
    scene.restart()
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.recall("tea"),
        *listed(scene, scene.grants(serial=1)),
    )


def test_one_receipt_of_a_hostile_relayer_shuts_nobody_out_of_the_next_one(scene):
    """Only what owners signed holds at another relayer; what a relayer signed, at that one."""
    scene.play(
        scene.client.remember("Anna prefers tea."),
        *listed(scene, scene.grants()),
        ("/v1/remember", remembered(scene, receipt=scene.receipt(serial=2**53 - 1))),
    )
    scene.session.save()
    scene.restart()
    honest = scene.grants()
    fails(UntrustedRelayer, "rollback", scene, scene.client.recall("tea"), *listed(scene, honest))
    other = scene.example.founder
    before, scene.settings = (
        scene.settings.relayer_key,
        replace(scene.settings, relayer_key=other.public_key.hex()),
    )
    SeenFile(scene.settings.seen_path).pin(scene.settings.relayer_key, before=before)
    scene.restart()
    recall(scene, ("/v1/relayer", scene.statement(signer=other)), ("/v1/grants", honest))
    scene.restart()
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement(signer=other)),
        ("/v1/grants", scene.grants(serial=1)),
    )


def test_what_another_process_has_seen_counts_for_one_that_runs_on(scene):
    """An agent runs for days; meanwhile somebody at the same profile saw newer grants."""
    before = scene.grants()
    recall(scene, *listed(scene, before))
    running = scene.session, scene.client
    scene.restart()
    newer = [*scene.objects, scene.grant(3, scene.example.agent, "writer", [scene.example.team])]
    recall(scene, *listed(scene, scene.grants(newer)))
    scene.session, scene.client = running
    scene.session.forget_grants()
    back = ("/v1/grants", before)
    fails(UntrustedRelayer, "rollback", scene, scene.client.recall("tea"), back)


def test_an_owner_notices_a_withheld_grant(owner):
    for answer in (
        owner.grants(serial=3),
        owner.grants(owner.objects[:1], serial=2),
        owner.grants(
            [owner.objects[0], owner.grant(3, owner.example.agent, "writer", [owner.example.team])],
            serial=3,
        ),
    ):
        owner.restart()
        fails(UntrustedRelayer, "rollback", owner, owner.client.recall("x"), *listed(owner, answer))


def test_a_founder_who_is_shown_no_grants_takes_no_account_for_managed(example, tmp_path):
    scene = Scene(example, example.founder, tmp_path, custody="auto")
    told = [(path_of_account(scene), account(scene, "managed"))]
    for shown in ([], scene.objects[1:]):
        none = ("/v1/grants", scene.grants(shown, serial=2))
        fails(UntrustedRelayer, "rollback", scene, scene.client.recall("x"), *told, none)


def test_a_founder_who_is_shown_no_grants_finds_nothing_in_order(owner):
    """There would be nothing to verify, and a receipt that was seen would not be looked for."""
    refused = ("/v1/checkpoint", 403, {"code": "auth.not_allowed", "message": "No."})
    stored = ("/v1/inventory", {"items": [], "next_cursor": None})
    none = listed(owner, owner.grants([], serial=2))
    verified = owner.play(owner.client.verify(), *none, refused, stored)
    assert [finding.what for finding in verified.findings] == ["grants"]


def test_grants_of_a_stranger_are_refused(scene):
    stranger = issue_grant(
        scene.example.relayer,
        account=scene.example.account,
        serial=3,
        recipient=scene.example.agent.public_key,
        role="writer",
        keys=[scene.example.root.namespace_key(scene.example.account, "trap")],
        created_ms=NOW_MS,
    )
    answer = scene.grants([*scene.objects, stranger])
    fails(UntrustedGrant, "issuer", scene, scene.client.recall("x"), *listed(scene, answer))


def test_a_revoked_key_has_nothing_to_send(scene):
    answer = scene.grants([*scene.objects, scene.withdrawn()])
    again = ("/v1/grants", answer)
    fails(NotGranted, None, scene, scene.client.recall("x"), *listed(scene, answer), again)


def one_grant(**members):
    return {"grants": [{"kind": "grant", "serial": 1, **members}], "grant_serial": 2}


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (ServerError, {"grants": 5, "grant_serial": 2}),
        (ServerError, {"grants": [5], "grant_serial": 2}),
        (ServerError, one_grant()),
        (ServerError, one_grant(object="AAAA", serial="1")),
        (ServerError, {"grants": [], "grant_serial": "2"}),
        (ServerError, {"grants": [], "grant_serial": 2**64}),
        (UntrustedRelayer, one_grant(object="A")),
        (UntrustedGrant, one_grant(object="AAAA")),
        (UntrustedGrant, one_grant(object="", kind="gift")),
    ],
)
def test_a_malformed_list_of_grants_is_refused(scene, kind, answer):
    fails(kind, None, scene, scene.client.recall("x"), *listed(scene, answer))


# Receipts


def test_a_false_receipt_makes_the_write_untrusted(scene):
    lies = {
        "signature": scene.receipt(signer=scene.example.agent),
        "receipt": scene.receipt(op="forget"),
        "base64": "!",
    }
    before = listed(scene, scene.grants())
    for code, receipt in lies.items():
        scene.restart()
        reply = ("/v1/remember", 202, remembered(scene, receipt=receipt))
        fails(UntrustedRelayer, code, scene, scene.client.remember("x"), *before, reply)
    for receipt in (
        scene.receipt(ids=[IDS[1]]),
        scene.receipt(actor=scene.example.founder.public_key.hex()),
    ):
        scene.restart()
        reply = ("/v1/remember", 202, remembered(scene, receipt=receipt))
        fails(UntrustedRelayer, "receipt", scene, scene.client.remember("x"), *before, reply)


def test_a_receipt_vouches_for_one_answer(scene):
    """Otherwise a relayer could drop a write and show the receipt of an earlier one."""
    texts = chain(scene, 2)
    first, second = (("/v1/remember", 202, remembered(scene, receipt=text)) for text in texts)
    scene.play(scene.client.remember("x"), *listed(scene, scene.grants()), first)
    fails(UntrustedRelayer, "receipt", scene, scene.client.remember("y"), first)
    scene.play(scene.client.remember("y"), second)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("place", ["the same", "the next"])
def test_receipts_of_two_histories_are_told(scene, caplog, place, restarted):
    """What was written is written, so it is no error; only the relayer's word is worth less."""
    texts, other = chain(scene, 3), chain(scene, 3, epoch=2)
    write = ("/v1/remember", 202, remembered(scene, receipt=texts[1]))
    scene.play(scene.client.remember("x"), *listed(scene, scene.grants()), write)
    before = ()
    if restarted:
        scene.session.save()
        scene.restart()
        before = listed(scene, scene.grants())
    lie = other[1] if place == "the same" else other[2]
    assert caplog.messages == []
    told = ("/v1/remember", 202, remembered(scene, receipt=lie))
    scene.play(scene.client.remember("y"), *before, told)
    [message] = caplog.messages
    assert "two histories" in message
    # One that was set back goes on like that, and is told of once.
    [following] = chain(scene, 1, 5, NO_HEAD)
    went_on = ("/v1/remember", 202, remembered(scene, receipt=following))
    scene.play(scene.client.remember("z"), went_on)
    assert len(caplog.messages) == 1


def test_answers_may_come_in_another_order_than_their_receipts(scene, caplog):
    texts = chain(scene, 3)
    before = listed(scene, scene.grants())
    for text in (texts[2], texts[0], texts[1]):
        reply = ("/v1/remember", 202, remembered(scene, receipt=text))
        scene.play(scene.client.remember("x"), *before, reply)
        before = ()
    assert caplog.messages == []


def test_what_is_known_of_the_chain_is_bounded(scene):
    heads = Heads()
    [text] = chain(scene, 1)
    first = read_receipt(
        from_base64(text, "receipt"),
        relayer=scene.example.relayer.public_key,
        account=scene.example.account,
    )
    digests = [seq.to_bytes(32, "big") for seq in range(3 * HEADS_MAX)]
    for seq in range(1, len(digests)):
        assert heads.take(replace(first, seq=seq, prev=digests[seq - 1], digest=digests[seq]))
    assert max(map(len, (heads._heads, heads._taken))) <= HEADS_MAX


def test_a_known_memory_needs_no_new_receipt(scene):
    reply = remembered(scene, duplicate=True, receipt=None)
    result = scene.play(
        scene.client.remember("x"),
        *listed(scene, scene.grants()),
        ("/v1/remember", 202, reply),
    )
    assert result.duplicate


@pytest.mark.parametrize("receipt", [None, "absent"])
def test_a_new_memory_needs_its_receipt(scene, receipt):
    answer = remembered(scene, receipt=receipt)
    if receipt == "absent":
        del answer["receipt"]
    reply = ("/v1/remember", 202, answer)
    before = listed(scene, scene.grants())
    fails(UntrustedRelayer, "receipt", scene, scene.client.remember("x"), *before, reply)


@pytest.mark.parametrize("duplicate", [True, False])
def test_a_new_fact_needs_its_receipt(scene, duplicate):
    fact = {"id": IDS[1], "text": "x", "duplicate": duplicate}
    other = scene.receipt(op="analyze", ids=IDS[:1])
    reply = {"facts": [fact], "fact_count": 1, "status": "done", "receipts": [other]}
    replies = (*listed(scene, scene.grants()), ("/v1/analyze", 200, reply))
    if duplicate:
        assert scene.play(scene.client.analyze("x"), *replies).facts[0].duplicate
    else:
        fails(UntrustedRelayer, "receipt", scene, scene.client.analyze("x"), *replies)


def chain(scene, length, start=1, prev=NO_HEAD, **changes):
    texts = []
    for seq in range(start, start + length):
        texts.append(scene.receipt(seq=seq, prev=prev, **changes))
        prev = hash_256(from_base64(texts[-1], "receipt"))
    return texts


def history(texts, seq, ends=None):
    head = NO_HEAD if ends is None else hash_256(from_base64(ends, "receipt"))
    return ("/v1/receipts", {"receipts": texts, "seq": seq, "head": head.hex()})


def test_history_is_followed_from_where_it_was_left(scene):
    texts = chain(scene, 3)
    relayer = ("/v1/relayer", scene.statement())
    pages = (history(texts[:2], 2), history([], 2, texts[1]))
    first = scene.play(scene.client.receipts(), relayer, *pages)
    assert [receipt.seq for receipt in first] == [1, 2]
    scene.restart()
    pages = (history(texts[2:], 3), history([], 3, texts[2]))
    later = scene.play(scene.client.receipts(), relayer, *pages)
    assert [receipt.seq for receipt in later] == [3]
    assert parse_qs(urlsplit(scene.sends[-2].target).query)["after"] == ["2"]


def test_rewritten_withheld_and_forked_history_is_noticed(scene):
    texts = chain(scene, 3)
    other = chain(scene, 3, epoch=2)
    write = ("/v1/remember", 202, remembered(scene, receipt=texts[1]))
    scene.play(scene.client.remember("x"), *listed(scene, scene.grants()), write)
    fails(
        UntrustedRelayer,
        "fork",
        scene,
        scene.client.receipts(),
        history(other, 3),
    )
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.receipts(),
        history(texts[:1], 1),
        history([], 1),
    )
    fails(UntrustedRelayer, "chain", scene, scene.client.receipts(), history(texts[1:], 3))
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.receipts(),
        history(texts[:2], 3),
        history([], 3),
    )
    ends = history([], 3, texts[2])
    assert len(scene.play(scene.client.receipts(), history(texts, 3), ends)) == 3
    # One that was set back and written to since has as many, of which the last is another.
    fails(UntrustedRelayer, "fork", scene, scene.client.receipts(), history([], 3, other[2]))
    # A relayer that was set back has nothing behind what was followed, and says so itself.
    fails(UntrustedRelayer, "rollback", scene, scene.client.receipts(), history([], 2))


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
    assert scene.session.pinned() == NEXT.public_key
    scene.restart()
    assert scene.session.pinned() == NEXT.public_key
    both = (first, named(NEXT, AFTER_NEXT))
    scene.play(scene.client.statement(), succeeded(scene, *both, signer=AFTER_NEXT))
    assert scene.session.pinned() == AFTER_NEXT.public_key
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
    assert scene.session.pinned() == relayer.public_key


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
    fails(UntrustedRelayer, "pin", owner, owner.client.revoke_key(agent), grants, other, stranger)


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


def test_an_answer_about_another_memory_is_refused(scene):
    """The receipt is genuine, of something that was done to another memory before."""
    asked, other = IDS[5], IDS[0]
    gone = {"erased": 1, "already": False, "pending": False, "matched": 1, "more": False}
    erased = scene.receipt(op="forget")
    gone |= {"receipts": [erased], "ids": [other]}
    path = f"/v1/memories/{asked}"
    one = gone | {"id": other, "receipt": erased, "erased": True}
    fails(UntrustedRelayer, "id", scene, scene.client.forget(asked), (path, one))
    for results in ([{"id": other, "status": "erased"}], [], None):
        answer = ("/v1/forget", gone | {"results": results})
        scene.restart()
        fails(UntrustedRelayer, "id", scene, scene.client.forget_many([asked]), answer)
    state = {"id": other, "state": "active", "pinned": True, "review": None, "stale": False}
    state |= {"superseded_at": None, "superseded_by": None, "receipt": scene.receipt(op="state")}
    fails(UntrustedRelayer, "id", scene, scene.client.pin(asked), (f"{path}/state", state))


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
    pages = (history(receipts, 2), history([], 2, receipts[-1]))
    for signer, ends in ((NEXT, head), (owner.example.relayer, NO_HEAD)):
        owner.restart()
        stands = checkpoint(owner, signer, 2, ends)
        code = "signature" if signer is NEXT else "chain"
        operation = owner.client.receipts()
        fails(UntrustedRelayer, code, owner, operation, posing(owner), *pages, stands)
        assert owner.session.seen.value.checked_seq == 0
    owner.restart()
    stands = checkpoint(owner, owner.example.relayer, 2, head)
    operation = owner.client.receipts()
    assert len(owner.play(operation, posing(owner), *pages, stands)) == 2


def test_receipts_of_a_forerunner_that_the_pinned_key_went_on_from_count(owner):
    receipts = by_impostor(owner, 1)
    receipts += chain(owner, 1, 2, hash_256(from_base64(receipts[0], "receipt")))
    pages = (history(receipts, 2), history([], 2, receipts[-1]))
    assert len(owner.play(owner.client.receipts(), posing(owner), *pages)) == 2


def test_an_archive_takes_no_history_of_a_forerunner(owner):
    newest = from_base64(by_impostor(owner, 2)[-1], "receipt")
    for ends in (hash_256(newest), NO_HEAD):
        owner.restart()
        replies = (posing(owner), checkpoint(owner, owner.example.relayer, 2, ends))
        operation = moving.check_exported(owner.client, newest)
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
    assert scene.session.seen.value.succession == ()
    # What an earlier release kept is gone on from.
    scene.session._note(succession=(named(NEXT, scene.example.relayer),))
    scene.session.save()
    first = named(scene.example.relayer, AFTER_NEXT)
    scene.restart()
    scene.play(scene.client.statement(), succeeded(scene, first, signer=AFTER_NEXT))
    assert scene.session.pinned() == AFTER_NEXT.public_key
    scene.restart()
    assert scene.session.pinned() == AFTER_NEXT.public_key


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
