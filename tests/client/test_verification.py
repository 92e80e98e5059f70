"""What receipts promise together: each rule by itself, without a relayer."""

import uuid
from dataclasses import replace

import pytest

from memrelay.sealed.envelope import Address, blob_id, seal_envelope
from memrelay.sealed.receipts import Checkpoint, Receipt
from memrelay.verification import (
    NEW_STATE,
    Item,
    Landmarks,
    Promises,
    StatePromise,
    contradictions,
    judge_blob,
    judge_grants,
    judge_newest,
    judge_state,
)

MEMORY = "0190a8a0-0000-7000-8000-000000000001"
OTHER = "0190a8a0-0000-7000-8000-000000000002"
TURN = "0190a8a0-0000-7000-8000-000000000003"
FORMER_TURN = "0190a8a0-0000-8000-8000-000000000003"
PLACE = uuid.UUID(MEMORY).bytes


def receipt(seq, op, *items, serial=2, **changes):
    values = {
        "account": bytes(32),
        "seq": seq,
        "prev": bytes([seq - 1]) * 32,
        "time_ms": seq,
        "op": op,
        "actor": bytes(32),
        "namespace": "team",
        "epoch": 1,
        "items": items,
        "serial": serial,
        "relayer": bytes(32),
        "digest": bytes([seq]) * 32,
    }
    return Receipt(**{**values, **changes})


def founded():
    """After the grants of an account's founding."""
    promises = Promises()
    for serial in (1, 2):
        grant = receipt(serial, "grant", (MEMORY, 0, f"grant {serial}"), serial=serial)
        assert list(promises.add(grant)) == []
    return promises


def told(*receipts):
    """The promises of receipts after the founding, and what the last one contradicts."""
    promises = founded()
    for one in receipts[:-1]:
        assert list(promises.add(one)) == []
    return promises, list(promises.add(receipts[-1]))


def item(**changes):
    values = {
        "id": MEMORY,
        "type": "memory",
        "revision": 1,
        "format": "sealed",
        "namespace": "team",
        "epoch": 1,
        "blob_id": "a",
        "size": 396,
        "seq": 1,
        "earlier": False,
        "superseded_at": None,
        "superseded_by": None,
        "pinned": False,
        "review": None,
        "stale": False,
    }
    return Item(**{**values, **changes})


STORED = receipt(3, "remember", (MEMORY, 1, "a"))
SOUND = {
    "an edit": receipt(4, "edit", (MEMORY, 2, "b")),
    "sealed anew": receipt(4, "reseal", (MEMORY, 1, "b"), epoch=2),
    "restored as it was": receipt(4, "restore", (MEMORY, 1, "a")),
    "erased": receipt(4, "forget", (MEMORY, 1, "a")),
    "expired": receipt(4, "expire", (MEMORY, 1, "a")),
    "a state": receipt(4, "state", (MEMORY, 1, "s")),
    "a grant": receipt(4, "grant", (OTHER, 0, "g"), serial=3),
    "another memory": receipt(4, "remember", (OTHER, 1, "c")),
}
CONTRADICTORY = {
    "the same revision otherwise": receipt(4, "remember", (MEMORY, 1, "b")),
    "an edit under the same number": receipt(4, "edit", (MEMORY, 1, "b")),
    "restored otherwise": receipt(4, "restore", (MEMORY, 1, "b")),
    "imported otherwise": receipt(4, "import", (MEMORY, 1, "b")),
    "erased otherwise": receipt(4, "forget", (MEMORY, 1, "b")),
    "a grant without its serial": receipt(4, "grant", (OTHER, 0, "g")),
    "two serials at once": receipt(4, "grant", (OTHER, 0, "g"), serial=4),
    "a serial without a grant": receipt(4, "remember", (OTHER, 1, "c"), serial=3),
    "a serial that falls": receipt(4, "remember", (OTHER, 1, "c"), serial=1),
}


@pytest.mark.parametrize("following", SOUND.values(), ids=SOUND)
def test_what_may_follow_a_memory(following):
    _, found = told(STORED, following)
    assert found == []


