"""A chain of grants continued from the objects of an account's journal.

Not here: finding these (`examiner.py`, `upkeep/rebuild.py`), storing what they add (`replay.py`).

- Anybody with access to the store could have put an object there: one that cannot be the chain's
  next means nothing.
- What the journal names and does not have is not passed over: half a chain could leave out a
  revocation.
"""

from collections.abc import Mapping, Sequence

from relayer.database.pool import Row
from relayer.sealed.grants import Chain, Grant, Revocation, parse_any
from relayer.sealed.keys import PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.succession import Named, open_next

Item = Grant | Revocation
Step = tuple[Item, str, bytes | None]  # with its label and what it rests on


def continue_chain(
    chain: Chain, stored: Sequence[Row], history: Sequence[bytes]
) -> tuple[list[Step], int]:
    """Return the journal's steps after the stored grants, and the serial that the chain must reach.

    `chain` is empty and is continued; that serial is beyond its end when something is missing, or
    when the journal has another grant in some place than the database, or two.

    Raises:
        CryptoError: the stored grants do not verify.
    """
    candidates, successors = _sort(history)
    here = {row["serial"]: row for row in stored}
    steps: list[Step] = []
    forked = False
    while True:
        row = here.get(chain.serial + 1)
        fitting = [
            (item, _rests_on(item, successors))
            for item in candidates.pop(chain.serial + 1, [])
            if (row is None or item.signed != row["object"]) and _fits(chain, item, successors)
        ]
        forked |= bool(fitting) and (row is not None or len(fitting) > 1)
        if row is not None:
            _add(chain, parse_any(row["object"]), row["succession"])
        elif len(fitting) == 1:
            [(item, succession)] = fitting
            _add(chain, item, succession)
            steps.append((item, "", succession))
        else:
            break
    later = [item for items in candidates.values() for item in items if _may_issue(chain, item)]
    return steps, max([chain.serial + forked, *(item.serial for item in later)])


def _sort(history: Sequence[bytes]) -> tuple[dict[int, list[Item]], dict[PublicKey, Named]]:
    """Return grants and revocations by serial, and whom a relayer's key named its successor."""
    candidates: dict[int, list[Item]] = {}
    successors: dict[PublicKey, Named] = {}
    for signed in history:
        try:
            item = parse_any(signed)
            candidates.setdefault(item.serial, []).append(item)
        except CryptoError:
            named = open_next(signed)
            successors[named.relayer] = named
    return candidates, successors


def _rests_on(item: Item, successors: Mapping[PublicKey, Named]) -> bytes | None:
    named = successors.get(item.issuer)
    return named.signed if named is not None and named.next == item.recipient else None


def _fits(chain: Chain, item: Item, successors: Mapping[PublicKey, Named]) -> bool:
    """Return true if a grant can be the chain's next one."""
    try:
        _add(chain.copy(), item, _rests_on(item, successors))
    except CryptoError:
        return False
    return True


def _add(chain: Chain, item: Item, succession: bytes | None) -> None:
    if succession is not None:
        chain.learn(succession)
    chain.add(item)


def _may_issue(chain: Chain, item: Item) -> bool:
    """Return true if the issuer of a grant beyond a gap may have had the right to it.

    One that is not known may: what made it an owner could be what is missing.
    """
    known = chain.grants.get(item.issuer)
    return known is None or any(grant.role in ("owner", "custodian") for grant in known)
