"""Put Serve's configuration into KubeRay's manifest, from standard input to standard output.

kubectl kustomize deploy/kubernetes/ray | python3 scripts/rayservice.py | kubectl apply --filename -

The configuration is deploy/serve.yaml, with the changes of deploy/kubernetes/ray/serve-changes.yaml.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"


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


def main() -> None:
    """Fill the manifests that come in."""
    config = serve_config(DEPLOY / "serve.yaml", DEPLOY / "kubernetes" / "ray" / "serve-changes.yaml")
    manifests = list(yaml.safe_load_all(sys.stdin))
    for manifest in manifests:
        if manifest["kind"] == "RayService":
            manifest["spec"]["serveConfigV2"] = config
    yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
