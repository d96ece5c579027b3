"""Start ``specwhisper-draft-server``: first the signals that end it, then the slow imports."""

from specwhisper.rpc.process import exit_on_stop_signals


def main() -> None:
    """Run the command line, in a process that SIGTERM and SIGINT end from its first moment on."""
    exit_on_stop_signals()
    from specwhisper_draft_server import command

    command.main()


if __name__ == "__main__":
    main()
