"""Another relayer than the pinned one: where the pin is, how the keys read, and what to type."""

import json
from collections.abc import Mapping

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.commands.other_relayer import _PIN, _URL
from memrelay.config import read_profile
from memrelay.sealed.keys import mask_key
from memrelay.secure_files import write_private
from tests.client.shell_scene import Machine

PINNED = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"


@pytest.fixture
def real(run: Machine) -> str:
    """The key of the relayer that answers; the profile pins another."""
    values = dict(read_profile(run.profile, missing_ok=False))
    key = str(values["relayer_key"])
    write_private(run.profile, values | {"relayer_key": PINNED})
    return key


def refusal(
    run: Machine, capsys: pytest.CaptureFixture[str], environ: Mapping[str, str] | None = None
) -> str:
    argv = ["status", "--profile", str(run.profile)]
    assert main(argv, environ or {}) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_the_file_the_keys_and_the_command_are_told(
    run: Machine, real: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal(run, capsys)
    assert f"its key is {mask_key(real)}, not {mask_key(PINNED)}." in told
    assert f"The pin is in {run.profile}." in told
    assert (
        f"ask its operator for KEY, and type `memrelay trust KEY --profile {run.profile}`" in told
    )
    assert main(["trust", real, "--profile", str(run.profile)], {}) == EXIT_OK
    assert main(["status", "--profile", str(run.profile)], {}) == EXIT_OK


def test_a_pin_of_the_environment_is_changed_there(
    run: Machine, real: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal(run, capsys, {_PIN: PINNED})
    assert f"The pin is in the variable {_PIN}." in told
    assert f"`export {_PIN}=KEY`" in told


def test_a_variable_that_leads_elsewhere_is_named(
    run: Machine, real: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = dict(read_profile(run.profile, missing_ok=False))
    write_private(run.profile, values | {"url": "http://127.0.0.1:9"})
    told = refusal(run, capsys, {_URL: str(values["url"])})
    assert f"`unset {_URL}` goes back" in told


def test_a_pin_of_the_first_contact_is_where_it_was_kept(
    run: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    run("list")
    values = dict(read_profile(run.profile, missing_ok=False))
    del values["relayer_key"]
    write_private(run.profile, values)
    [seen] = run.profile.parent.glob("*.seen.json")
    write_private(seen, json.loads(seen.read_text()) | {"relayer_key": PINNED, "succession": []})
    told = refusal(run, capsys)
    assert f"The pin is in {seen}, of the first contact." in told


def test_a_new_account_has_no_pin_to_change(
    run: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    url = read_profile(run.profile, missing_ok=False)["url"]
    argv = ["init", url, "--relayer-key", PINNED, "--profile", str(run.profile.with_name("new"))]
    assert main(argv, {}) == EXIT_FAILED
    told = capsys.readouterr().err
    assert f", not {mask_key(PINNED)}." in told
    assert "memrelay trust" not in told
