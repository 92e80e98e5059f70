"""Applying the numbered revisions that a database lacks, by alembic.

Not here: who may do it now, and whether it is needed (`migrate`); the revisions (`migrations/`).
"""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError


def upgrade(connect_args: dict[str, Any], *, folder: Path, to: str = "head") -> None:
    """Apply the revisions in `folder` up to `to`, each in a transaction of its own.

    It runs an event loop of its own, and so needs a thread without one.

    Raises:
        Exception: what the driver said.
    """
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connect_args"] = connect_args
    try:
        command.upgrade(config, to)
    except DBAPIError as error:
        # What the driver said is the cause of what SQLAlchemy made of it.
        cause = error.orig and error.orig.__cause__
        raise cause or error from None
