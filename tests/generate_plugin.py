"""Writes the files of OpenClaw's plugin that repeat what the gateway says: its tools, its skill.

    python -m tests.generate_plugin

OpenClaw must know the tools while the gateway is away, so the plugin has a copy. The manifest is
written by hand; `test_openclaw_plugin.py` compares both.
"""

import json
from pathlib import Path

from memrelay.gateway.framing import SKILL
from memrelay.gateway.schemas import FORGET, GET, SEARCH, STORE

PLUGIN = Path(__file__).parent.parent / "client/openclaw"
# Without memory_transcript: OpenClaw keeps its transcripts in a database.
TOOLS = (SEARCH, GET, STORE, FORGET)
_HEAD = """\
---
name: memrelay
description: "Long-term memory: when to search, read, store and forget, and what not to trust."
---

"""


def files() -> dict[str, str]:
    """Return the content of each generated file by its path in the plugin."""
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in TOOLS
    ]
    return {
        "tools.json": json.dumps(tools, indent=2, ensure_ascii=False) + "\n",
        "skills/memrelay/SKILL.md": _HEAD + SKILL,
    }


if __name__ == "__main__":
    for name, text in files().items():
        (PLUGIN / name).write_text(text)
