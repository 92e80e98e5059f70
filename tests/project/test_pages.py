"""What the pages tell to type can be typed: variables, tokens and where the client comes from.
What they tell of changes, they tell once, and what they link to is there.

Not here: what else the pages of `deploy/` say (`tests/deploy`), what examples do (`tests/client`).
"""

import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client"
FOUND = [*ROOT.glob("*.md"), *ROOT.glob("client/**/*.md"), *ROOT.glob("deploy/**/*.md")]
OWN = sorted(path for path in FOUND if "node_modules" not in path.parts)
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in OWN}


def test_every_variable_of_the_client_is_in_its_table() -> None:
    read = {
        name
        for path in (CLIENT / "memrelay").rglob("*.py")
        for name in re.findall(r"\bMEMRELAY_[A-Z_]*[A-Z]\b", path.read_text())
    }
    assert "MEMRELAY_TOKEN" in read
    table = re.findall(r"^\| `(MEMRELAY_[A-Z_]+)` \|", PAGES["client/README.md"], re.MULTILINE)
    assert sorted(table) == sorted(read)


@pytest.mark.parametrize("page", ["README.md", "client/README.md"])
def test_python_runs_as_a_file(page: str) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL):
        compile(block, page, "exec")


@pytest.mark.parametrize("page", PAGES)
def test_whoever_is_told_to_found_an_account_is_told_of_the_token(page: str) -> None:
    """Our own service, composition and manifests let nobody in without it."""
    founding = re.findall(r"^ {4}(?:MEMRELAY_TOKEN=\S+ )?memrelay init https.*$", PAGES[page], re.M)
    assert not founding or "MEMRELAY_TOKEN" in PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_nobody_is_told_to_install_what_a_registry_has_under_our_name(page: str) -> None:
    told = re.findall(r"\bpip install\b[^`\n#]*", PAGES[page])
    ours = [line for line in told if re.search(r"""[\s'"]memrelay(?:[\s\['"]|$)""", line)]
    assert ours == []


def targets(page: str) -> list[str]:
    """Lists where a page's links and pictures within the project lead."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    inner = [token for block in tokens for token in block.children or ()]
    found = [token.attrGet("href") or token.attrGet("src") for token in inner]
    return [str(target) for target in found if target and not re.match(r"[a-z]+:", str(target))]


def anchors(page: str) -> set[str]:
    """Makes of each heading the name that links know it by."""
    tokens = MarkdownIt("commonmark").parse(page)
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_project_leads_somewhere(page: str) -> None:
    broken = []
    for target in targets(PAGES[page]):
        path, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            broken.append(target)
    assert broken == []


def test_links_and_anchors_are_read() -> None:
    page = "# A `b`: C's d\n\n[x](a.md#b) ![y](c.svg) [z](https://a.example) `[no](d.md)`\n"
    assert targets(page) == ["a.md#b", "c.svg"]
    assert anchors(page) == {"a-b-cs-d"}


@pytest.mark.parametrize("page", ["CHANGELOG.md", "DECISIONS.md"])
def test_no_change_and_no_decision_is_told_twice(page: str) -> None:
    """As after a merge of two versions of a line."""
    words = PAGES[page].split()
    told = Counter(tuple(words[at : at + 14]) for at in range(len(words)))
    assert [" ".join(some) for some, times in told.items() if times > 1] == []


def test_blobs_are_copied_into_place_also_when_the_command_is_typed_again(tmp_path: Path) -> None:
    lines = PAGES["deploy/backup.md"].splitlines()
    [line] = [line for line in lines if "--entrypoint cp relayer" in line]
    command = line.partition("relayer ")[2].replace(" /", f" {tmp_path}/")
    kept, place = tmp_path / "backup/blobs", tmp_path / "data/blobs"
    kept.mkdir(parents=True)
    place.parent.mkdir()
    for name in ("one", "two"):
        (kept / name).touch()
        subprocess.run(["sh", "-c", f"cp {command}"], check=True)
        assert {path.name for path in place.iterdir()} == {path.name for path in kept.iterdir()}
