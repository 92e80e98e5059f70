"""`python -m memrelay`, the same as the command `memrelay`."""

import sys

from memrelay.cli import main

if __name__ == "__main__":
    sys.exit(main())
