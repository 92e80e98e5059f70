"""The Python that runs Hermes: which one it is, and what it lacks for the provider.

It does not own the home (`home.py`) or what the user is told (`commands/hermes.py`, `doctor/`).
"""

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from memrelay.errors import ConfigError

_CHECK = (
    "import importlib.util as u; print(bool(u.find_spec('pip'))); import memrelay.hermes.provider"
)


def interpreter(environ: Mapping[str, str]) -> Path | None:
    """Return the interpreter that the command hermes names in its first line, or lies beside."""
    program = shutil.which("hermes", path=environ.get("PATH"))
    if program is None:
        return None
    script = Path(program).resolve()
    with script.open("rb") as file:
        first = file.readline(1024).decode(errors="replace").strip()
    named = Path(first.removeprefix("#!").strip()) if "python" in first else script
    for path in (named, script.with_name("python")):
        if path.name.startswith("python") and path.exists():
            return path
    return None


def find_install_command(python: Path) -> str | None:
    """Return the command that lets an interpreter import the provider; None if it can.

    Raises:
        ConfigError: it does not run.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Hermes
            [str(python), "-c", _CHECK], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        raise ConfigError(
            f"{python} did not run: make sure that memrelay is installed there."
        ) from None
    if not done.returncode:
        return None
    where = shlex.quote(str(python))
    has_pip = done.stdout.strip() == "True"
    pip = f"{where} -m pip install" if has_pip else f"uv pip install --python {where}"
    return f"{pip} ./client"  # in a checkout, as the pages have it
