"""Facts by the rules, as tests look at them."""

from datetime import UTC, datetime
from typing import Any

from relayer.extraction.facts import (
    Turn,
)
from relayer.extraction.rules import SentenceExtractor

SUNDAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
rules = SentenceExtractor()


def day_ms(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


async def texts(text: str, **options: Any) -> list[str]:
    return [fact.text for fact in await rules.extract(Turn(text, **options))]
