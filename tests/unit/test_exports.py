"""Each ``__all__`` lists existing names, each once."""

import importlib
import inspect
import pkgutil

import pytest

import specwhisper
import specwhisper_client

MODULES = ["specwhisper", "specwhisper_client"] + [
    name
    for _, name, _ in pkgutil.walk_packages(specwhisper.__path__, "specwhisper.")
    if not name.startswith("specwhisper.wire.v1.")
]
LISTS = {
    name: exported
    for name in MODULES
    if (exported := getattr(importlib.import_module(name), "__all__", None))
}


def test_public_lists_are_found():
    assert {"specwhisper", "specwhisper_client", "specwhisper.wire.codec"} <= LISTS.keys()


@pytest.mark.parametrize("name", LISTS)
def test_a_public_list_has_existing_names_without_duplicates(name):
    module = importlib.import_module(name)
    assert len(LISTS[name]) == len(set(LISTS[name]))
    assert [export for export in LISTS[name] if not hasattr(module, export)] == []


@pytest.mark.parametrize("package", [specwhisper, specwhisper_client])
def test_public_classes_and_functions_have_docstrings(package):
    exports = {name: getattr(package, name) for name in package.__all__}
    documented = (inspect.isclass, inspect.isroutine)
    without = [name for name, it in exports.items() if any(is_(it) for is_ in documented) and not it.__doc__]
    assert without == []


def test_an_unknown_name_of_the_client_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Client'"):
        specwhisper_client.Client  # noqa: B018


def test_the_package_has_a_version():
    assert specwhisper.__version__.count(".") == 2
