"""What of a coding agent's conversation is said in sentences."""

import pytest

from memrelay.coding.prose import without_code

SENTENCES = [
    "We decided to use PostgreSQL 18; Anna owns the migration.",
    "I prefer tabs over spaces.\nOur convention: snake_case in Python, camelCase in TypeScript.",
    "From May 4, 2027 on, releases go out on Tuesdays.",
    "- The API key rotates every 90 days\n- Bob reviews (he knows the billing code)",
    "Import the data on Friday, and let Anna know.",
    "class A licences are for teams = 5 people or more.",
    "The launch is on 2027-05-04 09:30:00 CET, not before.",
    "Use `pnpm install`, never `npm install`.",
    "Return the keys to the (old) office: Graz.",
    "# Decisions\n\n1. No ORM.\n2. Tests talk to a real database.",
    "Wir haben beschlossen, dass der Server in Frankfurt steht.",
]
CODE = [
    "```python\nsecret = 1\n```",
    "~~~\nsecret\n~~~",
    "````md\n```\nsecret\n```\n````",
    "diff --git a/secret.py b/secret.py\nindex 83db48f..bf2a3c1 100644\n--- a/secret.py\n"
    "+++ b/secret.py\n@@ -1,3 +1,3 @@\n secret\n\n-secret is old\n+secret is new",
    'Traceback (most recent call last):\n  File "secret.py", line 1, in secret',
    "    at secret.Main.run(Main.java:12)\n    at secret.Main.main(Main.java:3)",
    "$ cat secret.txt\nanna@host:~/secret$ ls",
    "src/secret.ts:12:5: error TS2304: Cannot find name 'secret'.",
    "     1\u2192import secret\n     2\u2192secret()",
    "import secret;\nconst secret = load();\nsecret.run();",
    "def secret(one, two):\n    return secret(one)",
    "<div>\n  secret();\n</div>",
    '{\n  "secret": true,\n};',
    "2027-05-04T09:30:00.123Z INFO secret started",
]


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_stay(text: str) -> None:
    assert without_code(text) == text


@pytest.mark.parametrize("text", CODE)
@pytest.mark.parametrize("after", ["", "\nWe keep it."])
def test_code_and_output_go(text: str, after: str) -> None:
    left = without_code(f"We decided on pnpm.\n{text}{after}")
    assert "secret" not in left
    assert left.split() == f"We decided on pnpm. {after}".split()


def test_an_open_fence_reaches_to_the_end() -> None:
    assert without_code("Noted.\n```\nsecret\nmore") == "Noted."


@pytest.mark.parametrize(
    "line",
    ["a" * 1999, "x=" * 900, "(" * 1900, "w." * 900 + "(", "/" * 1900 + ".", "error: " * 250],
)
def test_a_megabyte_of_odd_lines_is_gone_through(line: str) -> None:
    text = f"{line}\n" * 500
    assert len(without_code(text)) <= len(text)
