"""The value that a model's answer holds: the last one that fits, whatever stands around it.

It does not own what fits (its caller does), nor taking reasoning away (`reasoning.py`).

- Strict JSON is read first. What is nearly JSON is repaired by a library, loaded only then.
- Of an answer that was cut the whole items are kept, never a half one.
- Work is bounded: the end of a long answer is read, and only a short piece of it is repaired.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from relayer.answers.repair import Meter, repair

T = TypeVar("T")
Fit = Callable[[Any], T | None]

READ_CHARS_MAX: Final = 131_072  # from the end; twenty facts have some 10,000
_WORK_MAX: Final = 8_000_000  # characters that all attempts together may look at
_ATTEMPT_COST: Final = 64
_NESTED: Final = 500  # what is nested so deep that Python gives up is skipped by so much
_BROKEN_MAX: Final = 200  # values that are nearly JSON
_MARKS_MAX: Final = 20_000  # brackets, quotes and commas of one; an answer has some 1,000
_ENDLESS_MAX: Final = 8  # of them, that have no end
_TWICE_ENCODED_MAX: Final = 2

_DECODER: Final = json.JSONDecoder(strict=False)  # line breaks in a text are read as they are
# What may begin an object or an array; a brace in prose does not.
_OPENING: Final = re.compile(
    r"\{(?=\s{0,64}(?:[\"'“”‘’`]?[\w -]{1,40}[\"'“”‘’`]?\s{0,64}[:=]|//|/\*|#|[\"}]|\\\"))"
    r"|\[(?=\s{0,64}(?:[\[{\"'“‘`\]]|//|/\*|#|-?\d))"
)
_GAP: Final = re.compile(r"[\s,;]*")
_CLOSERS: Final = {"{": "}", "[": "]"}
_MARKS: Final = re.compile(r"[\"\\{}\[\],]")
_ENDS_WHOLE: Final = re.compile(r"[}\]]\s*(?:`{3,}\s*)?\Z")
_EXAMPLE: Final = re.compile(
    r"\b(?:example|e\.g\.|for instance|format|template|schema|such as|would (?:be|look|have|return)"
    r"|zum beispiel|z\. ?b\.)[^\n]{0,60}\s*(?:`{3,}\w{0,10}\s*)?\Z",
    re.IGNORECASE,
)
_FINAL: Final = re.compile(
    r"\b(?:final|revised?|corrected|correction|instead|actually|result|answer|conclusion)\b"
    r"[^\n]{0,60}\s*(?:`{3,}\w{0,10}\s*)?\Z",
    re.IGNORECASE,
)
_CONTEXT_CHARS: Final = 160


@dataclass(frozen=True)
class _Value:
    begin: int
    end: int
    value: Any


def find_last(
    text: str, fit: Fit[T], *, keys: Sequence[str], is_cut: bool = False, is_json: bool = False
) -> T | None:
    """Return what `fit` makes of the last value in `text` that fits; None if none does.

    `fit` is given JSON values and at last, unless `is_json`, the text itself; `keys` are those of
    the object asked for, which goes before a value that has none of them.
    """
    value = _find_last(text, fit, keys, is_cut, _TWICE_ENCODED_MAX)
    if value is None and not is_json:
        # Of a list without JSON, the last line may be half of one.
        value = fit(text.rpartition("\n")[0] if is_cut else text)
    return value


def _find_last(text: str, fit: Fit[T], keys: Sequence[str], is_cut: bool, depth: int) -> T | None:
    text = text.removeprefix("\ufeff").strip()[-READ_CHARS_MAX:]
    inner = _extract_encoded(text)
    if inner is not None and depth:
        return _find_last(inner, fit, keys, is_cut, depth - 1)
    strict, broken = _scan(text)
    values = _mend(text, strict, broken, keys, is_cut, fit) if broken else strict
    whole = [value for value in values if _has_key(value.value, keys)]
    others = [run for run in _runs(text, values) if run.value or _is_alone(text, run)]
    for chosen in (list(_runs(text, whole)), others):
        fitting = [(value, made) for value in chosen if (made := fit(value.value)) is not None]
        if fitting:
            return _last(text, fitting)
    if depth and '\\"' in text:  # encoded twice, without the outer quotes
        unescaped = text.replace('\\"', '"').replace("\\n", "\n")
        return _find_last(unescaped, fit, keys, is_cut, 0)
    return None


def _extract_encoded(text: str) -> str | None:
    """Return the text that a JSON text holds."""
    if not text.startswith('"'):
        return None
    try:
        inner = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, str) else None


def _scan(text: str) -> tuple[list[_Value], list[int]]:
    """Return the outermost values that are strict JSON, and where others seem to begin."""
    found, broken, at, work = list[_Value](), list[int](), 0, 0
    while (opening := _OPENING.search(text, at)) and work < _WORK_MAX:
        begin = at = opening.start()
        try:
            value, at = _DECODER.raw_decode(text, begin)
        except RecursionError:
            at += _NESTED
            work += _NESTED
        except ValueError as error:
            work += _ATTEMPT_COST + getattr(error, "pos", begin) - begin
            at += 1
            broken.append(begin)
        else:
            found.append(_Value(begin, at, value))
            work += at - begin
    return found, broken


def _mend(
    text: str,
    strict: Sequence[_Value],
    broken: Sequence[int],
    keys: Sequence[str],
    is_cut: bool,
    fit: Fit[T],
) -> list[_Value]:
    """Return all values in order, those among them that are nearly JSON and fit."""
    begins = [value.begin for value in strict]
    mended, meter, endless = list[_Value](), Meter(), 0
    for begin in broken[:_BROKEN_MAX]:
        if any(begin < one.end for one in mended if _has_key(one.value, keys)):
            continue
        end = _end(text, begin) if endless < _ENDLESS_MAX else None
        endless += end is None
        inside = strict[bisect_left(begins, begin) :]
        has_whole = any(_has_key(v.value, keys) and (end is None or v.begin < end) for v in inside)
        if has_whole or endless > _ENDLESS_MAX:
            continue  # an answer in it is whole; or it is a mess
        value = _repair(text, begin, end, is_cut, meter)
        if value is not None and fit(value) is not None:
            mended.append(_Value(begin, len(text) if end is None else end, value))
    return [
        value
        for value in sorted([*mended, *strict], key=lambda value: value.begin)
        if _has_key(value.value, keys)
        or not any(one.begin < value.begin < one.end for one in mended)
    ]


def _end(text: str, begin: int) -> int | None:
    """Return where the brackets that open at `begin` are all closed, outside of quotes."""
    depth, is_quoted, at = 0, False, begin
    for _ in range(_MARKS_MAX):
        mark = _MARKS.search(text, at)
        if mark is None:
            return None
        at, sign = mark.end(), mark.group()
        if sign == "\\":
            at += 1
        elif sign == '"':
            is_quoted = not is_quoted
        elif not is_quoted and sign != ",":
            depth += 1 if sign in _CLOSERS else -1
            if not depth:
                return at
    return None


def _repair(text: str, begin: int, end: int | None, is_cut: bool, meter: Meter) -> Any:
    piece = text[begin:end]
    if end is None and (is_cut or not _ENDS_WHOLE.search(text)):
        piece = _whole_items(piece)
    if not piece:
        return None
    try:
        return _DECODER.decode(piece)
    except (ValueError, RecursionError):
        return repair(piece, meter)


def _whole_items(piece: str) -> str:
    """Return a value that breaks off, up to the end of its last whole item, and closed there."""
    stack, is_quoted, at = list[str](), False, 0
    end, closers = 0, ""
    for _ in range(_MARKS_MAX):
        mark = _MARKS.search(piece, at)
        if mark is None:
            break
        at, sign = mark.end(), mark.group()
        if sign == "\\":
            at += 1
        elif sign == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif sign in _CLOSERS:
            stack.append(_CLOSERS[sign])
        elif sign != "," and (not stack or stack.pop() != sign):
            break
        if not is_quoted and sign in ',"}]' and stack[-1:] == ["]"] and stack.count("]") == 1:
            # Between two items of the outermost array: what is open closes here.
            end = mark.start() if sign == "," else at
            closers = "".join(reversed(stack))
    return piece[:end] + closers if end else ""


def _has_key(value: Any, keys: Sequence[str]) -> bool:
    return isinstance(value, dict) and any(str(key).strip().casefold() in keys for key in value)


def _runs(text: str, values: Sequence[_Value]) -> Iterator[_Value]:
    """Yield each value that stands alone; those that follow one another line by line as a list."""
    run = list[_Value]()
    for value in values:
        if run and not _are_adjacent(text, run[-1].end, value.begin):
            yield _join(run)
            run = []
        run.append(value)
    if run:
        yield _join(run)


def _is_alone(text: str, value: _Value) -> bool:
    """Tell an empty list that is the answer from brackets in prose."""
    before, after = text[: value.begin].strip("`\n jsonJSON"), text[value.end :].strip("`\n ")
    return not before or not after


def _are_adjacent(text: str, end: int, begin: int) -> bool:
    gap = _GAP.match(text, end)
    return gap is not None and gap.end() == begin and text.count("\n", end, begin) < 2


def _join(run: Sequence[_Value]) -> _Value:
    if len(run) == 1:
        return run[0]
    return _Value(run[0].begin, run[-1].end, [value.value for value in run])


def _last(text: str, fitting: Sequence[tuple[_Value, T]]) -> T:
    """Return the last one that is no example; one that is empty only where it is said to count."""
    real = [
        (value, made)
        for value, made in fitting
        if not _EXAMPLE.search(text, max(0, value.begin - _CONTEXT_CHARS), value.begin)
    ] or list(fitting)
    value, made = real[-1]
    full = [made for _, made in real if made]
    if made or not full or _FINAL.search(text, max(0, value.begin - _CONTEXT_CHARS), value.begin):
        return made
    return full[-1]
