"""The vectors as seeds, and the question whether both implementations read the same.

Not here: what they read (`sealed.py`, `archives.py`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memrelay.errors import Invalid
from relayer.sealed.primitives import CryptoError

Json = dict[str, Any]

VECTORS = Path(__file__).parent.parent.parent / "vectors"
REFUSED = "refused"


def vectors(operation: str, *, accepted: bool = False) -> list[Json]:
    """The vectors of an operation, in order of their names."""
    read = (json.loads(path.read_text()) for path in sorted(VECTORS.glob("*.json")))
    found = [v for v in read if v["operation"] == operation]
    return [v for v in found if v["expect"] == "ok"] if accepted else found


def agreed(relayer: Callable[[], object], client: Callable[[], object]) -> object:
    """What both read, or that both refused; why is each one's own."""
    theirs, ours = _outcome(relayer), _outcome(client)
    assert theirs == ours, f"the relayer reads {theirs!r}, the client {ours!r}"
    return theirs


def _outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except (CryptoError, Invalid):
        return REFUSED
