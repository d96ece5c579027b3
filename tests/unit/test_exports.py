"""Every public list names what exists, once."""

import importlib
import pkgutil

import pytest

import specwhisper

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(specwhisper.__path__, "specwhisper.")
    if not name.startswith("specwhisper.wire.v1.")
]
LISTS = {
    name: exported
    for name in MODULES
    if (exported := getattr(importlib.import_module(name), "__all__", None))
}


def test_there_is_something_to_hold():
    assert "specwhisper.wire.codec" in LISTS


@pytest.mark.parametrize("name", LISTS)
def test_a_public_list_is_true(name):
    module = importlib.import_module(name)
    assert len(LISTS[name]) == len(set(LISTS[name]))
    assert [export for export in LISTS[name] if not hasattr(module, export)] == []


def test_the_package_tells_its_version():
    assert specwhisper.__version__.count(".") == 2
