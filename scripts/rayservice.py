"""Write deploy/kubernetes/ray/serve-config.yaml: Serve's configuration, as part of KubeRay's manifest.

The configuration is deploy/specwhisper_deploy/serve.yaml, with the changes of
deploy/kubernetes/ray/serve-changes.yaml. Run this after editing one of them; a test compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
RAY = DEPLOY / "kubernetes" / "ray"
WRITTEN = RAY / "serve-config.yaml"
HEAD = "# Written by scripts/rayservice.py: edit specwhisper_deploy/serve.yaml and serve-changes.yaml.\n"


def changed(configuration: Any, changes: Any) -> Any:
    """Give a configuration with changes: mappings key by key, lists of named things name by name.

    Of applications only those are taken that the changes name; what is null in the changes is left out.
    """
    if isinstance(configuration, dict) and isinstance(changes, dict):
        kept = {key: value for key, value in configuration.items() if key not in changes}
        new = {key: changed(configuration.get(key), value) for key, value in changes.items()}
        merged = kept | {key: value for key, value in new.items() if value is not None}
        if "applications" in changes:
            wanted = {application["name"] for application in changes["applications"]}
            merged["applications"] = [app for app in merged["applications"] if app["name"] in wanted]
        return merged
    if isinstance(configuration, list) and isinstance(changes, list) and _are_named(changes):
        news = {new["name"]: new for new in changes}
        known = [changed(old, news.pop(old["name"], {})) for old in configuration]
        return [*known, *news.values()]
    return changes


def _are_named(things: list[Any]) -> bool:
    return all(isinstance(thing, dict) and "name" in thing for thing in things)


def serve_config(serve: Path, changes: Path) -> str:
    """Write the configuration of a cluster."""
    merged = changed(yaml.safe_load(serve.read_text()), yaml.safe_load(changes.read_text()))
    return yaml.safe_dump(merged, sort_keys=False, width=110)


def manifest() -> str:
    """Return the part of the RayService that holds the configuration."""
    service = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "specwhisper"},
        "spec": {
            "serveConfigV2": serve_config(
                DEPLOY / "specwhisper_deploy" / "serve.yaml", RAY / "serve-changes.yaml"
            )
        },
    }
    return HEAD + yaml.dump(service, Dumper=Readable, sort_keys=False)


class Readable(yaml.SafeDumper):
    """Writes texts of several lines as such."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Represent a text."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


Readable.add_representer(str, Readable.represent_str)

if __name__ == "__main__":
    WRITTEN.write_text(manifest())
