"""Start ``specwhisper-wyoming``.

Handle stop signals first, then import the slow modules.
"""

from specwhisper.rpc.process import exit_on_stop_signals


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end the process from the start."""
    exit_on_stop_signals()
    from specwhisper_wyoming import command

    command.main()


if __name__ == "__main__":
    main()
