"""Each ``__all__`` lists existing names, each once, and the types they need."""

import inspect
from dataclasses import is_dataclass
from typing import get_args, get_type_hints

import pytest

import specwhisper
import specwhisper_client
from specwhisper.errors import RETRY_ELSEWHERE, InvalidRequest, PairMismatch, SpecWhisperError


@pytest.mark.parametrize("package", [specwhisper, specwhisper_client])
def test_a_public_list_has_existing_names_without_duplicates(package):
    assert len(package.__all__) == len(set(package.__all__))
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def types_in(annotation):
    """Return our own classes that a type is made of."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("specwhisper"):
        is_protocol = getattr(annotation, "_is_protocol", False)  # whatever has its methods can be passed
        return set() if is_protocol else {annotation}
    return {one for part in get_args(annotation) for one in types_in(part)}


def types_in_signatures(exported):
    """Return our own classes in the signatures of a class or function."""
    routines = [exported] if inspect.isroutine(exported) else []
    if inspect.isclass(exported):
        public = {
            name: member
            for name, member in vars(exported).items()
            if name in ("__init__", "__aiter__") or not name.startswith("_")
        }
        routines = [member.fget if isinstance(member, property) else member for member in public.values()]
        routines += [exported] if is_dataclass(exported) else []
    hints = [get_type_hints(each) for each in routines if inspect.isroutine(each) or inspect.isclass(each)]
    return {one for by_name in hints for annotation in by_name.values() for one in types_in(annotation)}


def test_types_in_the_clients_signatures_are_exported():
    public = {
        getattr(package, name)
        for package in (specwhisper, specwhisper_client)
        for name in package.__all__
        if isinstance(getattr(package, name), type)
    }
    needed = {
        name: types_in_signatures(getattr(specwhisper_client, name))
        for name in specwhisper_client.__all__
        if name != "Servers"  # a caller only passes it from one client to another
    }
    assert {name: types - public for name, types in needed.items() if types - public} == {}
    assert specwhisper_client.Credentials in needed["TranscriptionClient"]
    assert specwhisper_client.Update in needed["StreamingClient"]


def test_errors_that_the_client_raises_are_exported():
    exported = [getattr(specwhisper_client, name) for name in specwhisper_client.__all__]
    errors = {each for each in exported if inspect.isclass(each) and issubclass(each, Exception)}
    assert {*RETRY_ELSEWHERE, SpecWhisperError, InvalidRequest, PairMismatch} <= errors
