"""`python -m yiemagent` is the `yiemagent` command; this is where both begin."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command of this process, and give its exit code; Ctrl-C is one also while the command is loaded."""
    try:
        from yiemagent.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
