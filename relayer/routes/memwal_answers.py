"""The shapes of answers of MemWal's routes, by MemWal's names.

Not here: the routes (`memwal.py`, `memwal_manual.py`), shapes of our own (`shapes.py`).
"""

from typing import Literal, NotRequired, TypedDict

from relayer.routes import shapes


class JobAnswer(TypedDict):
    """A text that was stored, as a job."""

    job_id: shapes.Id
    status: Literal["pending"]


class JobStatusAnswer(TypedDict):
    """The status of one job."""

    job_id: str
    status: str
    owner: str
    namespace: str
    blob_id: str
    error: None


class JobsAnswer(TypedDict):
    """Texts that were stored, as jobs."""

    job_ids: list[shapes.Id]
    total: int
    status: Literal["pending"]


class JobState(TypedDict):
    """The status of one of several jobs; it has a blob unless it was not found."""

    job_id: str
    status: str
    blob_id: NotRequired[str]


class JobStatesAnswer(TypedDict):
    """The status of each job, in order."""

    results: list[JobState]


class MemwalResult(TypedDict):
    """One recalled memory; `score` where the scoring weights ask for more than meaning."""

    blob_id: str
    text: str | None
    distance: float
    created_at: shapes.Time
    score: NotRequired[float]


class MemwalRecallAnswer(TypedDict):
    """The memories that answer a query."""

    results: list[MemwalResult]
    total: int
    dropped_count: int
    degraded: bool


class MemwalFact(TypedDict):
    """One extracted fact, and the job that stored it."""

    text: str
    id: shapes.Id
    job_id: shapes.Id


class MemwalAnalyzeAnswer(TypedDict):
    """The facts of a conversation; `problem` where none could be read."""

    job_ids: list[shapes.Id]
    facts: list[MemwalFact]
    fact_count: int
    status: Literal["pending"]
    owner: str
    extractor: str | None
    problem: NotRequired[str]


class MemwalAskAnswer(TypedDict):
    """A language model's answer, and the memories that it was given."""

    answer: str
    memories_used: int
    memories: list[MemwalResult]


class MemwalRestoreAnswer(shapes.RestoreAnswer):
    """Numbers of blobs of a namespace whose rows were restored, skipped or failed."""

    owner: str


class MemwalForgetAnswer(TypedDict):
    """The number of memories of a namespace that were erased."""

    deleted: int
    namespace: str
    owner: str


class MemwalNamespace(TypedDict):
    """One namespace of an owner."""

    id: str
    name: str
    memory_count: int
    storage_used: int
    updated_at: shapes.Time


class OwnerNamespacesAnswer(TypedDict):
    """A page of one's own namespaces, oldest change first."""

    namespaces: list[MemwalNamespace]
    next_cursor: str
    has_more: bool
    snapshot_version: int


class EmbedAnswer(TypedDict):
    """The vector of a text."""

    vector: list[float]


class ManualAnswer(TypedDict):
    """A stored upload that its client encrypted by itself."""

    id: shapes.Id
    blob_id: str
    owner: str
    namespace: str


class ManualHit(TypedDict):
    """A blob and its distance from a vector."""

    blob_id: str
    distance: float


class ManualRecallAnswer(TypedDict):
    """The blobs nearest to a vector, nearest first."""

    results: list[ManualHit]
    total: int
