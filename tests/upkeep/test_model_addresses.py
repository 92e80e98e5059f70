"""What an operator gives as the address of a model, and what is said where it cannot be one.

Not here: other settings (`test_installation.py`).
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from relayer.__main__ import main
from relayer.settings import Settings, SettingsError

TWO = "https://a.example/v1,http://127.0.0.1:9/v1/"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("notaurl", "is no URL"),
        ("https://", "is no URL"),
        ("file:///v1", "is no URL"),
        ("https://a.example:x/v1", "is no URL"),
        ("https://a.example/v1?version=2", "is no URL"),
        ("https://a.example/v1#b", "is no URL"),
        ("https://a.example/v 1", "is no URL"),
        ("https://ann:s3cret@a.example/v1", "holds a key, for which there is OPENAI_API_KEY"),
    ],
)
@pytest.mark.parametrize(
    ("name", "before", "variable"),
    [
        ("openai_base_url", "", "OPENAI_BASE_URL"),
        ("embedding_base_urls", "", "RELAYER_EMBEDDING_BASE_URLS"),
        ("embedding_base_urls", "https://b.example, ", "RELAYER_EMBEDDING_BASE_URLS (number 2)"),
    ],
)
def test_what_is_none_is_refused(
    name: str, before: str, variable: str, url: str, told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(**{name: before + url})  # type: ignore[arg-type]  # a text, as an environment's
    assert str(refused.value).startswith(f"{variable} {told}")
    assert "s3cret" not in str(refused.value)


def test_several_are_for_embedding_alone() -> None:
    with pytest.raises(SettingsError, match=r"several are for RELAYER_EMBEDDING_BASE_URLS"):
        Settings(openai_base_url=TWO)
    assert Settings(embedding_base_urls=f" {TWO}, ").embedding_urls == TWO.split(",")


def test_none_at_all_is_not_several() -> None:
    with pytest.raises(SettingsError, match=r"RELAYER_EMBEDDING_BASE_URLS names no endpoint"):
        Settings(embedding_base_urls=" , ")


def test_a_command_says_so_in_one_line(tmp_path: Path) -> None:
    asked = ["doctor", "--data-dir", str(tmp_path), "--embedding-base-urls", "models.example/v1"]
    done = CliRunner().invoke(main, asked)
    told = "RELAYER_EMBEDDING_BASE_URLS is no URL of a server: https://models.example.org/v1"
    assert (done.exit_code, done.output) == (2, f"relayer: {told}\n")