@pytest.mark.parametrize("following", CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_what_may_not_follow_it_is_named(following):
    _, [finding] = told(STORED, following)
    assert (finding.what, finding.seq) == ("receipt", 4)
    assert finding.expected
    assert finding.found


ERASED = receipt(4, "forget", (MEMORY, 1, "a"))


@pytest.mark.parametrize(
    "op", ["restore", "import", "edit", "reseal", "remember", "analyze", "consolidate"]
)
def test_what_was_erased_never_comes_back(op):
    _, [finding] = told(STORED, ERASED, receipt(5, op, (MEMORY, 1, "a")))
    assert (finding.what, finding.id) == ("receipt", MEMORY)


WAITING = receipt(3, "analyze", (TURN, 1, "a"))


def test_a_turn_whose_facts_were_taken_is_gone():
    promises, found = told(WAITING, receipt(4, "analyze", (TURN, 0, "a"), (MEMORY, 1, "b")))
    assert found == []
    assert [named.blob_id for _, named in promises] == ["b"]


def test_an_erased_turn_never_comes_back():
    """What it said may be said again, under another id."""
    _, [finding] = told(
        WAITING, receipt(4, "forget", (TURN, 1, "a")), replace(WAITING, seq=5, time_ms=5)
    )
    assert (finding.what, finding.id) == ("receipt", TURN)


@pytest.mark.parametrize(("op", "revision"), [("forget", 1), ("analyze", 0)])
def test_a_turn_with_a_former_id_is_not_named_by_it_again(op, revision):
    """Its blob tells which one is gone; what has another blob stays."""
    sealed = replace(WAITING, items=((FORMER_TURN, 1, "a"), (TURN, 1, "b")))
    anew = receipt(4, "reseal", (FORMER_TURN, 1, "c"))
    promises, found = told(sealed, anew, receipt(5, op, (OTHER, revision, "c")))
    assert found == []
    assert [named.blob_id for _, named in promises] == ["b"]
    promises, found = told(sealed, anew, receipt(5, op, (OTHER, revision, "d")))
    assert found == []
    assert {named.blob_id for _, named in promises} == {"b", "c"}


def test_every_revision_is_promised_and_erased_together():
    promises, _ = told(STORED, SOUND["an edit"])
    assert [named.blob_id for _, named in promises] == ["a", "b"]
    assert list(promises.add(receipt(5, "forget", (MEMORY, 2, "b")))) == []
    assert list(promises) == []
    assert list(promises.add(receipt(6, "forget", (MEMORY, 1, "a")))) == []


@pytest.mark.parametrize(("back_ms", "count"), [(0, 0), (1, 1), (300_000, 1), (300_001, 0)])
def test_time_goes_back_only_where_a_wrong_clock_was_set_right(back_ms, count):
    first = receipt(3, "remember", (MEMORY, 1, "a"), time_ms=1_000_000)
    second = receipt(4, "remember", (OTHER, 1, "b"), time_ms=1_000_000 - back_ms)
    _, found = told(first, second)
    assert [finding.what for finding in found] == ["receipt"] * count


def test_nothing_follows_the_end_of_an_account():
    promises, found = told(STORED, receipt(4, "close"))
    assert found == []
    assert list(promises) == []
    assert [f.what for f in promises.judge(item())] == ["erased"]
    assert [f.what for f in promises.add(receipt(5, "remember", (OTHER, 1, "c")))] == ["receipt"]


STORED_AS = {
    "as promised": ({}, []),
    "another blob": ({"blob_id": "b"}, ["receipt"]),
    "another namespace": ({"namespace": "shop"}, ["receipt"]),
    "another epoch": ({"epoch": 2}, ["receipt"]),
    "another revision": ({"revision": 2}, ["unnamed"]),
    "another memory": ({"id": OTHER}, ["unnamed"]),
}


@pytest.mark.parametrize(("changes", "wanted"), STORED_AS.values(), ids=STORED_AS)
def test_a_row_is_judged_by_its_receipt(changes, wanted):
    promises, _ = told(STORED)
    assert [f.what for f in promises.judge(item(**changes))] == wanted


def test_what_lies_before_the_history_that_was_followed_is_not_called_unnamed():
    promises = Promises(complete=False, serial=2, seq=2)
    assert list(promises.add(STORED)) == []
    assert list(promises.judge(item(id=OTHER))) == []
    assert [f.what for f in promises.judge(item(blob_id="b"))] == ["receipt"]


def test_a_rebuilt_account_begins_with_any_serial():
    promises = Promises()
    assert list(promises.add(receipt(9, "rebuild", serial=7))) == []
    assert not promises.complete
    assert list(promises.add(receipt(10, "remember", (MEMORY, 1, "a"), serial=7))) == []


def test_grants_are_those_that_receipts_name():
    promises = founded()
    names = {1: "grant 1", 2: "grant 2"}
    assert list(judge_grants(promises, names)) == []
    assert len(list(judge_grants(promises, {1: "grant 1"}))) == 1
    assert len(list(judge_grants(promises, {**names, 2: "another"}))) == 1
    assert len(list(judge_grants(promises, {**names, 3: "one more"}))) == 1


# Bytes and states


def sealed(example, **changes):
    address = Address(1, example.account, uuid.UUID(MEMORY), 1)
    data = seal_envelope(replace(address, **changes), example.team, b"{}", created_ms=1)
    return data, item(blob_id=blob_id(data))


def test_bytes_are_judged_by_their_name_and_header(example):
    data, stored = sealed(example)
    assert list(judge_blob(example.account, stored, data, "")) == []
    [finding] = judge_blob(example.account, stored, None, "missing")
    assert (finding.what, finding.found) == ("blob", "missing")
    [finding] = judge_blob(example.account, stored, data[:-1] + bytes([data[-1] ^ 1]), "")
    assert finding.what == "blob"
    foreign = replace(stored, blob_id=blob_id(b"x"), format="opaque")
    assert list(judge_blob(example.account, foreign, b"x", "")) == []
    [finding] = judge_blob(example.account, replace(foreign, format="sealed"), b"x", "")
    assert finding.what == "header"
    [finding] = judge_blob(example.account, replace(stored, format="opaque"), data, "")
    assert (finding.what, finding.expected) == ("header", "foreign bytes")
    others, stored = sealed(example, account=bytes(32))
    assert list(judge_blob(example.account, replace(stored, format="opaque"), others, "")) == []


def test_the_newest_revision_is_in_force():
    assert list(judge_newest([item(), item(id=OTHER, revision=2)])) == []
    [finding] = judge_newest([item(), item(id=OTHER, revision=2, earlier=True)])
    assert (finding.what, finding.id) == ("state", OTHER)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"revision": 2}, "revision 2"),
        ({"memory": uuid.UUID(OTHER)}, f"memory {OTHER}"),
        ({"type": 3}, "type 3"),
        ({"account": bytes(32)}, f"account {bytes(32).hex()}"),
    ],
)
def test_an_envelope_of_something_else_is_named(example, changes, wanted):
    data, stored = sealed(example, **changes)
    [finding] = judge_blob(example.account, stored, data, "")
    assert (finding.what, finding.found) == ("header", wanted)


