"""Structured log lines on standard error, one JSON object each.

Not here: what is logged. A line carries an event, fixed words and numbers; never a header, a query
string, a body, a key, or what an exception says, because that may quote any of them. Beside it
stands the id of the request or the job that was worked on, whoever logs.
"""

import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from relayer.telemetry import tracing

log = logging.getLogger("relayer")

_WORDS: Final = re.compile(r"[A-Za-z%',. -]+")  # as far as it says nothing but words
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_AS_IS: Final = frozenset({str, int, float, bool, type(None)})  # they show what they are
_handler: logging.StreamHandler[TextIO] | None = None  # that of a process that was configured


class JsonFormatter(logging.Formatter):
    """One line of JSON per record, with the record's extra members."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = record.getMessage() if record.name.startswith("relayer") else _redact_message(record)
        members = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            members["exception"] = describe(record.exc_info[1])
        return _line(record.created, record.levelname.lower(), record.name, said, members)


def tell(logger: logging.Logger, message: str, members: dict[str, Any]) -> None:
    """Log like `logger.info`, for the line that every request writes.

    A sixteenth of its processor time was spent on the record and on the handler's way to `_line`.
    """
    if _handler is None or _is_heard(logger) or not logger.isEnabledFor(logging.INFO):
        logger.info(message, extra=members)
        return
    with suppress(Exception), _handler.lock or nullcontext():  # a disk that is full fails nobody
        _handler.stream.write(_line(time.time(), "info", logger.name, message, members) + "\n")
        _handler.stream.flush()


def _is_heard(logger: logging.Logger) -> bool:
    """Return true if another handler than `configure`'s gets a logger's records."""
    while logger.parent is not None:
        if logger.handlers:
            return True
        logger = logger.parent
    return logger.handlers != [_handler]


def _line(
    moment_s: float, level: str, logger: str, message: str, members: Mapping[str, Any]
) -> str:
    line = {
        "time": datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="milliseconds"),
        "level": level,
        "logger": logger,
        "message": message,
        **tracing.members(),
        **members,
    }
    if _AS_IS.issuperset(map(type, line.values())):
        with suppress(UnicodeEncodeError):  # half a character is no text for JSON
            return msgspec.json.encode(line).decode()
    return msgspec.json.encode(_plain(line)).decode()


def _plain(value: Any) -> Any:
    """Return a value as it stands in a line: an object's own words, which leave out secrets."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {_plain(str(name)): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _plain(str(value))


def _redact_message(record: logging.LogRecord) -> str:
    """Return a library's message without values, which it may have put in already."""
    if isinstance(record.msg, OSError):
        return str(record.msg)  # why there is no port to listen on
    found = _WORDS.match(record.msg) if isinstance(record.msg, str) else None
    return found[0].strip() if found else type(record.msg).__name__


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error's type, and file and line of its last frames, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{f.filename.rsplit('/', 2)[-1]}:{f.lineno} {f.name}" for f in frames]
    return {"type": type(error).__name__, "at": places}


def warn(log: logging.Logger, message: str, event: str, error: Exception) -> None:
    """Say that something failed, and of what kind the error was, never what it said: that may quote
    anything."""
    log.warning(message, extra={"event": event, "cause": type(error).__name__})


def configure(level: str) -> None:
    """Send every logger's lines through the formatter; libraries speak from warnings on."""
    global _handler  # noqa: PLW0603  # as `logging` itself has it: one for a process
    _handler = handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("relayer").setLevel(level.upper())
    # Of what no line shows, nothing is looked up: every request writes one.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.raiseExceptions = False  # else what a line could not hold would be printed
    sys.unraisablehook = _unraisable  # else Python itself prints what these say
    threading.excepthook = _unraisable
    # pgqueuer logs every exception of a handler at length; `jobs` has said what may be said.
    logging.getLogger("pgqueuer").setLevel(logging.ERROR)


def _unraisable(lost: "sys.UnraisableHookArgs | threading.ExceptHookArgs") -> None:
    if (error := lost.exc_value) is not None:
        log.error("lost exception", exc_info=error, extra={"event": "process.bug"})
