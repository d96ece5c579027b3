"""Unpack the previous release's code, to run beside this release's."""

from __future__ import annotations

import os
import subprocess
from enum import StrEnum
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_IN_CLONE = 3  # exit status of scripts/previous-release


class Version(StrEnum):
    """The release whose code a program runs."""

    OLD = "previous release"
    NEW = "working tree"


# The programs' module names.
MODULES = {
    Version.OLD: {
        "client": "client.cli",
        "draft server": "draft_server",
        "target server": "target_server",
        "gateway": "client.gateway",
    },
    Version.NEW: {
        "client": "specwhisper_client.cli.main",
        "draft server": "specwhisper_draft_server",
        "target server": "specwhisper_target_server",
        "gateway": "specwhisper_gateway",
    },
}


def unpack(folder: Path, part: str = ".") -> Path:
    """Unpack the previous release, or a part of it.

    A clone without its commit (a shallow one) skips the test, but fails it where ``CI`` is set.
    """
    script = [ROOT / "scripts" / "previous-release", folder, part]
    unpacked = subprocess.run(script, capture_output=True, text=True)
    if unpacked.returncode == NOT_IN_CLONE and not os.environ.get("CI"):
        pytest.skip(unpacked.stderr.strip())
    assert unpacked.returncode == 0, unpacked.stderr
    return folder
