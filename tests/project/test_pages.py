"""What the pages tell to type can be typed: variables, tokens and where the client comes from.
What they tell of changes, they tell once.

Not here: what else the pages of `deploy/` say (`tests/deploy`), what examples do (`tests/client`).
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client"
FOUND = [*ROOT.glob("*.md"), *ROOT.glob("client/**/*.md"), *ROOT.glob("deploy/**/*.md")]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(FOUND)}


def test_every_variable_of_the_client_is_in_its_table() -> None:
    read = {
        name
        for path in (CLIENT / "memrelay").rglob("*.py")
        for name in re.findall(r"\bMEMRELAY_[A-Z_]*[A-Z]\b", path.read_text())
    }
    assert "MEMRELAY_TOKEN" in read
    table = re.findall(r"^\| `(MEMRELAY_[A-Z_]+)` \|", PAGES["client/README.md"], re.MULTILINE)
    assert sorted(table) == sorted(read)


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
