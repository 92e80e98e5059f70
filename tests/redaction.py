"""The samples that redaction is measured on, and the measure; see data/redaction/README.md.

python -m tests.redaction [--json]
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from relayer.redact import redact

DATA = Path(__file__).parent / "data" / "redaction"


@dataclass(frozen=True)
class Sample:
    """A text with secrets, what they are, and the text as it is to be."""

    kind: str
    text: str
    secrets: tuple[tuple[str, str], ...]  # (mark, secret)
    expected: str

    @property
    def is_caught(self) -> bool:
        """Whether each secret went, its right mark came, both are counted and nothing else went."""
        marks = Counter(mark for mark, _ in self.secrets)
        return redact(self.text) == (self.expected, dict(marks))


def samples() -> list[Sample]:
    """All texts with secrets, these joined of their halves."""
    lines = (DATA / "secrets.jsonl").read_text(encoding="utf-8").splitlines()
    return [_sample(**json.loads(line)) for line in lines]


def _sample(*, kind: str, text: str, secrets: list[list[str]]) -> Sample:
    whole = [(mark, first + second) for mark, first, second in secrets]
    expected = text
    for mark, secret in whole:
        text = text.replace("◊", secret, 1)
        expected = expected.replace("◊", f"[redacted:{mark}]", 1)
    return Sample(kind, text, tuple(whole), expected)


def ordinary() -> list[str]:
    """All texts that must stay as they are."""
    return (DATA / "ordinary.txt").read_text(encoding="utf-8").splitlines()


def main() -> int:
    """Print what was caught of each kind, and what was changed without need."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    total, caught = Counter[str](), Counter[str]()
    for sample in samples():
        total[sample.kind] += 1
        caught[sample.kind] += sample.is_caught
    changed = [line for line in ordinary() if redact(line) != (line, {})]
    result = {
        "kinds": {kind: [caught[kind], count] for kind, count in total.items()},
        "caught": caught.total(),
        "samples": total.total(),
        "ordinary": len(ordinary()),
        "changed": len(changed),
    }
    if parser.parse_args().json:
        print(json.dumps(result))
        return 0
    for kind, count in total.items():
        print(f"{kind:28} {caught[kind]:3} of {count:3}")
    print(f"caught {caught.total()} of {total.total()} texts ({len(total)} kinds)")
    print(f"changed {len(changed)} of {len(ordinary())} ordinary lines", *changed, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
