"""Archives: the file as somebody altered it, and records that a relayer wrote for its owner.

Not here: bringing what is in them to a relayer (`bodies.py` has the route's body).
"""

import base64
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from memrelay import archive_reader
from memrelay.errors import MemrelayError
from memrelay.sealed import archive, keys
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.keys import Identity
from relayer.sealed.primitives import CryptoError
from tests import reference as ref
from tests import vector_archive, vector_client
from tests.fuzz.loop import Parser
from tests.fuzz.parsers.agreement import Json, agreed, vectors

WORDS = (
    *(b"memrelay-archive\n", b"\0\0\0\1", b"\0\0\0\x29", b"\0\x10\0\0", b"\0\0\0\0"),
    *(b'{"record":"end","counts":{}}', b'{"record":"mark"}', b'"again":true', b'"blob":null'),
)
_GOOD = vectors("archive", accepted=True)[0]["input"]
FOUNDER = ref.Signer(bytes(range(32)))
_OWNER = Identity(bytes(range(32)))
_RELAYER = Identity(bytes(32)).public_key
_ACCOUNT = keys.account_id_of(_OWNER.public_key)
_ARCHIVE, _KEY = UUID(int=7), bytes(32)
_HEAD = archive.write_head(
    archive.new_header(
        _OWNER,
        archive=_ARCHIVE,
        account=_ACCOUNT,
        relayer=_RELAYER,
        created_ms=1,
        owners=[_OWNER.public_key],
        key=_KEY,
    )
)
_CHUNKS = archive.ChunkKey(_ARCHIVE, _KEY)
_FILE = Path(tempfile.gettempdir()) / f"memrelay-fuzz-{os.getpid()}"


def _archive(data: bytes) -> object:
    given = _GOOD | {"archive": base64.b64encode(data).decode()}
    return agreed(lambda: _by_hand(given), lambda: vector_client.do_archive(given))


def _by_hand(given: Json) -> Json:
    """No relayer reads archives: the vectors' reading, which leaves errors of values to Python."""
    try:
        return vector_archive.do_archive(given)
    except (ValueError, KeyError, TypeError) as error:
        raise CryptoError("refused") from error


def _archive_seeds() -> Iterator[bytes]:
    for vector in vectors("archive"):
        yield base64.b64decode(vector["input"]["archive"])


PARSER = Parser((archive,), _archive_seeds, _archive, WORDS)


def _records(data: bytes) -> None:
    """A line of JSON for each record, in an archive that is otherwise good."""
    plain = b"".join(len(li).to_bytes(4, "big") + li for li in data.split(b"\n"))
    _FILE.write_bytes(_HEAD + _CHUNKS.seal(0, plain[: archive.CHUNK_BYTES_MAX], last=True))
    try:
        for _ in archive_reader.open_archive(_FILE, _OWNER, _ACCOUNT).rows():
            pass
    except MemrelayError:
        return
    finally:
        _FILE.unlink()


def _record_seeds() -> Iterator[bytes]:
    for vector in vectors("archive", accepted=True):
        given = vector["input"]
        file = io.BytesIO(base64.b64decode(given["archive"]))
        header = archive.read_head(file)
        key = archive.ChunkKey(
            header.archive,
            archive.open_box(header, Identity(bytes.fromhex(given["recipient_seed"]))),
        )
        records = archive.read_records(archive.open_chunks(file, key))
        yield b"\n".join(archive.write_record(record)[4:] for record in records)
    yield b"\n".join(json.dumps(record).encode() for record in _whole())


def _whole() -> list[Json]:
    """The records of a small archive that holds."""
    root = ref.Root(bytes(32))
    members = ref.grant_members(
        FOUNDER.public,
        FOUNDER,
        [root],
        account=_ACCOUNT,
        serial=1,
        role="owner",
        created=0,
        ephemeral=bytes(range(32)),
    )
    grant = ref.b64(FOUNDER.signed("grant", ref.compact(members)))
    told = {"id": "0b5e9f3c-2d1a-4c8b-9e7f-112233445566", "namespace": "team"}
    found: list[Json] = [
        {"record": "account", "label": "", "settings": {}, "created_at": "2026-01-01T00:00:00Z",
         "relayer": _RELAYER.hex(), "succession": [], "grant_serial": 1, "receipt_seq": 0,
         "memory_seq": 1},
        {"record": "grant", "serial": 1, "label": "", "object": grant, "succession": None},
        {"record": "namespace", "name": "team", "ttl_s": None,
         "keys": [{"epoch": 1, "key_id": "ab" * 32}]},
        {"record": "memory", "revision_of": None, "epoch": 1, "seq": 1, "revision": 1,
         "blob_id": blob_id(b"x"), "blob": ref.b64(b"x")} | told,
        {"record": "episode", "id": "1b5e9f3c-2d1a-4c8b-9e7f-112233445566", "namespace": "team",
         "epoch": 1, "blob_id": blob_id(b"y"), "blob": None},
        {"record": "tombstone", "blob_ids": [], "erased_at": "2026-01-01T00:00:00Z"} | told,
    ]  # fmt: skip
    counts = {record["record"]: 1 for record in found}
    return [*found, {"record": "end", "counts": counts}]


RECORDS = Parser((archive_reader, archive), _record_seeds, _records, WORDS)
