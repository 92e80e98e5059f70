"""Facts by the rules as tests look at them, and the conversation of the demo."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relayer.extraction.facts import (
    Excerpt,
)
from relayer.extraction.rules import SentenceExtractor

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "deploy" / "demo"

SUNDAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
rules = SentenceExtractor()


def day_ms(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


async def texts(text: str, **options: Any) -> list[str]:
    return [fact.text for fact in await rules.extract(Excerpt(text, **options))]


def demo_rows() -> list[dict[str, Any]]:
    lines = (DEMO / "conversation.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
