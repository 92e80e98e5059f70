"""What of somebody's files is tried, and what is asked about it."""

import os
from datetime import UTC
from pathlib import Path

import pytest

from memrelay.importing import sampling
from memrelay.importing.files import find
from memrelay.importing.reader import Reading
from memrelay.importing.sampling import choose_newest, choose_questions, read_sample, spread
from tests.client.conversations_scene import lines
from tests.client.import_scene import write


def make_files(folder: Path, *ages: int) -> None:
    for age in ages:
        path = write(folder / f"{age}.md", f"- Note {age} of the cellar.\n")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))


class TestChoice:
    def test_the_newest_files_are_read_in_their_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "FILES_MAX", 2)
        make_files(tmp_path, 3, 1, 2)
        chosen, left = choose_newest(find([str(tmp_path)])[0])
        assert ([file.name for file in chosen], left) == (["1.md", "2.md"], 1)

    def test_the_newest_is_read_however_large_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "BYTES_MAX", 1)
        make_files(tmp_path, 2, 1)
        chosen, left = choose_newest(find([str(tmp_path)])[0])
        assert ([file.name for file in chosen], left) == (["1.md"], 1)

    def test_the_newest_conversations_are_analyzed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "PARTS_MAX", 1)
        for day in (2, 3, 1):
            said = {
                "role": "user",
                "content": f"I was at the harbour on day {day}.",
                "timestamp": f"2026-05-0{day}T10:00:00Z",
            }
            write(tmp_path / f"{day}.jsonl", lines(said))
        sample = read_sample(reading_of(tmp_path))
        assert ["day 3" in part.text for part in sample.parts] == [True]
        assert sample.parts_left == 2


def reading_of(path: Path) -> Reading:
    files, _ = find([str(path)])
    return Reading(files, lambda *_: None, format="transcript", zone=UTC)


class TestQuestions:
    def test_one_has_the_rarest_words_in_their_order(self) -> None:
        texts = ["The green tea is for Anna and for Jo in the morning.", "The tea is for Max."]
        assert choose_questions(texts) == ["green Anna and morning", "The tea for Max"]

    def test_three_are_spread_over_all(self) -> None:
        texts = [f"{name} lives here" for name in ("Anna", "Ben", "Cleo", "Dora", "Emil")]
        assert choose_questions(texts) == ["Anna lives here", "Cleo lives here", "Emil lives here"]

    @pytest.mark.parametrize("text", ["", "tea", "12 34", "a b c", "\N{GREEN HEART}"])
    def test_a_text_without_words_asks_nothing(self, text: str) -> None:
        assert choose_questions([text]) == []

    def test_the_same_is_asked_once(self) -> None:
        assert choose_questions(["green tea", "green tea"]) == ["green tea"]

    def test_words_of_any_script_count(self) -> None:
        assert choose_questions(["Анна пьёт чай"]) == ["Анна пьёт чай"]

    def test_a_long_text_gives_a_short_question(self) -> None:
        (question,) = choose_questions([f"{'x' * 100_000} " + "tea " * 100_000])
        assert len(question) <= 4 * 25


@pytest.mark.parametrize(
    ("every", "chosen"), [("", ""), ("a", "a"), ("ab", "ab"), ("abc", "abc"), ("abcde", "ace")]
)
def test_spread_has_the_ends_and_the_middle(every: str, chosen: str) -> None:
    assert "".join(spread(list(every))) == chosen
