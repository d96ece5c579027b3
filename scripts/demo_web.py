"""Show live transcription in a browser: target server, draft server and gateway.

They have the bundled pair, or with ``MODEL=real`` Whisper's base and tiny.en. ``make demo-web`` runs this
until Ctrl-C. An argument is the gateway's port. The draft server also has Riva's service, for voice agents.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from demo import chosen_pair, server

DEFAULT_PORT, DRAFT_PORT = 8000, 50051


def main() -> None:
    pair = chosen_pair()
    port = sys.argv[1] if len(sys.argv) > 1 else str(free_port(DEFAULT_PORT))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # unwinds the stack below, which stops the servers
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = Path(folder)
        print("Starting a target server, a draft server and the gateway ...", flush=True)
        target = stack.enter_context(server("specwhisper_target_server", logs / "target.log", *pair.target))
        draft = stack.enter_context(
            server(
                "specwhisper_draft_server",
                logs / "draft.log",
                "--target",
                target,
                "--allow-latency-injection",
                "--riva",
                *("--port", str(free_port(DRAFT_PORT))),
                *pair.draft,
            )
        )
        options = ("--server", draft, "--port", port)
        address = stack.enter_context(server("specwhisper_gateway", logs / "gateway.log", *options))
        url = f"http://{address.replace('127.0.0.1', 'localhost')}/"
        print(f"\n    {url}\n\nThe draft server is at {draft}. Ctrl-C ends it.", flush=True)
        if has_display():
            webbrowser.open(url)
        if not hasattr(signal, "SIGCHLD"):  # Windows reports no child that ends
            Event().wait()
        stack.callback(signal.signal, signal.SIGCHLD, signal.SIG_DFL)  # from then on they are stopped
        signal.signal(signal.SIGCHLD, lambda *_: sys.exit(f"A server has ended.\n{last_words(logs)}"))
        signal.pause()


def last_words(logs: Path) -> str:
    return "\n".join(f"{log.name}: {log.read_text().strip()[-500:]}" for log in sorted(logs.glob("*.log")))


def free_port(usual: int) -> int:
    """Return the usual port, or 0 for any if that one is taken."""
    with socket.socket() as probe:
        return 0 if probe.connect_ex(("127.0.0.1", usual)) == 0 else usual


def has_display() -> bool:
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


if __name__ == "__main__":
    main()
