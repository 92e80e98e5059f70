"""Measures how many functions are named by a participle (`told`, `held_by`, `loading`).

    python -m tests.project.naming          # a line a package
    python -m tests.project.naming --list   # each of these functions, too

A name counts by its first word, for that is where the verb stands. Names that Python or a host of
ours prescribes (`__repr__`, `on_turn_start`) begin with no participle, so none is left out.
"""

import argparse
import ast
from dataclasses import dataclass
from pathlib import Path

from tests.project.sentences import PACKAGES, ROOT

_IRREGULAR = frozenset(
    """
    been begun bent borne bought bound broken brought built caught chosen dealt done doomed drawn
    driven eaten fallen fed felt forgiven forgotten fought found frozen given gone gotten ground
    grown heard held hidden kept known laid led left lent lost made meant met paid proven ridden
    risen said seen sent sewn shaken shown slain slept sold sought spent spoken spun stolen
    stood stuck sung sunk sworn swollen taken taught thought thrown told torn understood unheard
    unknown unread unseen unsent woken won worn wound woven written
    """.split()
)
"""Participles that end in neither -ed nor -ing and are no verb's plain form, as `read` or `put`."""

_PLAIN_ED = frozenset({"embed", "exceed", "feed", "hundred", "need", "proceed", "seed", "speed"})
_PLAIN_ING = frozenset(
    """
    anything bring everything evening keyring king morning nothing ping ring setting sibling
    something spring sting string swing thing warning
    """.split()
)
_PREFIXES = ("re", "un", "with", "over", "mis")


@dataclass(frozen=True)
class Function:
    """Names a function or method, and where it stands."""

    path: Path
    line: int
    name: str


def functions(package: Path) -> list[Function]:
    """List all functions of a package's modules, those inside others among them."""
    return [
        Function(path, node.lineno, node.name)
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def begins_with_participle(name: str) -> bool:
    """Tell whether the first word of a name is a participle."""
    word = name.strip("_").partition("_")[0].lower()
    if word.endswith("ing"):
        return len(word) > len("ring") and word not in _PLAIN_ING
    if word.endswith("ed"):
        return len(word) > len("red") and word not in _PLAIN_ED
    return word in _IRREGULAR or any(
        word.startswith(prefix) and word.removeprefix(prefix) in _IRREGULAR for prefix in _PREFIXES
    )


def main() -> None:
    """Print the share of each package, and on request the functions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print each function so named")
    options = parser.parse_args()
    for package in PACKAGES:
        every = functions(package)
        named = [function for function in every if begins_with_participle(function.name)]
        print(f"{package.name:10}{len(every):6}{len(named):6}{len(named) / len(every):8.1%}")
        for function in named if options.list else []:
            place = function.path.relative_to(ROOT)
            print(f"    {place}:{function.line}: {function.name}")


if __name__ == "__main__":
    main()
