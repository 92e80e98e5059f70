"""Two objects, and buckets of servers that are none."""

from typing import Any

from relayer.blobs.buckets import BucketStore
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
from relayer.settings import Settings

GIVEN: dict[str, Any] = {
    "blob_store": "s3://blobs/relayer",
    "s3_endpoint": "http://127.0.0.1:9",
    "s3_access_key_id": "the-key",
    "s3_secret_access_key": "hush-" + "x" * 30,
}

ONE = AccountId(bytes(32))
DATA = [b"first" * 40, b"second" * 40]
NAMES = [blob_id(data) for data in DATA]


def store_at(endpoint: str, *, deadline_s: float = 60.0) -> BucketStore:
    """A store whose server is not Swift."""
    settings = Settings(**(GIVEN | {"s3_endpoint": endpoint}))
    return BucketStore(bucket=settings.bucket, deadline_s=deadline_s)