def test_an_envelope_of_another_epoch_is_named(example):
    data, stored = sealed(example)
    [finding] = judge_blob(example.account, replace(stored, epoch=2), data, "")
    assert finding.found == "epoch 1"


@pytest.mark.parametrize(
    "changes", [{"pinned": True}, {"review": "pending"}, {"stale": True}, {"superseded_by": OTHER}]
)
def test_a_state_without_its_object_is_named(changes):
    assert list(judge_state(item(), None, None)) == []
    [finding] = judge_state(item(**changes), None, None)
    assert finding.what == "state"
    said = {**NEW_STATE, **changes}
    assert list(judge_state(item(**changes), StatePromise("s", 4), said)) == []
    assert len(list(judge_state(item(), StatePromise("s", 4), said))) == 1


def test_what_no_inventory_lists_of_a_state_is_not_judged():
    said = {**NEW_STATE, "pinned": True, "merged": True, "default_life": True}
    assert list(judge_state(item(pinned=True), StatePromise("s", 4), said)) == []


def test_an_edit_makes_a_memory_no_longer_stale():
    said = {**NEW_STATE, "stale": True, "pinned": True}
    edited = StatePromise("s", 4, refreshed=True)
    assert list(judge_state(item(pinned=True), edited, said)) == []
    assert len(list(judge_state(item(pinned=True, stale=True), edited, said))) == 1
    assert len(list(judge_state(item(), edited, said))) == 1


# What was seen before


def seen(*points):
    landmarks = Landmarks()
    for seq, head in points:
        landmarks.add(seq, head, "seen")
    return landmarks


def test_a_chain_passes_through_what_was_seen():
    landmarks = seen((3, bytes([3]) * 32), (5, bytes([9]) * 32))
    assert list(landmarks.pass_by(STORED, begins=True)) == []
    assert [f.what for f in landmarks.check_left(4)] == ["rollback"]
    [finding] = landmarks.pass_by(receipt(5, "forget"), begins=False)
    assert (finding.what, finding.seq) == ("fork", 5)
    assert list(landmarks.check_left(5)) == []


@pytest.mark.parametrize(
    ("seq", "head", "wanted"),
    [
        (8, bytes([8]) * 32, []),  # the rebuild is tied to it
        (8, bytes(32), ["rebuilt"]),
        (7, bytes([7]) * 32, ["rebuilt"]),
        (9, bytes([9]) * 32, []),
    ],
)
def test_an_account_rebuilt_over_what_was_seen_is_named(seq, head, wanted):
    found = seen((seq, head)).pass_by(receipt(9, "rebuild"), begins=True)
    assert [f.what for f in found] == wanted


def test_nothing_was_seen_of_a_new_account():
    assert seen((0, b"")).heads == {}


def checkpoint(seq, head):
    return Checkpoint(bytes(32), seq, head, 1, 1, bytes(32), b"")


def test_checkpoints_contradict_each_other_only_at_one_place():
    one, two = checkpoint(3, bytes(32)), checkpoint(3, bytes([1]) * 32)
    assert list(contradictions([one, one, checkpoint(4, bytes([1]) * 32)])) == []
    [finding] = contradictions([one, two])
    assert (finding.what, finding.seq) == ("fork", 3)
