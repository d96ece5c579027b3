"""The writers of openai/whisper."""

from functools import cache
from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType


@cache
def whispers_utils() -> ModuleType:
    """Load one file of openai/whisper, without the libraries of its package."""
    path = next(file.locate() for file in files("openai-whisper") or () if file.match("whisper/utils.py"))
    spec = spec_from_file_location("whisper_utils", str(path))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
