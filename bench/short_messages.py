"""Generation of `bench/data/short`: short messages of a user among long answers on their topics.

    python -m bench.short_messages

`topics.txt` holds, per topic, its vocabulary, short messages (S) and details of long answers (L),
each with a question about it in other words; all written by hand. The rest of an answer is
sentences about the topic in general. Topics go in turn to the halves `tuning` and `held_out`.
"""

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "data" / "short"
HALVES: Final = ("tuning", "held_out")
ANSWER_CHARACTERS: Final = (2_300, 4_600)
PARAGRAPH_SENTENCES: Final = 4
OPENINGS: Final = (
    "Here is how I would go about {topic}, step by step.",
    "Good question about {topic}; the short answer is that it depends on {a}.",
    "Let me go through {topic} in the order in which you will meet it.",
    "There are a few things about {topic} that most guides skip.",
)
ASKED: Final = (
    "How would you begin with {a}?",
    "And what about {a}, does that matter for {b}?",
    "Can you explain {a} to me once more?",
    "I read something about {a} yesterday. Is that any good?",
)
SENTENCES: Final = (
    "Start with {a}, because it decides most of what follows.",
    "People usually leave {a} until it is too late to change {b}.",
    "If you are unsure about {a}, try the cheaper option first and compare after a week.",
    "There is a trade-off between {a} and {b}: you rarely get the best of both.",
    "Keep a short list of what you changed about {a}, otherwise you will not know why it worked.",
    "For {a}, the common advice is fine, but it assumes more time than most of us have.",
    "I would not spend money on {a} before {b} is settled.",
    "A simple test for {a} is to ask someone who has never seen {b}.",
    "Many problems with {a} look like problems with {b}, so check that first.",
    "You can prepare {a} the evening before and finish {b} in the morning.",
    "When {a} goes wrong, stop, look at {b}, and change one thing only.",
    "It helps to see {a} as a habit and not as a task that you do once.",
    "Two things make {a} harder than it has to be: haste, and the wrong idea of {b}.",
    "Experts argue about {a}, yet they agree that {b} comes first.",
    "If {a} takes longer than you planned, shorten {b} rather than skipping it.",
    "Do not copy what works for others with {a}; their {b} may be quite different from yours.",
    "Most of the effect comes from {a}, the rest is polish.",
    "Write down how {a} looked at the beginning, so that you can tell whether {b} made it better.",
    "A good rule is to look after {a} once a week and {b} once a month.",
    "What you read about {a} in forums is often ten years old, and so is the advice on {b}.",
    "With {a}, small and regular steps beat one large effort.",
    "Once {a} is in place, {b} becomes much less of a worry.",
    "Be patient with {a}: it may get worse for a few days before it gets better.",
    "There is no need to be perfect about {a} as long as {b} is right.",
    "I would put {a} and {b} into the same step, since they need the same tools.",
    "Think about {a} from the end: how should it be when everything is done?",
    "The usual mistake is to treat {a} like {b}, which it only resembles.",
    "If somebody offers help with {a}, take it, and keep {b} for yourself.",
    "A cheap way to improve {a} is to leave out half of what you do now.",
    "To judge {a}, wait until {b} has settled; before that you measure noise.",
    "Should {a} still trouble you, describe what you see and I will suggest the next step.",
    "In short: {a} first, then {b}, and everything else after that.",
    "I prefer a plain solution for {a}, because it leaves room for {b} later.",
    "Always check {a} twice when you have changed {b}.",
)


@dataclass
class Topic:
    """A topic: what it is about, and (message, question) pairs, said and answered."""

    name: str
    vocabulary: list[str]
    said: list[tuple[str, str]] = field(default_factory=list)
    answered: list[tuple[str, str]] = field(default_factory=list)


def main() -> int:
    """Write both files, the same ones at each run."""
    topics = list(read_topics((FOLDER / "topics.txt").read_text("utf-8")))
    memories, queries = [], []
    for n, half in enumerate(HALVES):
        chance = random.Random(half)  # noqa: S311  # no secret depends on it
        its_memories, its_queries = write_half(half, topics[n :: len(HALVES)], chance)
        memories += its_memories
        queries += its_queries
    for name, lines in (("memories", memories), ("queries", queries)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (FOLDER / f"{name}.jsonl").write_text(text, "utf-8")
    return 0


def read_topics(text: str) -> Iterator[Topic]:
    """Yield the topics of the file."""
    for block in text.strip().split("# ")[1:]:
        head, *lines = block.strip().splitlines()
        name, _, vocabulary = head.partition(" | ")
        topic = Topic(name, vocabulary.split("; "))
        for line in lines:
            message, _, question = line[2:].partition(" => ")
            (topic.said if line[0] == "S" else topic.answered).append((message, question))
        yield topic


def write_half(
    half: str, topics: list[Topic], chance: random.Random
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return memories and questions of one half; the sessions of its topics are mixed."""
    sessions: list[tuple[Topic, str, str, str, str]] = []
    for topic in topics:
        for n, (message, question) in enumerate(topic.said):
            answered = topic.answered[n] if n < len(topic.answered) else ("", "")
            sessions.append((topic, message, question, *answered))
        sessions.append((topic, "", "", "", ""))
    chance.shuffle(sessions)
    memories: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []

    def add(text: str, category: str, question: str) -> None:
        number = f"{half}-{len(memories) + 1:03}"
        memories.append({"id": number, "namespace": f"short-{half}", "text": text})
        if question:
            queries.append(
                {"id": f"{half}-q{len(queries) + 1:03}", "namespace": f"short-{half}"}
                | {"text": question, "category": category, "evidence": [number]}
            )

    for topic, message, question, detail, its_question in sessions:
        asked = message or _fill(chance.choice(ASKED), topic, chance)
        add(f"User: {asked}", "short", question)
        add(f"Assistant: {write_answer(topic, detail, chance)}", "long", its_question)
    return memories, queries


def write_answer(topic: Topic, detail: str, chance: random.Random) -> str:
    """Return a long answer on a topic, with a detail of it somewhere."""
    length = chance.randint(*ANSWER_CHARACTERS)
    sentences = [_fill(chance.choice(OPENINGS), topic, chance)]
    unused: list[str] = []
    while sum(map(len, sentences)) < length:
        unused = unused or chance.sample(SENTENCES, len(SENTENCES))
        sentences.append(_fill(unused.pop(), topic, chance))
    if detail:
        sentences.insert(chance.randint(2, len(sentences) - 2), detail)
    starts = range(0, len(sentences), PARAGRAPH_SENTENCES)
    return "\n\n".join(" ".join(sentences[n : n + PARAGRAPH_SENTENCES]) for n in starts)


def _fill(template: str, topic: Topic, chance: random.Random) -> str:
    one, other = chance.sample(topic.vocabulary, 2)
    sentence = template.format(topic=topic.name, a=one, b=other)
    return sentence[0].upper() + sentence[1:]


if __name__ == "__main__":
    sys.exit(main())
