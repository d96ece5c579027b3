"""The private API of huggingface_hub that this package uses.

``tests/unit/model/test_model_compat.py`` fails where a release changes it.
"""

from __future__ import annotations

HUGGINGFACE_HUB = "2.4"  # the last release that it was tried with


def is_known_to_lack(cached: object) -> bool:
    """Return whether the hub has no such file.

    Parameters
    ----------
    cached : what ``try_to_load_from_cache`` returned.
    """
    from huggingface_hub import _CACHED_NO_EXIST

    return cached is _CACHED_NO_EXIST
