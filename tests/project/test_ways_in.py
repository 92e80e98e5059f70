"""README's table of ways in has the versions that the tests of the real programs run with.

Not here: those tests, which the Makefile names (`make test-claude`, `test-frameworks` …).
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()

# What a row begins with → the packages that its tests use, and the pins that these install from.
WAYS = {
    "OpenClaw": [("openclaw", "Makefile")],
    "Hermes Agent": [("hermes-agent", "hermes")],
    "Claude Code, Codex, Gemini CLI": [
        ("@anthropic-ai/claude-code", "Makefile"),
        ("@openai/codex", "Makefile"),
        ("@google/gemini-cli", "Makefile"),
    ],
    "another MCP client": [("mcp", "dev")],
    "the openai package, openai-agents, LangChain": [
        ("openai", "openai"),
        ("openai-agents", "dev"),
        ("langchain-openai", "openai"),
    ],
    "LangGraph, LangChain": [("langgraph", "frameworks"), ("langchain-core", "frameworks")],
    "Claude with its memory tool": [("anthropic", "frameworks")],
    "Pydantic AI": [("pydantic-ai-slim", "frameworks")],
    "the Vercel AI SDK, in TypeScript": [("ai", "package.json")],
}


def find_version(package: str, place: str) -> str:
    """The version that is installed for the tests, by the pin."""
    if place == "Makefile":
        found = re.findall(rf"(?<![\w/@]){re.escape(package)}@([\w.-]+)$", MAKEFILE, re.MULTILINE)
    elif place == "package.json":
        wanted = json.loads((ROOT / "client/typescript" / place).read_text())
        found = [wanted["devDependencies"][package]]
    else:
        text = (ROOT / "deploy/requirements" / f"{place}.txt").read_text()
        found = re.findall(rf"^{re.escape(package)}==([\w.]+) ", text, re.MULTILINE)
    [version] = found
    return str(version)


def read_rows() -> dict[str, list[str]]:
    """The table's cells by what a row begins with."""
    table = README.partition("| you run | type |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {cells[0]: cells for cells in rows}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_in_names_the_versions_that_it_is_tested_with(way: str) -> None:
    versions = [find_version(package, place) for package, place in WAYS[way]]
    assert read_rows()[way][2] == ", ".join(versions)


def test_every_row_with_a_version_is_held_to_a_pin() -> None:
    rows = {way: cells for way, cells in read_rows().items() if re.search(r"\d\.\d", cells[2])}
    assert set(rows) == set(WAYS)
