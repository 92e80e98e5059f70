"""An archive however it is cut into chunks: the same records, or a refusal.

Not here: what the records say (`tests/client/test_archive.py`).
"""

import io
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrelay.errors import Invalid
from memrelay.sealed import archive
from tests import scenarios as sc
from tests.properties.drawn import ACCOUNT, CLIENTS, few, flipped, many

ARCHIVE = UUID(int=7)
KEY = archive.ChunkKey(ARCHIVE, bytes(range(32)))
HEAD = archive.write_head(
    archive.new_header(
        CLIENTS[0],
        archive=ARCHIVE,
        account=ACCOUNT,
        relayer=CLIENTS[-1].public_key,
        created_ms=sc.NOW,
        owners=[CLIENTS[0].public_key],
        key=KEY.key,
    )
)
_values = st.none() | st.integers(0, 2**53 - 1) | st.text(max_size=20)
records = st.lists(
    st.fixed_dictionaries({"record": st.sampled_from(["memory", "mark", "end"]), "x": _values}),
    min_size=1,
    max_size=8,
)
# After how many bytes each chunk ends, as far as there are so many; or with each record.
cuts = st.lists(st.integers(1, 90), max_size=12) | st.none()


def chunks(items: Sequence[archive.Record], sizes: Sequence[int] | None) -> list[bytes]:
    """The plaintexts of an archive of these records."""
    written = [archive.write_record(item) for item in items]
    return written if sizes is None else cut(b"".join(written), sizes)


def cut(rest: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Bytes in parts of these sizes, none empty."""
    parts: list[bytes] = []
    for size in sizes:
        if len(rest) > size:
            parts, rest = [*parts, rest[:size]], rest[size:]
    return [*parts, rest]


def sealed(parts: Sequence[bytes], first: int = 0) -> list[bytes]:
    """The chunks of a file, of which the last is marked."""
    last = first + len(parts) - 1
    return [KEY.seal(n, part, last=n == last) for n, part in enumerate(parts, first)]


def read(file: bytes) -> list[archive.Record]:
    """The records of a whole file."""
    stream = io.BytesIO(file)
    header = archive.read_head(stream)
    key = archive.ChunkKey(header.archive, archive.open_box(header, CLIENTS[0]))
    return list(archive.read_records(archive.open_chunks(stream, key)))


@few
@given(records, cuts)
def test_any_chunking_gives_the_same_records(
    items: list[archive.Record], sizes: list[int] | None
) -> None:
    assert read(HEAD + b"".join(sealed(chunks(items, sizes)))) == items


@many
@given(records, cuts, st.floats(0, 1, exclude_max=True))
def test_no_proper_beginning_is_an_archive(
    items: list[archive.Record], sizes: list[int] | None, where: float
) -> None:
    whole = HEAD + b"".join(sealed(chunks(items, sizes)))
    with pytest.raises(Invalid):
        read(whole[: int(where * len(whole))])


@many
@given(records, cuts, st.integers(min_value=0))
def test_no_bit_of_an_archive_can_be_changed(
    items: list[archive.Record], sizes: list[int] | None, bit: int
) -> None:
    with pytest.raises(Invalid):
        read(flipped(HEAD + b"".join(sealed(chunks(items, sizes))), bit))


@many
@given(records, cuts, st.data())
def test_chunks_stand_once_and_in_their_order(
    items: list[archive.Record], sizes: list[int] | None, data: st.DataObject
) -> None:
    """Any other selection of an archive's chunks is refused."""
    made = sealed(chunks(items, sizes))
    chosen = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=len(made) + 1))
    if chosen == list(range(len(made))):
        return
    with pytest.raises(Invalid):
        read(HEAD + b"".join(made[n] for n in chosen))


@few
@given(records, cuts, st.lists(st.integers(1, 90), max_size=5), st.floats(0, 1))
def test_an_export_that_broke_off_anywhere_can_go_on(
    items: list[archive.Record], sizes: list[int] | None, later: list[int], where: float
) -> None:
    """What is whole of the file stays; the rest is sealed anew, cut otherwise."""
    parts = chunks(items, sizes)
    front = [KEY.seal(n, part, last=False) for n, part in enumerate(parts)]
    body = b"".join(front)
    kept: list[bytes] = []
    with suppress(Invalid):  # the end of what is whole
        for chunk in archive.read_chunks(io.BytesIO(body[: int(where * len(body))])):
            kept.append(KEY.open(len(kept), chunk, last=False))
    assert kept == parts[: len(kept)]
    if rest := b"".join(parts[len(kept) :]):
        again = sealed(cut(rest, later), len(kept))
        assert read(HEAD + b"".join(front[: len(kept)] + again)) == items


@few
@given(records, cuts)
def test_chunks_of_another_archive_do_not_open(
    items: list[archive.Record], sizes: list[int] | None
) -> None:
    """Not even under the same key."""
    other = archive.ChunkKey(UUID(int=8), KEY.key)
    parts = chunks(items, sizes)
    made = [other.seal(n, part, last=n == len(parts) - 1) for n, part in enumerate(parts)]
    with pytest.raises(Invalid):
        read(HEAD + b"".join(made))
