"""Checks a release against its signed manifest.

    python deploy/release/verify.py FOLDER --public-key HEX

Exit code 0: the manifest is signed by that key, and each file is the one that was signed. 1: not
so. 2: wrong arguments. It needs PyNaCl and no other part of the project.
"""

import argparse
import sys
from pathlib import Path

from manifest import ReleaseError, check_release, read_public_key


def main() -> None:
    """Print what was found, and exit."""
    parser = argparse.ArgumentParser(prog="verify", description="Check a release.")
    parser.add_argument("folder", type=Path, help="the folder with all files of the release")
    parser.add_argument(
        "--public-key", required=True, metavar="HEX", help="from a page that you trust"
    )
    args = parser.parse_args()
    try:
        key = read_public_key(args.public_key)
    except ReleaseError as error:
        parser.error(str(error))
    try:
        manifest = check_release(args.folder, key)
    except ReleaseError as error:
        sys.exit(f"verify: {error}")
    number = len(manifest["files"])
    print(f"release {manifest['version']} of commit {manifest['commit']}: {number} files, all well")


if __name__ == "__main__":
    main()
