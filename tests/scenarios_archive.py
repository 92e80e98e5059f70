"""What the vectors of archives are about (SPEC §17.1).

It does not own files (`generate_vectors.py`) or formulas (`reference.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tests import reference as ref
from tests.scenarios import (
    ACCOUNT,
    AGENT,
    FOUNDER,
    NOW,
    OTHER_ACCOUNT,
    RELAYER,
    STRANGER,
    Json,
    Scenario,
)

ARCHIVE = UUID("0192f0c1-7a00-7000-8000-0000000000aa")
KEY = ref.drawn("archive key")
NONCES = [ref.drawn(f"archive nonce {n}", 24) for n in range(2)]
RECORDS: list[Json] = [
    {"record": "account", "label": "anna", "receipt_seq": 3},
    {"record": "tombstone", "id": "0192f0c1-7a00-7000-8000-000000000001", "namespace": None},
    {"record": "end", "counts": {"account": 1, "tombstone": 1}},
]


@dataclass(frozen=True)
class Made:
    """An archive and what may be wrong with it."""

    account: bytes = ACCOUNT
    boxed_account: bytes = ACCOUNT
    owner: ref.Signer = FOUNDER
    box_to: ref.Signer = FOUNDER
    signer: ref.Signer = FOUNDER
    named_signer: ref.Signer = FOUNDER
    records: Sequence[Any] = field(default_factory=lambda: RECORDS)
    flags: tuple[bool, bool] = (False, True)
    indexes: tuple[int, int] = (0, 1)

    def header(self) -> bytes:
        inside = {
            "account": ref.account_text(self.boxed_account),
            "archive": str(ARCHIVE),
            "key": ref.b64(KEY),
        }
        box = ref.sealed_box(
            ref.compact(inside), self.box_to.exchange_public, ref.drawn("archive ephemeral")
        )
        members = {
            "v": 1,
            "archive": str(ARCHIVE),
            "account": ref.account_text(self.account),
            "created": NOW,
            "signer": self.named_signer.hex,
            "relayer": RELAYER.hex,
            "boxes": [{"recipient": self.owner.hex, "box": ref.b64(box)}],
        }
        return self.signer.signed("archive", ref.compact(members))

    def chunks(self) -> list[bytes]:
        stream = b"".join(
            ref.lp(r if isinstance(r, bytes) else ref.compact(r)) for r in self.records
        )
        parts = (stream[:100], stream[100:])
        return [
            ref.archive_chunk(KEY, ARCHIVE, self.indexes[n], self.flags[n], part, NONCES[n])
            for n, part in enumerate(parts)
        ]

    def data(self) -> bytes:
        return ref.archive_bytes(self.header(), self.chunks())


def archives() -> Iterator[Scenario]:
    good = Made()
    first, second = good.chunks()
    whole = good.data()
    yield _scenario("of-2-chunks", whole)
    yield _scenario("cut-behind-a-chunk", whole[: -len(second)], "decryption")
    yield _scenario("cut-in-a-chunk", whole[:-1], "length")
    yield _scenario("without-chunks", whole[: -len(first + second)], "length")
    yield _scenario("cut-in-the-header", whole[:60], "length")
    yield _scenario("swapped", ref.archive_bytes(good.header(), [second, first]), "decryption")
    yield _scenario(
        "repeated", ref.archive_bytes(good.header(), [first, first, second]), "decryption"
    )
    altered = bytearray(whole)
    altered[-20] ^= 1
    yield _scenario("chunk-altered", bytes(altered), "decryption")
    yield _scenario("last-flag-missing", replace(good, flags=(False, False)).data(), "decryption")
    yield _scenario("last-flag-too-soon", replace(good, flags=(True, True)).data(), "decryption")
    yield _scenario("wrong-index", replace(good, indexes=(0, 2)).data(), "decryption")
    yield _scenario("more-behind-the-last", whole + first, "decryption")
    yield _scenario("another-account", replace(good, account=OTHER_ACCOUNT).data(), "account")
    other = replace(good, boxed_account=OTHER_ACCOUNT)
    yield _scenario("box-of-another-account", other.data(), "box")
    yield _scenario("box-to-another-key", replace(good, box_to=STRANGER).data(), "box_closed")
    yield _scenario("not-a-recipient", whole, "recipient", reader=AGENT)
    yield _scenario("signed-by-another", replace(good, signer=STRANGER).data(), "signature")
    yield _scenario("no-archive", b"not an archive\n" + whole, "archive")
    yield _scenario("record-not-json", replace(good, records=[*RECORDS, b"{"]).data(), "record")
    yield _scenario("record-without-a-name", replace(good, records=[*RECORDS, {}]).data(), "record")
    yield _scenario("record-is-a-list", replace(good, records=[*RECORDS, b"[]"]).data(), "record")


def _scenario(
    name: str, data: bytes, expect: str = "ok", *, reader: ref.Signer = FOUNDER
) -> Scenario:
    given = {
        "archive": ref.b64(data),
        "account": ref.account_text(ACCOUNT),
        "recipient_seed": reader.seed.hex(),
    }
    output = {
        "archive_id": str(ARCHIVE),
        "created": NOW,
        "signer": FOUNDER.hex,
        "relayer": RELAYER.hex,
        "records": RECORDS,
        "chunk_sizes": [100, len(b"".join(ref.lp(ref.compact(r)) for r in RECORDS)) - 100],
    }
    made_with = {"key": KEY.hex(), "nonces": [nonce.hex() for nonce in NONCES]}
    return Scenario(f"archive-{name}", "archive", "§17.1", given, expect, output, made_with)
