"""Questions that are put together: nobody waits for nothing, and nobody gets an old answer."""

import asyncio
from collections.abc import Sequence

import pytest

from relayer.database import pool
from relayer.database.pool import Batches
from relayer.errors import Unavailable


class Asked:
    """Answers a number by its double, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.let = asyncio.Event()
        self.let.set()
        self.error: BaseException | None = None

    async def __call__(self, questions: Sequence[int]) -> list[int]:
        self.batches.append(list(questions))
        await self.let.wait()
        if self.error is not None:
            raise self.error
        return [2 * question for question in questions]

    async def begun(self, count: int) -> None:
        """Wait until so many batches were begun."""
        async with asyncio.timeout(30):
            while len(self.batches) < count:
                await asyncio.sleep(0)


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def test_a_question_alone_is_asked_alone(asked: Asked) -> None:
    assert await Batches(asked).ask(4) == 8
    assert asked.batches == [[4]]


async def test_questions_of_one_moment_are_asked_together(asked: Asked) -> None:
    together = Batches(asked)
    assert await asyncio.gather(*map(together.ask, range(5))) == [0, 2, 4, 6, 8]
    assert asked.batches == [[0, 1, 2, 3, 4]]


async def test_an_answer_is_never_older_than_its_question(asked: Asked) -> None:
    """Who asks the same while it is under way is asked for anew."""
    asked.let.clear()
    together = Batches(asked)
    first = together.ask(1)
    await asked.begun(1)
    second = together.ask(1)
    await asked.begun(2)
    asked.let.set()
    assert (await first, await second) == (2, 2)
    assert asked.batches == [[1], [1]]


async def test_so_many_are_under_way_and_the_others_gather(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "SIZE_MAX", 3)
    asked.let.clear()
    together = Batches(asked)
    answers = [together.ask(n) for n in range(11)]
    await asked.begun(pool.UNDER_WAY_MAX)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked.batches == [[0, 1, 2], [3, 4, 5]], "one that hangs does not keep the other way"
    asked.let.set()
    assert await asyncio.gather(*answers) == [2 * n for n in range(11)]
    assert sorted(asked.batches[pool.UNDER_WAY_MAX :]) == [[6, 7, 8], [9, 10]]


async def test_where_many_servers_are_asked_nobody_fails_with_another() -> None:
    away = {2, 3}

    async def cluster(questions: Sequence[int]) -> list[int]:
        if away & set(questions):
            await asyncio.sleep(0)
            raise Unavailable("The database is away.")
        return [2 * question for question in questions]

    apart = Batches(cluster, together=False)
    answers = await asyncio.gather(*map(apart.ask, range(5)), return_exceptions=True)
    assert [isinstance(answer, Unavailable) for answer in answers] == [n in away for n in range(5)]
    assert [answers[n] for n in (0, 1, 4)] == [0, 2, 8]


async def test_where_many_servers_are_asked_nobody_waits_for_another(asked: Asked) -> None:
    asked.let.clear()
    apart = Batches(asked, together=False)
    answers = [apart.ask(n) for n in range(5)]
    await asked.begun(5)
    asked.let.set()
    assert await asyncio.gather(*answers) == [0, 2, 4, 6, 8]
    assert asked.batches == [[0], [1], [2], [3], [4]]


async def test_who_waits_is_told_when_everything_is_stopped(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "SIZE_MAX", 1)
    asked.let.clear()
    together = Batches(asked)
    answers = [together.ask(n) for n in range(pool.UNDER_WAY_MAX + 3)]
    await asked.begun(pool.UNDER_WAY_MAX)
    for task in list(together._tasks):
        task.cancel()
    async with asyncio.timeout(30):
        told = await asyncio.gather(*answers, return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in told)
    asked.let.set()
    assert await together.ask(7) == 14


async def test_who_stops_waiting_takes_nothing_from_the_others(asked: Asked) -> None:
    asked.let.clear()
    together = Batches(asked)
    one, other = together.ask(1), together.ask(2)
    await asked.begun(1)
    one.cancel()
    late = together.ask(3)
    late.cancel()
    asked.let.set()
    assert await other == 4
    assert await together.ask(5) == 10
    assert asked.batches == [[1, 2], [5]], "nobody waits for the answer to 3"


async def test_who_is_stopped_stops_no_batch(asked: Asked) -> None:
    """Not even who asked first, in whose turn the batch began."""
    asked.let.clear()
    together = Batches(asked)

    async def request(question: int) -> int:
        return await together.ask(question)

    first, second = asyncio.create_task(request(1)), asyncio.create_task(request(2))
    await asked.begun(1)
    first.cancel()
    asked.let.set()
    assert await second == 4


async def test_a_failure_is_everybodys_and_the_next_are_asked_all_the_same(asked: Asked) -> None:
    together = Batches(asked)
    asked.error = Unavailable("The database is away.")
    answers = await asyncio.gather(*map(together.ask, (1, 2)), return_exceptions=True)
    assert answers == [asked.error, asked.error]
    asked.error = None
    assert await together.ask(3) == 6


async def test_a_wrong_number_of_answers_leaves_nobody_waiting() -> None:
    async def short(questions: Sequence[int]) -> list[int]:
        return [1] * (len(questions) - 1)

    together = Batches(short)
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*map(together.ask, (1, 2)), return_exceptions=True)
    assert any(isinstance(answer, ValueError) for answer in answers)
