"""Measures the prose of pages, docstrings' first lines, help texts and messages of errors.

    python -m tests.project.sentences                   # a line a page, then what the code says
    python -m tests.project.sentences README.md --list  # each sentence that is long or inverted

Prose is what stands in paragraphs, quotations and items of lists. Code blocks, tables, headings and
HTML are none. A code span counts by its words, and no sign in it ends a sentence.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "relayer", ROOT / "client/memrelay"]

LONG = 35
"""More words than these are too many for one sentence."""

_SHORT = 3  # fewer words are a label, and would only lower the average
_ENDS = re.compile(r"""(?<=[.!?])(?:["'”’)\]]*)\s+(?=["'“‘(\[`]*[^\Wa-z_]|`)""")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|etc|approx|No|St|Dr|Mr|Ms)\.$")
_WORD = re.compile(r"\S*\w\S*")
_CLAUSE = re.compile(r"(?:What|Who|Whom|Whose|Whoever|Whatever|Which|Whichever|Whether)\b")
_NOUN_CLAUSE = re.compile(rf"(?:{_CLAUSE.pattern}|(?:How|That|Where|Why)\b)")
_DETERMINER = re.compile(r"(?:The|An?|This|These|That|Those|One|All|Both|Each|Every|Its|Such)\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True)
class Prose:
    """Holds the sentences of a page, and says how long they are."""

    sentences: tuple[str, ...]

    @property
    def lengths(self) -> list[int]:
        """Counts the words of each sentence."""
        return [count_words(sentence) for sentence in self.sentences]

    @property
    def average(self) -> float:
        """Divides the words by the sentences; 0 where there is none."""
        return sum(self.lengths) / len(self.sentences) if self.sentences else 0.0

    @property
    def long(self) -> list[str]:
        """Lists the sentences of more than 35 words."""
        return [sentence for sentence in self.sentences if count_words(sentence) > LONG]

    @property
    def long_share(self) -> float:
        """Gives the share of sentences of more than 35 words."""
        return len(self.long) / len(self.sentences) if self.sentences else 0.0

    @property
    def inverted(self) -> list[str]:
        """Lists the statements that begin with a relative clause: "What it has, is …"."""
        return [text for text in self.sentences if _CLAUSE.match(text) and not text.endswith("?")]


def measure(page: str) -> Prose:
    """Reads the Markdown of a page into its sentences."""
    return Prose(tuple(sentence for block in _blocks(page) for sentence in split(block)))


def split(text: str) -> list[str]:
    """Cuts a paragraph into sentences of at least three words."""
    sentences: list[str] = []
    start = 0
    for end in _ENDS.finditer(text):
        if not _ABBREVIATION.search(text[start : end.start()]):
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if count_words(sentence) >= _SHORT]


def count_words(sentence: str) -> int:
    """Counts what stands between blanks and has a letter or a digit."""
    return len(_WORD.findall(sentence))


def first_lines(source: str) -> list[str]:
    """Lists the first lines of a module's docstrings, those of private names left out."""
    return _first_lines(source, _DOCUMENTED)


def first_lines_of_functions(source: str) -> list[str]:
    """Lists those of functions and methods alone."""
    return _first_lines(source, _FUNCTIONS)


def help_texts(source: str) -> list[str]:
    """Lists the texts that a module gives as `help=…` and to `setting(default, text)`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    given = [word.value for call in calls for word in call.keywords if word.arg == "help"]
    given += [call.args[1] for call in calls if _is_setting(call.func) and len(call.args) > 1]
    return list(filter(None, map(_literal, given)))


def error_texts(source: str) -> list[str]:
    """Lists the first arguments of the exceptions that a module raises; a value is one word."""
    raised = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    first = [call.args[0] for call in raised if isinstance(call, ast.Call) and call.args]
    return list(filter(None, map(_literal, first)))


def _is_setting(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == "setting"


def _literal(node: ast.expr) -> str:
    """Returns a text as it will read, or nothing where it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "VALUE" for part in node.values)
    return ""


def is_noun_clause(line: str) -> bool:
    """Tells whether a docstring begins with "What …", "Whether …" and the like."""
    return bool(_NOUN_CLAUSE.match(line))


def begins_with_determiner(line: str) -> bool:
    """Tells whether a docstring begins with "The …", "A …" and the like: with no verb."""
    return bool(_DETERMINER.match(line))


def _first_lines(source: str, kinds: tuple[type[ast.AST], ...]) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    public = [node for node in nodes if not getattr(node, "name", "").startswith("_")]
    docstrings = [ast.get_docstring(node) for node in public if isinstance(node, _DOCUMENTED)]
    return [docstring.splitlines()[0] for docstring in docstrings if docstring]


def _blocks(page: str) -> Iterator[str]:
    """Yields the text of each paragraph, in a list or not."""
    excluded = 0
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type in {"table_open", "heading_open", "table_close", "heading_close"}:
            excluded += token.nesting
        elif token.type == "inline" and not excluded:
            yield " ".join("".join(map(_text, token.children or ())).split())


def _text(token: Token) -> str:
    if token.type == "code_inline":
        return f"`{re.sub(r'[.!?]', '_', token.content)}`"
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type == "text" else ""


def main() -> None:
    """Prints a line a page, and without pages a line for each kind of text in the code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="default: every page of the project")
    parser.add_argument("--list", action="store_true", help="print each long or inverted sentence")
    options = parser.parse_args()
    pages = options.pages or sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("client/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    )
    print(f"{'page':36}{'sentences':>10}{'average':>9}{'over 35':>9}{'longest':>9}{'inverted':>10}")
    for path in pages:
        prose = measure(path.read_text())
        name = path.resolve().relative_to(ROOT).as_posix()
        print(
            f"{name:36}{len(prose.sentences):10}{prose.average:9.1f}{prose.long_share:9.1%}"
            f"{max(prose.lengths, default=0):9}{len(prose.inverted):10}"
        )
        for sentence in [*prose.long, *prose.inverted] if options.list else []:
            print(f"    {count_words(sentence):3} {sentence}")
    if not options.pages:
        _print_texts()


def _print_texts() -> None:
    """Prints the same figures of what the code says, a line a kind and package."""
    for package in PACKAGES:
        sources = [path.read_text() for path in sorted(package.rglob("*.py"))]
        for kind in (first_lines, help_texts, error_texts):
            texts = [text for source in sources for text in kind(source)]
            lengths = [count_words(sentence) for text in texts for sentence in split(text)]
            long, clauses = sum(n > LONG for n in lengths), sum(map(is_noun_clause, texts))
            print(
                f"{package.name + ' ' + kind.__name__:36}{len(texts):10}"
                f"{sum(lengths) / len(lengths):9.1f}{long / len(lengths):9.1%}"
                f"{max(lengths):9}{clauses:10}"
            )


if __name__ == "__main__":
    main()
