"""Files of words beside this module, read by section.

It does not own what the words mean (`talk.py`, `english_words.py`).
"""

from importlib import resources


def sections(name: str) -> dict[str, list[str]]:
    """Return the lines of each `[section]` of a file, without comments and empty lines.

    The two blanks by which a line is indented are taken off, and no more.
    """
    found: dict[str, list[str]] = {}
    section = ""
    for line in resources.files("relayer.extraction").joinpath(name).read_text("utf-8").split("\n"):
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = []
        elif line and not line.startswith("#"):
            found[section].append(line.removeprefix("  "))
    return found
