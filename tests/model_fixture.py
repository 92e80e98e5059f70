"""The built-in models' folders for tests, fetched when they are not complete yet.

`model.fetch` and `model.download` lock their folder, so any number of test processes may ask at
once and one of them does the work.
"""

import os
from pathlib import Path

from relayer.embedding import model
from relayer.embedding.published import ENGLISH, Published


def _quiet(_message: str) -> None:
    pass


def model_folder(published: Published = ENGLISH) -> Path:
    """Return the folder with the graph and the tokenizer."""
    folder = model.folder_of(published, os.environ.get("RELAYER_MODEL_DIR", ""))
    if not model.is_complete(published, folder):
        model.fetch(published, folder, progress=_quiet, source=upstream_folder(published))
    return folder


def upstream_folder(published: Published = ENGLISH) -> Path:
    """Return a folder with the two files as published, kept beside the model's folder."""
    folder = model.folder_of(published, os.environ.get("RELAYER_MODEL_DIR", ""))
    folder = folder.with_name(f"{folder.name}-upstream")
    model.download(published, folder, progress=_quiet)
    return folder
