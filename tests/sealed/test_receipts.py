"""Chains of receipts: refused at every byte that is changed."""

from typing import Any

import pytest

from relayer.sealed import receipts
from tests import scenarios as sc
from tests import scenarios_signed
from tests.chains import verify_chain
from tests.sealed.altered import RELAYER, flips, refused


def test_any_bit_changed_in_any_receipt_breaks_the_chain() -> None:
    chain = list(scenarios_signed._receipt_chain())
    start: dict[str, Any] = {"seq": 0, "head": receipts.FIRST_PREVIOUS}
    assert verify_chain(chain, RELAYER.public_key, **start)[0] == 3
    for at, signed in enumerate(chain):
        for broken in [*flips(signed), signed[:-1]]:
            changed = [*chain[:at], broken, *chain[at + 1 :]]
            refused(verify_chain, changed, RELAYER.public_key, **start)


def test_a_chain_can_be_followed_in_parts() -> None:
    chain = list(scenarios_signed._receipt_chain())
    whole = verify_chain(chain, RELAYER.public_key, seq=0, head=receipts.FIRST_PREVIOUS)
    seq, head = verify_chain(chain[:2], RELAYER.public_key, seq=0, head=receipts.FIRST_PREVIOUS)
    assert head == receipts.chain_hash(chain[1])
    assert verify_chain(chain[2:], RELAYER.public_key, seq=seq, head=head) == whole


@pytest.mark.parametrize(
    "changes",
    [
        {"time": -1},
        {"epoch": 0},
        {"epoch": 2**32},
        {"namespace": " team"},
        {"namespace": 1},
        {"op": 1},
        {"op": ["forget"]},
        {"items": {"a": 1}},
        {"items": ["abc"]},
        {"items": [[str(sc.MEMORY), -1, "a"]]},
        {"items": [[str(sc.MEMORY), 1, 2]]},
        {"account": None},
        {"prev": 1},
    ],
    ids=str,
)
def test_a_receipt_with_a_member_out_of_form_is_refused(changes: dict[str, Any]) -> None:
    signed = scenarios_signed._receipt(1, bytes(32), **changes)
    refused(receipts.open_receipt, signed, RELAYER.public_key)
