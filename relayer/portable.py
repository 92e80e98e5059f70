"""The forms in which an account leaves one relayer and arrives at another. Source: SPEC §17.

Not here: what is checked on arrival (`archives/validation.py`), SQL (`database.imports`), the
archive that holds these outside (the client's).

- Everything readable here is what the database shows anyway; words and vectors stay hashed and
  turned, and the blob stays sealed.
"""

import uuid
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from relayer.preferences import AccountSettings
from relayer.record import Confidence, Importance, Kind
from relayer.settings import Limits

SERIALS_MAX: Final = 2**31 - 1  # what the columns hold
KEYS_MAX: Final = 256  # of a namespace: no grant names more epochs
RECORD_BYTES_MAX: Final = 2**25  # of a sealed record: more than any text has words and vectors
LINKS_MAX: Final = 10_000  # of a memory
Moment = Annotated[datetime, Meta(tz=True)]
Epoch = Annotated[int, Meta(ge=1, le=SERIALS_MAX)]
Count = Annotated[int, Meta(ge=0, le=SERIALS_MAX)]
Sequence = Annotated[int, Meta(ge=1, le=2**53)]
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?!\n)$")]
Word = Annotated[str, Meta(max_length=200, pattern=r"^[ -~]*(?!\n)$")]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}(?!\n)$")]
BlobName = Annotated[str, Meta(min_length=43, max_length=43)]


class Moved(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One thing of an account, complete."""


class MovedAccount(Moved):
    """The account itself, and the positions of its sequences."""

    label: Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?!\n)$")]
    settings: AccountSettings
    created_at: Moment
    relayer: Hex
    succession: Annotated[list[bytes], Meta(max_length=64)]
    grant_serial: Count
    receipt_seq: Annotated[int, Meta(ge=0, le=2**53)]
    memory_seq: Annotated[int, Meta(ge=0, le=2**53)]


class MovedGrant(Moved):
    """A grant or revocation as it was signed.

    Attributes:
        succession: the `relayer-next` object that a custodian's successor rests on.
    """

    serial: Annotated[int, Meta(ge=1, le=SERIALS_MAX)]
    label: Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?!\n)$")]
    object: Annotated[bytes, Meta(min_length=65, max_length=2**17)]
    succession: Annotated[bytes, Meta(min_length=65, max_length=2**17)] | None = None


class EpochKey(Moved):
    """The id of a namespace's key in one epoch."""

    epoch: Epoch
    key_id: Hex


class MovedNamespace(Moved, omit_defaults=True):
    """A namespace, the ids of its keys, and whether its index is sealed."""

    name: Name
    ttl_s: Annotated[int, Meta(ge=60, le=315_360_000)] | None
    keys: Annotated[list[EpochKey], Meta(min_length=1, max_length=KEYS_MAX)]
    sealed_index: bool = False


class MovedLink(Moved):
    """A relation of a memory to another one or to a turn."""

    relation: Literal["contradicts", "source", "turn", "merged"]
    other_id: uuid.UUID
    created_at: Moment


class MovedMemory(Moved, omit_defaults=True):
    """A row: a memory as it is now, or an earlier revision of one (`revision_of`).

    Attributes:
        merged: whether `superseded_by` names what it was merged into.
        default_life: nobody asked for `given_expires_at`, which comes of the kind.
        postings: `i64 token ‖ u8 frequency` each; None when they are to be made again.
        vectors: float16, big-endian, one for each part of the text; empty when they are to be.
        index_record: the sealed index record, in place of both.
    """

    id: uuid.UUID
    namespace: Name
    epoch: Epoch
    seq: Sequence
    revision: Annotated[int, Meta(ge=1, le=SERIALS_MAX)]
    revision_of: uuid.UUID | None
    type: Literal[1, 3]
    format: Literal["sealed", "opaque"]
    kind: Kind
    importance: Importance
    confidence: Confidence
    writer: Hex
    event_time: Moment | None
    created_at: Moment
    stored_at: Moment
    expires_at: Moment | None
    given_expires_at: Moment | None
    superseded_at: Moment | None
    superseded_by: uuid.UUID | None
    pinned: bool
    review: Literal["pending", "rejected", "contradiction"] | None
    stale: bool
    seen_count: Annotated[int, Meta(ge=1, le=SERIALS_MAX)]
    last_seen_at: Moment | None
    word_count: Annotated[int, Meta(ge=0, le=2**15 - 1)]
    source: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None
    fingerprint: Annotated[bytes, Meta(min_length=16, max_length=16)] | None
    index_version: Annotated[int, Meta(ge=0, le=2**15 - 1)]
    embedding_model: Word | None
    embedding_version: Word
    postings: bytes | None
    vectors: Annotated[list[bytes], Meta(max_length=Limits.import_vectors_max)]
    links: Annotated[list[MovedLink], Meta(max_length=LINKS_MAX)]
    blob_id: BlobName
    blob: Annotated[bytes, Meta(min_length=1, max_length=2**21)] | None
    merged: bool = False
    default_life: bool = False
    index_record: Annotated[bytes, Meta(min_length=1, max_length=RECORD_BYTES_MAX)] | None = None

    @property
    def memory_id(self) -> uuid.UUID:
        """Return the id that people know, of whatever revision."""
        return self.revision_of or self.id


class MovedEpisode(Moved):
    """A sealed turn that waits for its extraction, or was kept."""

    id: uuid.UUID
    namespace: Name
    epoch: Epoch
    writer: Hex
    state: Literal["pending", "kept"]
    created_at: Moment
    fingerprint: Annotated[bytes, Meta(min_length=16, max_length=16)] | None
    blob_id: BlobName
    blob: Annotated[bytes, Meta(min_length=1, max_length=2**21)] | None


class MovedReceipt(Moved):
    """A receipt as it was signed."""

    seq: Sequence
    object: bytes


class MovedTombstone(Moved, omit_defaults=True):
    """The erasure of a memory; `namespace` is None when it went, too.

    Attributes:
        expired: whether it went because its time was over.
        taken: whether it is a turn that waited, and went because its facts were taken.
    """

    id: uuid.UUID
    namespace: Name | None
    blob_ids: Annotated[list[BlobName], Meta(min_length=1, max_length=1000)]
    erased_at: Moment
    expired: bool = False
    taken: bool = False


class MovedState(Moved, omit_defaults=True):
    """The state of a memory that is at both relayers, as it holds at the other one.

    Attributes:
        expires_at: as it was given, without the namespace's life span.
        merged: whether `superseded_by` names what it was merged into.
        default_life: whether nobody asked for `expires_at`.
    """

    id: uuid.UUID
    revision: Annotated[int, Meta(ge=1, le=SERIALS_MAX)]
    pinned: bool
    review: Literal["pending", "rejected", "contradiction"] | None
    stale: bool
    superseded_at: Moment | None
    superseded_by: uuid.UUID | None
    expires_at: Moment | None
    merged: bool = False
    default_life: bool = False


FORMS: Final[tuple[type[Moved], ...]] = (
    MovedAccount,
    MovedGrant,
    MovedNamespace,
    MovedMemory,
    MovedEpisode,
    MovedReceipt,
    MovedTombstone,
)
