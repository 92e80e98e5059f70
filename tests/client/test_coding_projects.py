"""Which project a folder is in, and what its namespace is called."""

from pathlib import Path

import pytest

from memrelay.coding.projects import project_of
from memrelay.sealed.keys import normalise_namespace


def repository(folder: Path, url: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(
        f'[core]\n\tbare = false\n[remote "upstream"]\n\turl = https://example.org/other/one\n'
        f'[remote "origin"]\n\tfetch = +refs\n\turl = {url}\n[branch "main"]\n\turl = no\n'
    )
    return folder


@pytest.mark.parametrize(
    "url",
    ["https://github.com/acme/shop.git", "https://anna:zq-token@github.com/Acme/Shop",
     "git@github.com:acme/shop.git", "ssh://git@github.com:22/acme/shop.git",
     "git://GitHub.com/acme/shop/"],
)  # fmt: skip
def test_a_remote_is_one_project_however_it_is_written(tmp_path: Path, url: str) -> None:
    root = repository(tmp_path / "clone", url)
    (root / "src").mkdir()
    assert project_of(root / "src") == "project:github.com/acme/shop"


def test_a_worktree_is_of_the_same_project(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "https://example.org/a/b")
    own = main / ".git" / "worktrees" / "other"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {own}\n")
    assert project_of(other) == project_of(main) == "project:example.org/a/b"


def test_without_a_remote_a_project_is_its_folder(tmp_path: Path) -> None:
    names = []
    for name in ("one", "two"):
        (tmp_path / name / "My Shop" / ".git").mkdir(parents=True)
        (tmp_path / name / "My Shop" / "src").mkdir()
        names.append(project_of(tmp_path / name / "My Shop" / "src"))
    assert len(set(names)) == 2
    assert all(name and name.startswith("project:my-shop-") for name in names)
    assert project_of(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "url", ["../shop", "/srv/git/shop.git", "file:///srv/shop", "x", "", "https://a/" + "b" * 390,
            "https://exa\u0301mple.org/\u202eshop\u200b", "https://example.org/a b"],
)  # fmt: skip
def test_an_odd_remote_still_gives_a_name(tmp_path: Path, url: str) -> None:
    name = project_of(repository(tmp_path / "clone", url))
    assert name is not None
    assert normalise_namespace(name) == name
    assert len(name.encode()) <= 256


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"gitdir: /nowhere\n", b"gitdir:"])
def test_a_damaged_repository_is_a_folder(tmp_path: Path, text: bytes) -> None:
    (tmp_path / ".git").write_bytes(text)
    assert (project_of(tmp_path) or "").startswith("project:")
