"""Start of the command ``specwhisper``: Ctrl-C also ends it quietly while it imports its modules."""

import sys

INTERRUPTED = 130  # a shell's status of a command that Ctrl-C ended


def main() -> None:
    try:
        from specwhisper_client.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
