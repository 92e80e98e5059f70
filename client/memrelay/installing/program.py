"""Finds the path of the command `memrelay` that other programs can start it by.

It does not own what it is started for (`commands/`).
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from memrelay.errors import ConfigError

_NAME = "memrelay"
# Where `uvx` and `pipx run` put what they start once.
_CACHES = {".cache", "Caches", "archive-v0", "uv-cache"}


def find_program(environ: Mapping[str, str]) -> list[str]:
    """Return the absolute path of this command, or of Python with the module.

    The path is not resolved: a link of `uv tool`, `pipx` or a package manager outlives an upgrade.

    Raises:
        ConfigError: it was started from a cache or a temporary folder, which will be emptied.
    """
    own = _find_own()
    if own is None:
        program = [str(Path(sys.executable).absolute()), "-m", _NAME]
    else:
        on_path = shutil.which(_NAME, path=environ.get("PATH"))
        is_same = on_path is not None and Path(on_path).samefile(own)
        program = [str(Path(on_path if on_path and is_same else own).absolute())]
    _check_lasting(Path(program[0]))
    return program


def describe_missing_extra() -> str | None:
    """Return what to type if the server of the tools cannot start here, None if it can."""
    if find_spec("mcp") is not None:
        return None
    return 'The tools need an extra; in a checkout, type: pip install "./client[mcp]"'


def _find_own() -> Path | None:
    started, beside = Path(sys.argv[0]), Path(sys.executable).with_name(_NAME)
    return next((p for p in (started, beside) if p.name == _NAME and p.is_file()), None)


def _check_lasting(path: Path) -> None:
    temporary = Path(tempfile.gettempdir()) in path.parents and not path.is_symlink()
    if _CACHES & set(path.resolve().parent.parts) or (temporary and "build-env" in str(path)):
        raise ConfigError(
            f"{path} lies in a cache that is emptied by itself; install memrelay first, for "
            "instance with `uv tool install` or in an environment of its own."
        )
