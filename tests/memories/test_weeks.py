"""Which weeks of episodes get a summary, and what one that gets none keeps from the others."""

from datetime import timedelta

from tests.consolidating import caller_of, consolidated, week
from tests.services import Bench

MUSEUMS = tuple(
    f"Anna visited the museum number {word}."
    for word in ("one", "two", "three", "four", "five", "six", "seven")
)
SUMMARISED = "SELECT count(DISTINCT other_id) FROM links WHERE relation = 'source'"


async def test_a_week_is_summarised_as_a_whole_however_often_one_runs(bench: Bench) -> None:
    caller = await caller_of(bench, "managed")
    day = week(bench, 1)
    for n, text in enumerate(MUSEUMS):
        when = day.replace(hour=23) if n == 6 else day
        await bench.remember(caller, text, kind="episodic", event_time=when)
        day += timedelta(days=1)
    runs = [0]
    while runs[-1] == 0:
        assert await bench.value(SUMMARISED) == 0
        bench.clock.advance(86400)
        run, _ = await consolidated(bench, caller)
        runs.append(run["summaries"])
    assert await bench.value(SUMMARISED) == len(MUSEUMS)
    assert day + timedelta(days=30) <= bench.clock() < day + timedelta(days=32)
