"""`python -m yiemagent` is the `yiemagent` command."""

import sys

from yiemagent.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
