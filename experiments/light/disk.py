"""Room on disk of an extra's packages, as they are installed here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "specwhisper"


def installed_mb(extra: str) -> dict[str, float]:
    """Return the size of every package that an extra of ours installs, the largest first.

    Our own package is left out: here it is the source tree.
    """
    sizes: dict[str, float] = {}
    _add(OURS, (extra,), sizes, set())
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _add(name: str, extras: tuple[str, ...], sizes: dict[str, float], seen: set[tuple[str, str]]) -> None:
    """Add a package, and what it requires with its extras."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return  # a platform's alternative
    if name != OURS and name not in sizes:
        paths = (Path(str(found.locate_file(file))) for file in found.files or ())
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
    for line, extra in product(found.requires or (), ("", *extras)):
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if applies and (line, extra) not in seen:
            seen.add((line, extra))
            _add(canonicalize_name(requirement.name), tuple(requirement.extras), sizes, seen)
