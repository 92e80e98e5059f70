"""Writes the digests by which OpenClaw's own text is known again in the files of a workspace.

    npm pack openclaw@VERSION && tar xzf openclaw-VERSION.tgz
    python -m tests.generate_templates package/docs/reference/templates …

Each folder given adds the lines of its templates to those that are known already: workspaces are
older than the OpenClaw that runs them. The project has no line of them, only what tells one line
from another.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from memrelay.importing.templates import DIGEST_BYTES, DIGESTS
from memrelay.importing.workspace import digest

TARGET = Path(__file__).parent.parent / "client/memrelay/importing/templates.py"
_HEAD = '''\
"""Digests of the lines of OpenClaw's workspace templates, of 2026.1 to 2026.9.

It is written by `python -m tests.generate_templates`; `workspace.py` says how a line is folded.
"""

DIGEST_BYTES = {size}
_HEX = """
{lines}
"""
DIGESTS = frozenset(map(bytes.fromhex, _HEX.split()))
'''
_PER_LINE = 6


def lines_of(folder: Path) -> Iterable[str]:
    """Yield the lines of the templates in a folder that have a letter or digit.

    Those of `*.dev.md` are filled in: what they say, somebody may mean.
    """
    for path in sorted(set(folder.glob("*.md")) - set(folder.glob("*.dev.md"))):
        yield from (line for line in path.read_text().split("\n") if any(map(str.isalnum, line)))


def module(digests: Iterable[bytes]) -> str:
    """Return the module that has these digests."""
    found = sorted({one.hex() for one in digests})
    rows = [" ".join(found[at : at + _PER_LINE]) for at in range(0, len(found), _PER_LINE)]
    return _HEAD.format(size=DIGEST_BYTES, lines="\n".join(rows))


if __name__ == "__main__":
    new = {digest(line) for folder in sys.argv[1:] for line in lines_of(Path(folder))}
    TARGET.write_text(module(DIGESTS | new))
