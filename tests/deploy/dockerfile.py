"""A Dockerfile as stages of instructions: as much of the language as ours uses, and no more.

Not here: doing what they say (`image.py`).

- Whatever is not understood is an error, so that no line is passed over.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

STEPS: Final = frozenset(["COPY", "ENV", "RUN", "WORKDIR"])  # those that make files
FACTS: Final = frozenset(
    ["CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "STOPSIGNAL", "USER", "VOLUME"]
)  # those that say how it runs


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word, and what stands behind it."""

    word: str
    rest: str

    @property
    def pairs(self) -> dict[str, str]:
        """What an `ENV` or `LABEL` sets."""
        return dict(one.split("=", 1) for one in shlex.split(self.rest))

    @property
    def arguments(self) -> list[str]:
        """The words of a command in JSON form."""
        _, _, listed = self.rest.partition("[")
        words: list[str] = json.loads(f"[{listed}")
        return words


@dataclass
class Stage:
    """What follows one `FROM`."""

    image: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def fact(self, word: str) -> Instruction:
        """The instruction of this word, which stands there once."""
        [found] = [one for one in self.instructions if one.word == word]
        return found


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile, in order.

    Raises:
        ValueError: a line is not understood.
    """
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            stages.append(Stage(image, name))
        elif word in STEPS | FACTS and stages:
            stages[-1].instructions.append(Instruction(word, rest.strip()))
        elif word:
            raise ValueError(f"not understood: {line}")
    return stages
