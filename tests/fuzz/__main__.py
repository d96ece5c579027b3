"""Search for bytes that break a parser, guided by code coverage.

``python -m tests.fuzz flac -max_total_time=60``
Further arguments are libFuzzer's; new inputs are kept in the first folder among them.
"""

import sys
import tempfile
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit('atheris is not installed; run: pip install ".[fuzz]"')

INSTRUMENTED = [
    "specwhisper.audio",
    "specwhisper.model.checkpoints",
    "specwhisper.wire",
    "specwhisper_riva",
    "specwhisper_gateway",
]
with atheris.instrument_imports(include=INSTRUMENTED):
    from tests.fuzz.parsers import PARSERS, parse


def main() -> None:
    """Fuzz one parser, starting from its valid inputs."""
    if len(sys.argv) < 2 or sys.argv[1] not in PARSERS:
        sys.exit(f"usage: python -m tests.fuzz {{{','.join(PARSERS)}}} [libFuzzer's arguments]")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as seeds:
        for number, seed in enumerate(PARSERS[name][1]):
            (Path(seeds) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, seeds], lambda data: parse(name, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
