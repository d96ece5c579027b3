"""Fixtures that run programs of both versions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from tests.compat.release import ROOT, Version, unpack
from tests.e2e.processes import Process, Server

Trees = dict[Version, Path]


class Start(Protocol):
    """Starts a server of a version."""

    def __call__(self, version: Version, *command: str) -> Server: ...


class Run(Protocol):
    """Starts any program of a version."""

    def __call__(self, version: Version, *command: str) -> Process: ...


@pytest.fixture(scope="session")
def trees(tmp_path_factory) -> Trees:
    """Where the code of each version is."""
    return {Version.OLD: unpack(tmp_path_factory.mktemp("previous")), Version.NEW: ROOT}


@pytest.fixture
def start(trees) -> Iterator[Start]:
    yield from _starting(Server, trees)


@pytest.fixture
def run(trees) -> Iterator[Run]:
    yield from _starting(Process, trees)


def _starting(kind: type[Process], trees: Trees) -> Iterator[partial]:
    started: list[Process] = []

    def begin(version: Version, *command: str) -> Process:
        started.append(kind(*command, tree=trees[version]))
        return started[-1]

    yield partial(begin)
    for process in started:
        process.end()
