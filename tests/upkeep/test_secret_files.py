"""Secrets of an operator in files instead of variables: `RELAYER_…_FILE`.

Not here: what the settings mean (`test_serve.py`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from relayer.commands.options import SECRET_BYTES_MAX, settings_of, settings_options
from relayer.settings import SECRET, variable

TOKEN = "a-token-of-many-letters"

Asked = Callable[..., Result]


@click.command()
@settings_options(*SECRET)
def _told(**values: Any) -> None:
    settings = settings_of(values)
    click.echo(" ".join(f"{name}={getattr(settings, name)}" for name in sorted(SECRET)))


@pytest.fixture
def asked() -> Asked:
    """Run a command that prints every secret; keyword arguments are its environment."""

    def ask(*arguments: str, **environment: str) -> Result:
        return CliRunner(env=environment).invoke(_told, arguments)

    return ask


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(TOKEN + "\n")
    return path


@pytest.mark.parametrize("name", sorted(SECRET - {"database_direct_url"}))
def test_every_secret_may_stand_in_a_file(asked: Asked, file: Path, name: str) -> None:
    secret = f"postgresql://{TOKEN}" if name == "database_url" else TOKEN
    file.write_text(secret + "\n")
    done = asked(**{f"{variable(name)}_FILE": str(file)})
    assert (done.exit_code, f"{name}={secret}" in done.output) == (0, True), done.output
    assert done.output.count(TOKEN) == 1


def test_the_help_says_of_each_that_it_is_seen_where_it_is_typed(asked: Asked) -> None:
    told = " ".join(asked("--help").output.split())
    assert told.count("the process list shows what is typed here") == len(SECRET)


def test_the_help_names_the_files(asked: Asked) -> None:
    told = "".join(asked("--help").output.split())
    assert [name for name in SECRET if f"{variable(name)}_FILE" not in told] == []


def test_without_a_file_nothing_changes(asked: Asked) -> None:
    assert f"metrics_token={TOKEN}" in asked(RELAYER_METRICS_TOKEN=TOKEN).output
    assert TOKEN not in asked(RELAYER_METRICS_TOKEN_FILE="").output


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--metrics-token", "another-token-of-letters"], {}),
        ([], {"RELAYER_METRICS_TOKEN": "another-token-of-letters"}),
    ],
)
def test_a_secret_has_one_source(
    asked: Asked, file: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    done = asked(*arguments, RELAYER_METRICS_TOKEN_FILE=str(file), **environment)
    assert done.exit_code == 2
    assert "RELAYER_METRICS_TOKEN_FILE" in done.output
    assert TOKEN not in done.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"x" * (SECRET_BYTES_MAX + 1), "too long"),
        (b"\xff\xfe", "not text"),
        (b"short", "too short"),
    ],
)
def test_a_file_that_gives_no_secret_is_an_error_that_names_its_variable(
    asked: Asked, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    done = asked(RELAYER_REGISTRATION_TOKEN_FILE=str(path))
    assert done.exit_code == 2
    assert "RELAYER_REGISTRATION_TOKEN" in done.output
    assert said in done.output
