"""Files that hold nothing memrelay reads: named for what they look like, with what to type."""

import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.errors import ConfigError
from memrelay.importing.files import find
from memrelay.importing.json_stream import VALUE_CHARS_MAX, values
from tests.client.conversations_scene import CHAT, said, zipped
from tests.client.import_scene import reasons, write


def sqlite(path: Path, statement: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    return path


HISTORY = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT,"
    " event TEXT, created_at DATETIME, is_deleted INTEGER)"
)
POINTS = "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)"


def told_of(path: Path) -> str:
    """Return what is said of a file that is of no known format."""
    ((place, reason),) = reasons(path)
    assert place == "1"
    return reason


def test_mem0s_own_stores_are_named_with_what_to_type(tmp_path):
    history = sqlite(tmp_path / "store/history.db", HISTORY)
    points = sqlite(tmp_path / "qdrant/collection/mem0/storage.sqlite", POINTS)
    write(tmp_path / "qdrant/meta.json", {"collections": {"mem0": {}}})
    for file, words in ((history, "mem0's history"), (points, "a store of Qdrant")):
        assert words in told_of(file)
        assert "from mem0 import Memory" in told_of(file)
    for folder in ("store", "qdrant"):
        with pytest.raises(ConfigError, match="from mem0 import Memory"):
            find([str(tmp_path / folder)])


ODD = {
    "other.db": (b"SQLite format 3\0 and more", "a SQLite database"),
    "a.pdf": (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
    "a.tgz": (gzip.compress(b"hello"), "a gzip archive; unpack it"),
    "a.tar": (b"name".ljust(257, b"\0") + b"ustar\0" + b"\0" * 300, "a tar archive; unpack it"),
    "broken.zip": (b"PK\x03\x04 and no more", "a zip archive; unpack it"),
    "a.png": (b"\x89PNG\r\n", "a picture"),
    "a.bin": (b"some\0bytes", "no text"),
    "a.txt": ("é".encode("utf-16"), "UTF-16; save it as UTF-8"),
    "a.csv": (b"name,role\nInes,lead\n", "a table; of who said what, `memrelay analyze < FILE`"),
    "a.srt": (b"1\n00:00:01,000 --> 00:00:02,000\nInes: hi\n", "captions of what was said"),
    "w.vtt": (b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ines>hi\n", "`memrelay analyze < FILE`"),
    "a.SBV": (b"0:00:01.000,0:00:02.000\nInes: hi\n", "captions of what was said"),
    "a.html": (b"<!DOCTYPE html><html><body>Hi", "a page of HTML"),
    "chat.html": (b"<html><script>var jsonData = [];", "name conversations.json, or the zip"),
    "mail.mbox": (b"From ines@example.org Mon Nov 20 2025\nSubject: x\n", "mail"),
    "a.json": (b'{"foo": 1, "bar": [1]}', "JSON of a shape that no program known here writes"),
    "a.jsonl": (b'{"foo": 1}\n{"foo": 2}\n', "JSON of a shape"),
    "deepseek.json": (b'[{"id": "1", "inserted_at": "x", "mapping": {"a"', "DeepSeek's export"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_file_of_unknown_shape_is_named_for_what_it_looks_like(tmp_path, name):
    content, words = ODD[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert words in told_of(path)
    assert "Ines" not in told_of(path)
    # In a folder, it stands beside what was meant.
    write(tmp_path / "notes.md", "- a note of some words")
    assert [file.name for file in find([str(tmp_path)])[0]] == ["notes.md"]


def test_what_to_do_is_said_at_the_end_of_the_command_too(tmp_path, capsys):
    path = write(tmp_path / "a.json", {"foo": 1})
    assert main(["import", str(path), "--dry-run"], {}) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.startswith("a.json (unknown): 0 found, 1 failed\n")
    assert "memrelay reads the exports of ChatGPT" in err
    assert main(["import", str(path), "--dry-run", "--from", "text"], {}) == EXIT_OK


# Archives


def test_an_archive_without_conversations_is_a_usage_error(tmp_path, capsys):
    write(tmp_path / "notes/a.md", "- a note")
    path = zipped(tmp_path / "notes.zip", tmp_path / "notes")
    assert main(["import", str(path), "--dry-run"], {}) == EXIT_USAGE
    assert "unpack the archive and name the files or the folder" in capsys.readouterr().err


def encrypted(whole: bytes, archive: zipfile.ZipFile) -> bytes:
    """Return an archive whose first member says that it has a password."""
    at = whole.index(b"PK\x01\x02") + 8
    return whole[:at] + bytes([whole[at] | 1]) + whole[at + 1 :]


def damaged(whole: bytes, archive: zipfile.ZipFile) -> bytes:
    """Return an archive whose first member does not unpack."""
    info = archive.infolist()[0]
    at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    return whole[:at] + b"\xff" * 20 + whole[at + 20 :]


@pytest.mark.parametrize("harmed", [encrypted, damaged])
def test_a_member_that_cannot_be_unpacked_is_one_fault(tmp_path, harmed):
    write(tmp_path / "export/conversations.json", [CHAT])
    path = zipped(tmp_path / "export.zip", tmp_path / "export")
    with zipfile.ZipFile(path) as archive:
        path.write_bytes(harmed(path.read_bytes(), archive))
    assert f"it is {harmed.__name__}; unpack the archive" in told_of(path)


# Streams


class Slowly(io.StringIO):
    """A stream of text that gives little at a time."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self._size = size

    def read(self, size: int | None = None, /) -> str:
        return super().read(self._size)


TEXTS = {
    "[]": [],
    "[1, 23, 456]": [1, 23, 456],
    ' [ {"a": [1, 2]} , "b,]" , null ] and more': [{"a": [1, 2]}, "b,]", None],
    '{"a": 1}': [{"a": 1}],
    '{"a": 1}\n{"b": "}{"}\n': [{"a": 1}, {"b": "}{"}],
    "": [],
    json.dumps([CHAT] * 3): [CHAT] * 3,
}


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
def test_json_is_read_value_by_value_wherever_it_is_cut(text, size):
    assert list(values(Slowly(text, size))) == TEXTS[text]


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b"', '[{"a": 1} {"b": 1}]', '[{"a": 1}, no]'])
def test_what_is_broken_ends_the_reading_where_it_is(text):
    stream = values(Slowly(text, 3))
    assert next(stream) == {"a": 1}
    with pytest.raises(ValueError, match="not JSON"):
        next(stream)


def test_what_stands_before_the_break_is_read(tmp_path):
    whole = json.dumps([CHAT, CHAT])
    path = write(tmp_path / "conversations.json", whole[:-20])
    assert reasons(path) == [("#2", "not JSON; the rest was not read")]
    assert len(said(path, faults=1)) == 1


def test_a_value_without_end_is_not_read_into_memory():
    def endless() -> Iterator[str]:
        yield '["'
        while True:
            yield "x" * (1 << 20)

    parts = endless()
    read = 0

    class Endless(io.StringIO):
        def read(self, size: int | None = None, /) -> str:
            nonlocal read
            part = next(parts)
            read += len(part)
            return part

    with pytest.raises(ValueError, match="longer than 64 MiB"):
        next(values(Endless()))
    assert read < 2 * VALUE_CHARS_MAX
