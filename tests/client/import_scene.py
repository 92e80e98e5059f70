"""Files of other programs' memories, and what is read of them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from memrelay.cli import EXIT_OK, main
from memrelay.importing.drafts import Entry, Fault
from memrelay.importing.files import find
from memrelay.importing.formats import format_of, read
from memrelay.models import Draft

MEMORY_MD = """\
# MEMORY.md - Long-term memory

<!-- kept by the agent,
- not a memory -->
## Preferences
- Anna drinks green tea in the morning,
  never coffee.
  - except on Sundays
- peanuts

## Projects

The staging server moved to Frankfurt. Deploy with:

```sh
# no heading
- no bullet

make deploy
```

Contacts at the hosting company:
- Jo Keller answers at night
- Max

| server | city |
|---|---|
| staging | Frankfurt |

1. The first rule of the lab

---
A last line about `<!-- comments` in the text.
"""
MEMSEARCH_MD = """\
# 2026-05-06

## Session 09:15

### 09:17
<!-- session:8c1e turn:t1 transcript:/home/anna/.openclaw/agents/main/sessions/8c1e.jsonl -->
- Anna asked how to rotate the signing key.
- The agent explained both steps.

### 10:02
<!-- session:9d2f  transcript:C:\\\\My sessions\\\\9d2f of Anna.jsonl  -->
- Anna decided on weekly backups.
"""
SESSION_MD = """\
# Session: 2026-05-05 12:10:00 Europe/Berlin

- **Session Key**: agent:main:main
- **Session ID**: 3d2f
- **Source**: webchat

## Conversation Summary

user: where do we eat?
assistant: at the harbour
"""
EPISODE_MD = """\
---
timestamp: 2026-04-08T14:32:10Z
tags: [email, move]
summary: "Anna asked to write to Jo about \\"the move\\"."
participants: [user, assistant]
confidence: medium
source: 2026-04-08_raw.md
---
**Details:**
- Recipient: Jo
- Outcome: sent
"""
STRANGER = {"MEMRELAY_PRIVATE_KEY": "07" * 32}  # a key that the account does not know
MEM0_JSON = {
    "results": [
        {
            "id": "m1",
            "memory": "Dev works on bridges.",
            "hash": "5d",
            "metadata": {"type": "work", "level": 3, "nothing": None},
            "created_at": "2024-09-03T10:16:05.490548-07:00",
            "updated_at": None,
            "user_id": "dev",
            "run_id": "r7",
            "categories": ["engineering"],
        },
        {"id": "m2", "memory": " "},
        {"id": "m3", "memory": "A pass for the pool.", "expiration_date": "2024-01-01"},
        "no object",
    ]
}


@pytest.fixture
def profile(shared_relayer, tmp_path, capsys):
    """The profile of an account of this test's own."""
    path = tmp_path / "profile" / "profile.json"
    assert main(["init", shared_relayer.url, "--profile", str(path)], {}) == EXIT_OK
    capsys.readouterr()
    return str(path)


def run(capsys, *argv: str) -> tuple[int, dict[str, Any], str]:
    code = main([*argv, "--json"], {})
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def found(path: Path, format: str | None = None, **options):
    """What is read of a file or folder, as `(name, format, what)`."""
    return [
        (file.name, format or format_of(file), what)
        for file in find([str(path)])[0]
        for what in read(file, format or format_of(file), **options)
    ]


def drafts(path: Path, format: str | None = None, **options) -> list[Draft]:
    return [what.draft for _, _, what in found(path, format, **options) if isinstance(what, Entry)]


def lines_of(text: str) -> list[str]:
    return io.StringIO(text, newline="\n").readlines()


def reasons(path: Path, format: str | None = None) -> list[tuple[str, str]]:
    faults = [what for _, _, what in found(path, format) if isinstance(what, Fault)]
    return [(fault.place, fault.reason) for fault in faults]
