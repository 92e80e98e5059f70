"""The spool: what waits on disk is sealed, bounded, whole, and only its owner's."""

import json
import logging
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memrelay.errors import ConfigError
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.sealed.keys import Identity
from tests.client.spool_scene import spool_in, turns

KEY = SpoolKey.of(Identity(bytes(range(32))))
OTHER = SpoolKey.of(Identity(bytes(range(1, 33))))
MARKED = b"the marked words of a turn"


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_turn_waits_until_it_is_removed(tmp_path: Path, on_disk: bool) -> None:
    spool = spool_in(tmp_path / "spool" if on_disk else None)
    for number in range(3):
        spool.put(KEY, b"turn %d" % number)
    assert turns(spool, KEY) == [b"turn 0", b"turn 1", b"turn 2"]
    assert (spool_in(tmp_path / "spool").names(KEY) == spool.names(KEY)) is on_disk
    first = spool.names(KEY)[0]
    spool.remove(first)
    spool.remove(first)
    assert len(spool.names(KEY)) == 2
    assert spool.get(KEY, first) is None


def test_nothing_on_disk_is_readable(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool_in(folder).put(KEY, MARKED)
    [path] = folder.iterdir()
    data = path.read_bytes()
    assert not [n for n in range(len(MARKED) - 4) if MARKED[n : n + 4] in data]
    assert KEY.secret not in data
    assert Identity(bytes(range(32))).public_key.hex()[:16] not in path.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert data[0] == 1
    assert len(data) % 256 == 1 + 24 + 16  # padded: the length of a turn does not show


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_folder_that_others_may_read_is_refused_and_stays_as_it_is(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 700"):
        spool_in(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_a_folder_that_cannot_be_made_is_no_reason_to_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spool = spool_in(Path("/proc/memrelay/spool"))  # where nobody makes folders
    for _ in range(3):
        spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED] * 3
    [record] = caplog.records
    assert "cannot be written" in record.getMessage()


def test_each_key_sees_its_own_turns_only(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.put(KEY, MARKED)
    [name] = spool.names(KEY)
    assert spool.names(OTHER) == []
    assert spool.get(OTHER, name) is None
    assert KEY.name != OTHER.name
    assert "secret" not in repr(KEY)


def test_the_oldest_turns_give_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = spool_in(tmp_path, turns_max=3)
    for number in range(6):
        spool.put(KEY, b"turn %d" % number)
    assert turns(spool, KEY) == [b"turn 3", b"turn 4", b"turn 5"]
    assert len(caplog.records) == 1
    assert "full" in caplog.text
    spool.close()
    assert "(3)" in caplog.records[1].getMessage()
    spool.close()
    assert len(caplog.records) == 2


def in_threads(spool: Spool, count: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: spool.put(KEY, b"turn %d" % n), range(count)))


def test_a_full_spool_warns_once_and_counts_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = spool_in(tmp_path, turns_max=3)
    in_threads(spool, 60)
    assert len(turns(spool, KEY)) == 3
    assert len(caplog.records) == 1
    for name in spool.names(KEY):
        spool.remove(name)
    spool.put(KEY, MARKED)
    assert "(57)" in caplog.records[1].getMessage()
    in_threads(spool, 60)
    assert len(caplog.records) == 3


def test_a_disk_that_fails_warns_once_until_it_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "spool"
    spool = spool_in(folder)
    for _ in range(2):
        shutil.rmtree(folder)
        folder.touch()
        in_threads(spool, 30)
        folder.unlink()
        spool.put(KEY, MARKED)
        assert len(list(folder.iterdir())) == len(turns(spool, KEY)) == 31
    assert [record.getMessage() for record in caplog.records] == [
        "the spool cannot be written (NotADirectoryError)"
    ] * 2


def test_a_folder_that_is_gone_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = spool_in(tmp_path / "memrelay" / "spool")
    shutil.rmtree(tmp_path / "memrelay")
    spool.put(KEY, MARKED)
    [kept] = (tmp_path / "memrelay" / "spool").iterdir()
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert turns(spool_in(kept.parent), KEY) == [MARKED]
    assert caplog.records == []


@pytest.mark.parametrize("there_is_room", [True, False])
def test_what_waits_in_memory_goes_to_disk_at_the_end_or_is_told_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there_is_room: bool
) -> None:
    folder = tmp_path / "spool"
    spool = spool_in(folder)
    folder.rmdir()
    folder.touch()
    in_threads(spool, 3)
    if there_is_room:
        folder.unlink()
    spool.close()
    assert len(list(tmp_path.rglob("*.turn"))) == (3 if there_is_room else 0)
    lost = [record for record in caplog.records if "lost (3)" in record.getMessage()]
    assert len(lost) == (not there_is_room)


@pytest.mark.parametrize("turns_max", [3, 1])
def test_after_the_clock_was_set_back_the_newest_turn_stays(tmp_path: Path, turns_max: int) -> None:
    for number in range(3):
        (tmp_path / f"{9999999999999990 + number}-{KEY.name}-{'0' * 16}.damaged").write_bytes(b"x")
    spool = spool_in(tmp_path, turns_max=turns_max)
    spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED]
    assert len(list(tmp_path.iterdir())) == turns_max


