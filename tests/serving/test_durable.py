"""Files that are written durably: whole, their owner's alone, and in the right order on disk.

Not here: what the relayer's files look like beside a running one (`test_private_files.py`).
"""

import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relayer import durable
from relayer.blobs.store import FolderStore
from relayer.errors import Unavailable
from relayer.identity import IdentityError, load_identity, make_identity, write_next
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId

OLD, NEW = b"what was there", b"what is to be there" * 999
Writer = Callable[[Path, bytes], None]


@pytest.fixture(params=[durable.create, durable.place, durable.replace], ids=lambda w: w.__name__)
def write(request: pytest.FixtureRequest) -> Writer:
    writer: Writer = request.param
    return writer


@contextmanager
def files_no_longer_than(length: int) -> Iterator[None]:
    """A disk that takes so many bytes of a file and then no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_file_is_its_owner_s_alone_under_any_umask(
    write: Writer, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "file", NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert held(tmp_path) == {"file": NEW}


@pytest.mark.parametrize("new", [durable.create, durable.place])
def test_a_new_file_takes_nobody_s_place(new: Writer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    (tmp_path / "nowhere").symlink_to("absent")
    for name in ("file", "nowhere"):
        with pytest.raises(FileExistsError):
            new(tmp_path / name, NEW)
    assert os.readlink(tmp_path / "nowhere") == "absent"
    (tmp_path / "nowhere").unlink()
    assert held(tmp_path) == {"file": OLD}


def test_a_replaced_file_is_the_new_one_whole(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(OLD)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(OLD)
    (folder / "file").chmod(0o644)
    (folder / "link").symlink_to(outside)
    for name in ("file", "link"):
        with (folder / name).open("rb") as reader:
            durable.replace(folder / name, NEW)
            assert reader.read() == OLD, "who reads it meanwhile reads all of the old one"
        assert stat.S_IMODE((folder / name).lstat().st_mode) == 0o600
    assert held(folder) == {"file": NEW, "link": NEW}
    assert outside.read_bytes() == OLD, "a link is replaced, not followed"


def test_a_write_that_fails_leaves_what_was_there(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(OLD)
    if write is durable.replace:
        (tmp_path / "file").write_bytes(OLD)
    before = held(tmp_path)
    with files_no_longer_than(len(NEW) // 2), pytest.raises(OSError, match="File too large"):
        write(tmp_path / "file", NEW)
    assert held(tmp_path) == before
    write(tmp_path / "file", NEW)
    assert held(tmp_path) == before | {"file": NEW}


def test_a_name_that_cannot_be_taken_leaves_no_draft(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises((IsADirectoryError, FileExistsError)):
        write(tmp_path / "file", NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "absent" / "file", NEW)


def test_bytes_are_on_disk_before_the_name_and_then_the_name(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's own call, looked at as it is made."""
    path, seen, fsync = tmp_path / "file", [], os.fsync

    def looked_at(descriptor: int) -> None:
        status = os.fstat(descriptor)
        whole = stat.S_ISREG(status.st_mode) and status.st_size == len(NEW)
        seen.append(("bytes" if whole else "folder", path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", looked_at)
    write(path, NEW)
    placed = [("bytes", False)]
    assert seen == (placed if write is durable.place else [*placed, ("folder", True)])


def test_a_key_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "home" / "relayer.key"
    with files_no_longer_than(10), pytest.raises(IdentityError, match="File too large"):
        make_identity(path)
    assert list(path.parent.iterdir()) == []
    identity = make_identity(path)
    with files_no_longer_than(10), pytest.raises(IdentityError, match="File too large"):
        write_next(path, bytes(32), ())
    assert [one.name for one in path.parent.iterdir()] == ["relayer.key"]
    write_next(path, bytes(32), ())
    with pytest.raises(FileExistsError):
        write_next(path, bytes(range(32)), ())
    assert (path.parent / "relayer.key.next").read_text() == "00" * 32 + "\n"
    assert load_identity(path).public_key == identity.public_key


async def test_a_mark_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    store, account = FolderStore(folder=tmp_path), AccountId(bytes(32))
    await store.put_many(account, {blob_id(NEW): NEW})
    await store.mark(account, 7)
    with files_no_longer_than(0), pytest.raises(Unavailable):
        await store.mark(account, 8)
    assert await store.read_mark(account) == 7
    names = {path.name for path in (tmp_path / account.hex()).iterdir()}
    assert names == {"newest", blob_id(NEW)[:2]}
