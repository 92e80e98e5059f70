"""A language model's prompts: versioned, a text file each, with others' words fenced in.

Not here: who asks it, and what is believed of its answers (`relayer.extraction`,
`relayer.memories.answerer`).

- Everything that others wrote stands inside a fence it cannot close, because `<`, `>` and `&` are
  escaped.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Final

PROMPT_VERSIONS: Final = {
    "extract": "4",
    "ask": "2",
    "looks": "1",
    "summarise": "1",
    "procedures": "1",
}


def system_prompt(name: str) -> str:
    """Return the current version of the prompt `name`, one of `PROMPT_VERSIONS`."""
    file = resources.files(__name__) / f"{name}.v{PROMPT_VERSIONS[name]}.txt"
    return file.read_text(encoding="utf-8")


def escape(text: str) -> str:
    """Return `text` so that it cannot open or close a fence of a prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fence(name: str, text: str) -> str:
    """Return `text` escaped, between the tags `<name>` and `</name>`."""
    return f"<{name}>\n{escape(text)}\n</{name}>"


def number_lines(texts: Sequence[str]) -> str:
    """Return `texts` as a numbered list, one line each."""
    return "\n".join(f"{n}. {' '.join(text.split())}" for n, text in enumerate(texts, start=1))


def ask_prompt(question: str, memories: Sequence[str]) -> tuple[str, str]:
    """Return (system, user) to answer `question` from `memories`, framed as untrusted data."""
    notes = fence("memories", number_lines(memories) or "(none)")
    return system_prompt("ask"), f"{notes}\n\n{fence('question', question)}"


def looks_prompt(day: str, question: str, notes: Sequence[str]) -> tuple[str, str]:
    """Return (system, user) to plan further looks for `question`, asked on `day`, ISO 8601.

    `notes` are what was found for it, framed as untrusted data.
    """
    shown = fence("notes", number_lines(notes) or "(none)")
    asked = f"{fence('date', day)}\n\n{shown}\n\n{fence('question', question)}"
    return system_prompt("looks"), asked
