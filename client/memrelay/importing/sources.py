"""A file to read: one of its own, or a member of a zip archive.

It does not own which files are chosen (`files.py`) or what they hold (`formats.py`).
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, TextIO

HEAD_BYTES: Final = 1 << 16
FILE_BYTES_MAX: Final = 64 << 20  # of a file that is read at once
_MEMBER_BYTES_MAX: Final = 8 << 30  # of a member of an archive, unpacked
_ENCRYPTED: Final = 1  # a bit of a member's flags


@dataclass(frozen=True, slots=True)
class File:
    """A file to read, and its name relative to what was given; in an archive, which member."""

    path: Path
    name: str
    member: str | None = None

    @property
    def inside(self) -> PurePosixPath:
        """The path within what was given; of a member, within its archive."""
        return PurePosixPath(self.member or self.path.as_posix())

    @property
    def suffix(self) -> str:
        """The suffix in lower case."""
        return self.inside.suffix.lower()

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """Open the file for reading.

        Raises:
            OSError: it cannot be read.
            ValueError: it is a member that cannot be unpacked.
        """
        if self.member is None:
            with self.path.open("rb") as plain:
                yield plain
            return
        try:
            with zipfile.ZipFile(self.path) as archive:
                info = archive.getinfo(self.member)
                if info.flag_bits & _ENCRYPTED:
                    raise ValueError("it is encrypted; unpack the archive, and name the file")
                if info.file_size > _MEMBER_BYTES_MAX:
                    raise ValueError("it is larger than 8 GiB")
                with archive.open(self.member) as packed:
                    yield packed
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError):
            raise ValueError("it is damaged; unpack the archive, and name the file") from None

    @contextmanager
    def text_stream(self) -> Iterator[TextIO]:
        """Open the file as UTF-8 text, line ends as they are.

        Raises:
            OSError: it cannot be read.
            ValueError: it is a member that cannot be unpacked; on reading, it is not UTF-8.
        """
        with self.stream() as stream:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")

    def head(self) -> bytes:
        """Return the first bytes; none if it cannot be read: reading it for good tells why."""
        try:
            with self.stream() as stream:
                return stream.read(HEAD_BYTES)
        except (OSError, ValueError):
            return b""

    def text(self) -> str:
        """Return the whole text, line ends as they are.

        Raises:
            OSError: it cannot be read.
            ValueError: it is too large to be read at once, or not UTF-8.
        """
        with self.stream() as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ValueError("the file is larger than 64 MiB; split it, or write it as JSON lines")
        return data.decode("utf-8-sig")


def text_of(head: bytes) -> str:
    """Return the beginning of a file as text; what is none is replaced."""
    return head.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
