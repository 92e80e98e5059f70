"""The built-in model's folders for tests, fetched when they are not complete yet.

`model.fetch` and `model.download` lock their folder, so any number of test processes may ask at
once and one of them does the work.
"""

import os
from pathlib import Path

from relayer.embedding import model


def _quiet(_message: str) -> None:
    pass


def _folder() -> Path:
    return Path(os.environ.get("RELAYER_MODEL_DIR") or model.default_folder())


def model_folder() -> Path:
    """Return the folder with the graph and the tokenizer."""
    folder = _folder()
    if not model.is_complete(folder):
        model.fetch(folder, progress=_quiet, source=upstream_folder())
    return folder


def upstream_folder() -> Path:
    """Return a folder with the two files as published, kept beside the model's folder."""
    folder = _folder().with_name(_folder().name + "-upstream")
    model.download(folder, progress=_quiet)
    return folder
