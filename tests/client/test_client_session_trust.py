"""What a client believes of a relayer: its identity, grants, receipts and history.

Not here: a key that follows or poses as the pinned one (`test_client_session_succession.py`).
"""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from memrelay.errors import NotGranted, ServerError, UntrustedGrant, UntrustedRelayer
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.objects import from_base64
from memrelay.sealed.receipts import (
    CLOCKS_APART_MS_MAX,
    HEADS_MAX,
    NO_HEAD,
    Heads,
    read_receipt,
)
from memrelay.trust_store import TrustStore
from tests.client.session_scene import (
    IDS,
    NOW_MS,
    Scene,
    account,
    chain,
    fails,
    history,
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
    TrustStore(scene.settings.seen_path).pin(scene.settings.relayer_key, before=before)
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
    stored: tuple[str, dict[str, Any]] = ("/v1/inventory", {"items": [], "next_cursor": None})
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


OTHERS = {
    "another namespace": {"namespace": "other"},
    "no namespace": {"namespace": None, "epoch": None},
    "an epoch that is over": {"epoch": 0},
    "an earlier request": {"time": NOW_MS - CLOCKS_APART_MS_MAX - 1},
    "another revision": {"items": [[IDS[0], 2, "blob"]]},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_a_receipt_is_for_what_was_asked(scene, changes):
    """A memory that went elsewhere, or nowhere, is not where it was to be."""
    scene.session.trust_store.note(epoch=1)
    before = listed(scene, scene.grants())
    reply = ("/v1/remember", 202, remembered(scene, receipt=scene.receipt(**changes)))
    fails(UntrustedRelayer, "receipt", scene, scene.client.remember("x"), *before, reply)


def test_an_answer_tells_the_namespace_that_was_asked_for(scene):
    before = listed(scene, scene.grants())
    for duplicate in (False, True):
        reply = ("/v1/remember", 202, remembered(scene, namespace="other", duplicate=duplicate))
        fails(UntrustedRelayer, "namespace", scene, scene.client.remember("x"), *before, reply)
        scene.restart()


def test_each_of_many_new_memories_is_one_of_its_own(scene):
    """Otherwise one receipt would do for a memory that was stored and one that was dropped."""

    def told(ids, receipt):
        rows = [{"id": one, "status": "pending", "namespace": "team"} for one in ids]
        return ("/v1/remember/bulk", 202, {"results": rows, "receipts": [receipt]})

    same, two = told([IDS[0]] * 2, scene.receipt()), told(IDS[:2], scene.receipt(ids=IDS[:2]))
    before = listed(scene, scene.grants())
    operation = scene.client.remember_many(["x", "y"])
    fails(UntrustedRelayer, "receipt", scene, operation, *before, same)
    assert len(scene.play(scene.client.remember_many(["x", "y"]), two)) == 2


def test_an_erased_namespace_has_receipts_of_its_own(scene):
    receipt = scene.receipt(op="forget", namespace="other")
    gone = {"matched": 1, "erased": 1, "ids": [IDS[0]], "receipts": [receipt]}
    operation = scene.client.forget_namespace("team")
    fails(UntrustedRelayer, "receipt", scene, operation, ("/v1/namespaces/team", gone))


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
    assert max(len(heads._heads), len(heads._taken)) <= HEADS_MAX


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
    # One of another memory, and one by which a turn of this id is gone.
    others = scene.receipt(op="analyze", items=[[IDS[0], 1, "blob"], [IDS[1], 0, "blob"]])
    reply = {"facts": [fact], "fact_count": 1, "status": "done", "receipts": [others]}
    replies = (*listed(scene, scene.grants()), ("/v1/analyze", 200, reply))
    if duplicate:
        assert scene.play(scene.client.analyze("x"), *replies).facts[0].duplicate
    else:
        fails(UntrustedRelayer, "receipt", scene, scene.client.analyze("x"), *replies)


def test_history_is_followed_from_where_it_was_left(scene):
    texts = chain(scene, 3)
    relayer = ("/v1/relayer", scene.statement())
    first = scene.play(scene.client.receipts(), relayer, history(texts[:2], 2, texts[1]))
    assert [receipt.seq for receipt in first] == [1, 2]
    scene.restart()
    later = scene.play(scene.client.receipts(), relayer, history(texts[2:], 3, texts[2]))
    assert [receipt.seq for receipt in later] == [3]
    assert parse_qs(urlsplit(scene.sends[-1].target).query)["after"] == ["2"]


def test_history_ends_where_it_ended_when_it_was_first_asked_for(scene):
    """A relayer may sign on and on; whoever follows is told how far, and may stop there."""
    texts, told = chain(scene, 6), []
    relayer = ("/v1/relayer", scene.statement())
    pages = (history(texts[:2], 3, texts[2]), history(texts[2:4], 6, texts[5]))
    operation = scene.client.receipts(progress=lambda *numbers: told.append(numbers))
    assert len(scene.play(operation, relayer, *pages)) == 4
    assert told == [(2, 3), (4, 4)]

    def stop(number, of):
        raise KeyboardInterrupt

    scene.session.trust_store.note(receipt_seq=4)
    operation = scene.client.receipts(progress=stop)
    with pytest.raises(KeyboardInterrupt):
        scene.play(operation, history(texts[4:5], 2**53 - 1))
    assert scene.session.trust_store.value.checked_seq == 4


def test_history_passes_through_the_end_that_was_told_first(scene):
    texts, other = chain(scene, 4), chain(scene, 4, epoch=2)
    pages = (history(texts[:2], 3, other[2]), history(texts[2:], 4, texts[3]))
    relayer = ("/v1/relayer", scene.statement())
    fails(UntrustedRelayer, "fork", scene, scene.client.receipts(), relayer, *pages)


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
        history(texts[:1], 1, texts[0]),
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
    assert len(scene.play(scene.client.receipts(), history(texts, 3, texts[2]))) == 3
    # One that was set back and written to since has as many, of which the last is another.
    fails(UntrustedRelayer, "fork", scene, scene.client.receipts(), history([], 3, other[2]))
    # A relayer that was set back has nothing behind what was followed, and says so itself.
    fails(UntrustedRelayer, "rollback", scene, scene.client.receipts(), history([], 2))


def test_an_answer_about_another_memory_is_refused(scene):
    """The receipt is genuine, of something that was done to another memory before."""
    asked, other = IDS[5], IDS[0]
    gone: dict[str, Any] = {
        "erased": 1,
        "already": False,
        "pending": False,
        "matched": 1,
        "more": False,
    }
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