class TestReseal:
    OLD, NEW = Identity(bytes(range(32))), Identity(bytes(range(1, 33)))

    def put(self, spool: Spool) -> None:
        for number in range(3):
            spool.put(KEY, b"turn %d" % number)

    @pytest.mark.parametrize("on_disk", [True, False])
    def test_turns_wait_for_the_new_key_in_their_order(self, tmp_path: Path, on_disk: bool) -> None:
        spool = spool_in(tmp_path if on_disk else None, turns_max=3)  # full, and nothing is dropped
        self.put(spool)
        assert spool.reseal(self.OLD, self.NEW) == 3
        assert turns(spool, KEY) == []
        assert turns(spool, OTHER) == [b"turn 0", b"turn 1", b"turn 2"]
        assert spool.reseal(self.OLD, self.NEW) == 0
        assert len(turns(spool, OTHER)) == 3

    def test_other_keys_turns_are_left_alone(self, tmp_path: Path) -> None:
        third = SpoolKey.of(Identity(bytes(range(2, 34))))
        spool = spool_in(tmp_path)
        spool.put(third, MARKED)
        assert spool.reseal(self.OLD, self.NEW) == 0
        assert turns(spool, third) == [MARKED]

    def test_a_crash_in_between_doubles_nothing(self, tmp_path: Path) -> None:
        spool = spool_in(tmp_path)
        self.put(spool)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        spool.reseal(self.OLD, self.NEW)
        for path, data in before.items():  # as if none of the old files was removed yet
            path.write_bytes(data)
        # As if a file was half written, too.
        renamed = spool.names(OTHER)[0]
        (tmp_path / renamed).rename((tmp_path / renamed).with_suffix(".part"))
        assert spool.reseal(self.OLD, self.NEW) == 3
        assert turns(spool, OTHER) == [b"turn 0", b"turn 1", b"turn 2"]
        assert len(list(tmp_path.iterdir())) == 3

    def test_a_disk_that_fails_costs_no_turn(self, tmp_path: Path) -> None:
        spool = spool_in(tmp_path)
        self.put(spool)
        [first, *_] = spool.names(KEY)
        in_the_way = tmp_path / first.replace(KEY.name, OTHER.name)
        in_the_way.mkdir()
        with pytest.raises(ConfigError, match="cannot be written"):
            spool.reseal(self.OLD, self.NEW)
        assert turns(spool, KEY) == [b"turn 0", b"turn 1", b"turn 2"]


@pytest.mark.parametrize("on_disk", [True, False])
def test_one_key_that_fills_its_bounds_costs_no_other_a_turn(tmp_path: Path, on_disk: bool) -> None:
    spool = spool_in(tmp_path if on_disk else None, bytes_max=3000, turns_max=3)
    spool.put(OTHER, MARKED)
    for _ in range(10):
        spool.put(KEY, b"x" * 900)
    for _ in range(10):
        spool.put(OTHER, b"y")
        spool.put(OTHER, MARKED)
    assert len(spool.names(KEY)) == 2
    assert turns(spool, OTHER) == [MARKED, b"y", MARKED]
    if on_disk:
        assert sum(path.stat().st_size for path in tmp_path.glob(f"*-{KEY.name}-*")) <= 3000


def test_the_newest_turn_always_stays() -> None:
    spool = spool_in(None, bytes_max=0, turns_max=0)
    spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "version", "renamed", "other key"])
def test_damaged_files_are_set_aside(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spool = spool_in(tmp_path)
    spool.put(KEY, MARKED)
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flipped":
        data[100] ^= 1
        path.write_bytes(data)
    elif damage == "version":
        data[0] = 2
        path.write_bytes(data)
    elif damage == "renamed":
        path.rename(path.with_name("0" + path.name[1:]))
    else:
        path.rename(path.with_name(path.name.replace(KEY.name, OTHER.name)))
    spool.put(KEY, b"the next turn")
    found = turns(spool, OTHER) + turns(spool, KEY)
    assert [turn for turn in found if turn is not None] == [b"the next turn"]
    assert len(spool.names(KEY) + spool.names(OTHER)) == 1
    assert len(list(tmp_path.glob("*.damaged"))) == 1
    assert "damaged" in caplog.text


def test_damaged_and_half_written_files_count(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"000000000000000{number}-{KEY.name}-{'0' * 16}.part").write_bytes(b"x")
        (tmp_path / f"000000000000000{number}-{KEY.name}-{'1' * 16}.damaged").write_bytes(b"x")
    spool = spool_in(tmp_path, turns_max=2)
    spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED]
    assert len(list(tmp_path.iterdir())) == 2


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    foreign = ["notes.txt", ".hidden", "1-2-3.turn", f"{'0' * 16}-{KEY.name}-{'0' * 16}.turn.bak"]
    for name in foreign:
        (tmp_path / name).write_text("mine")
    spool = spool_in(tmp_path, turns_max=1)
    for _ in range(3):
        spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED]
    assert all((tmp_path / name).read_text() == "mine" for name in foreign)


def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"somebody else's")
    folder = tmp_path / "spool"
    spool = spool_in(folder)
    os.symlink(outside, folder / f"{'0' * 16}-{KEY.name}-{'0' * 16}.turn")
    assert [turn for turn in turns(spool, KEY) if turn is not None] == []
    assert outside.read_bytes() == b"somebody else's"


def test_a_disk_that_fails_costs_no_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "spool"
    spool = spool_in(folder)
    shutil.rmtree(folder)
    folder.touch()  # in the folder's place
    spool.put(KEY, MARKED)
    assert turns(spool, KEY) == [MARKED]
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "NotADirectoryError" in record.getMessage()


def test_a_file_in_the_folders_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("")
    with pytest.raises(ConfigError, match="spool cannot be used"):
        spool_in(tmp_path / "spool")


def test_many_threads_may_put(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: spool.put(KEY, json.dumps(n).encode()), range(40)))
    assert sorted(json.loads(turn or b"-1") for turn in turns(spool, KEY)) == list(range(40))
