"""The further looks that a language model plans for a query, and the places of their finds. Pure.

Not here: asking the model, and looking (`memories.deep_recall`).

- A plan is data from outside: of it, only short texts to search by are taken.
"""

import unicodedata
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeVar

LOOKS_MAX: Final = 4
LOOK_CHARACTERS_MAX: Final = 200
QUESTION_CHARACTERS_MAX: Final = 2_000  # that a model is shown of a query
NOTES_MAX: Final = 8
NOTE_CHARACTERS_MAX: Final = 300  # of each
SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["looks"],
    "properties": {
        "looks": {
            "type": "array",
            "maxItems": LOOKS_MAX,
            "items": {"type": "string", "maxLength": LOOK_CHARACTERS_MAX},
        }
    },
}
_READ_MAX: Final = 16  # of what a model plans in spite of the schema

T = TypeVar("T")


def read_plan(value: Any) -> list[str] | None:
    """Return the looks that a decoded answer of a model holds; None where it is no plan."""
    looks = value.get("looks") if isinstance(value, dict) else None
    if not isinstance(looks, list) or not all(isinstance(look, str) for look in looks):
        return None
    return looks


def choose_looks(planned: Sequence[str], question: str) -> list[str]:
    """Return the looks to take: no repetition, not the question itself, none that is too long."""
    chosen, known = list[str](), {_fold(question), ""}
    for look in map(_clean, planned[:_READ_MAX]):
        if len(look) <= LOOK_CHARACTERS_MAX and _fold(look) not in known:
            known.add(_fold(look))
            chosen.append(look)
    return chosen[:LOOKS_MAX]


def _clean(text: str) -> str:
    """Return a text on one line, without control characters and halves of a character."""
    line = " ".join(text[: 4 * LOOK_CHARACTERS_MAX].split())
    return "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cs")).strip()


def _fold(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(" .?!")


def merge_looks(
    own: Sequence[T], looks: Sequence[Sequence[T]], key: Callable[[T], Hashable]
) -> list[tuple[int, T]]:
    """Return (number of the look, find) in order, 0 being the query itself, each find once.

    Every other place is the query's own, as long as it has any; looks take the others in turn.
    """
    left = [_in_turn([own], 0), _in_turn(looks, 1)]
    merged, taken = list[tuple[int, T]](), set[Hashable]()
    while left:
        for source in list(left):
            found = next((one for one in source if key(one[1]) not in taken), None)
            if found is None:
                left.remove(source)
            else:
                taken.add(key(found[1]))
                merged.append(found)
    return merged


def _in_turn(lists: Sequence[Sequence[T]], first: int) -> Iterator[tuple[int, T]]:
    """Yield the best of each list, then the second of each …, with the number of its list."""
    numbered = [[(number, one) for one in found] for number, found in enumerate(lists, first)]
    for row in zip_longest(*numbered):
        yield from (one for one in row if one is not None)
