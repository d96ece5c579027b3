"""Start of ``specwhisper-draft-server``.

The signals that end it come first, then the slow imports.
"""

from specwhisper.rpc.process import exit_on_stop_signals


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end it from its first moment on."""
    exit_on_stop_signals()
    from specwhisper_draft_server import command

    command.main()


if __name__ == "__main__":
    main()
