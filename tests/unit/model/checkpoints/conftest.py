"""A saved checkpoint, and copies of it that a test may change."""

import shutil
from pathlib import Path

import pytest

from experiments.common.models.checkpoints import save_checkpoint
from tests.unit.model.checkpoints.folders import SHAPE


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    return save_checkpoint(SHAPE, tmp_path_factory.mktemp("checkpoint") / "saved")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(saved, tmp_path / "changed"))
