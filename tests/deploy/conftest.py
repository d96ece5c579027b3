"""Secrets made by deploy/make-secrets."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY


@pytest.fixture(scope="session")
def secrets(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run([DEPLOY / "make-secrets", folder], check=True, capture_output=True, timeout=60)
    return folder
