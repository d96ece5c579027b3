"""Packages import lower layers only, and the client loads no model library."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import specwhisper
from specwhisper.extras import offers

ROOT = Path(__file__).parents[3]

TORCH = {"torch", "transformers", "accelerate", "safetensors"}
GRPC = {"grpc", "grpc_health", "grpc_reflection", "google"}
RAY = {"ray"}

# Where the package's own names are defined.
HOMES = {f"specwhisper.{name}": home for home, names in specwhisper._HOMES.items() for name in names}
HOMES |= {f"specwhisper.{name}": offer.module for name, offer in offers("exports").items()}
LIGHT = (
    "specwhisper_client",
    "specwhisper_gateway",
    "specwhisper_wyoming",
    "specwhisper_speakers",
    "specwhisper_top",
)
FOLDERS = (
    "specwhisper",
    "client/specwhisper_client",
    "draft_server/specwhisper_draft_server",
    "target_server/specwhisper_target_server",
    "gateway/specwhisper_gateway",
    "deploy/specwhisper_deploy",
    *(
        f"extras/{path.name}"
        for path in sorted((ROOT / "extras").iterdir())
        if path.name.startswith("specwhisper_")
    ),
)
LIBRARIES = {"torch": TORCH, "gRPC": GRPC, "Ray": RAY}
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def room(name):
    """Return the layer that the page calls by a short name."""
    return name if name.startswith("specwhisper_") else f"specwhisper.{name}"


def layers_of_page():
    """Return the rules of docs/architecture.md, and the layers of each group.

    A rule names the other layers that a layer may import, and the libraries that it must not import.
    """
    rows, groups, group = [], {"core": {"specwhisper"}}, ""
    for line in PAGE.partition("\n## Layers")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].startswith("`"):
            names = [room(name) for name in re.findall(r"`(\w+)`", cells[1])]
            group = cells[0] or group
            groups.setdefault(group, set()).update(names)
            rows.append((names, *cells[2:]))
    rules = {
        "specwhisper": (groups["core"] | groups["pure"] | groups["models"], RAY)
    }  # it re-exports, lazily
    for names, may_import, never in rows:
        allowed = {room(name) for name in re.findall(r"`(\w+)`", may_import)}
        allowed |= set().union(*(groups[word] for word in re.findall(r"(?<!`)\b(\w+)\b(?!`)", may_import)))
        forbidden = set().union(*(LIBRARIES[word] for word in re.findall(r"\w+", never)))
        rules |= dict.fromkeys(names, (allowed, forbidden))
    return rules, groups


LAYERS, GROUPS = layers_of_page()
OURS = {*LAYERS, "experiments", "examples", "tests"}


def layer_of(module):
    """Return the layer of a dotted module name, or ``None`` if it is not ours."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in OURS), None)


def modules():
    """Yield the name and file of each of our modules."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to((ROOT / folder).parent).with_suffix("")
            yield ".".join(relative.parts).removesuffix(".__init__"), path


@cache
def all_imports():
    """Return what each of our modules imports."""
    return {module: [*imports_of(path, module, path.name == "__init__.py")] for module, path in modules()}


def imports_of(path, module, is_package):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def violations(module, imported):
    """Yield an error for each forbidden import of a module."""
    layer = layer_of(module)
    allowed, forbidden = LAYERS[layer]
    for name in imported:
        target = layer_of(HOMES.get(name, name))
        if target is not None and target != layer and target not in allowed:
            yield f"{module} imports {name}: {layer} must not import {target}"
        if name.split(".")[0] in forbidden:
            yield f"{module} imports {name}: {layer} must not import it"


def test_modules_import_lower_layers_only():
    found = []
    for module, imported in all_imports().items():
        found += violations(module, imported)
    assert found == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("specwhisper_draft_server.link.link", "specwhisper_target_server.verifier"),
        ("specwhisper.model.model", "grpc.aio"),
        ("specwhisper.audio.mel", "specwhisper.SpeculativeWhisper"),
        ("specwhisper_target_server.app", "experiments.common.models.scripted"),
    ],
)
def test_forbidden_imports_are_found(module, imported):
    assert len(list(violations(module, [imported]))) == 1


def test_every_module_has_a_row_in_the_page():
    assert [name for name, _ in modules() if layer_of(name) in (None, "specwhisper")] == ["specwhisper"]


def test_the_draft_server_imports_downwards_only():
    """From a target's stream up to the sessions."""
    steps = (("link",), ("draft_source", "drafting", "placement"), ("session",))
    found = []
    for module, imported in all_imports().items():
        package, *parts = module.split(".")
        step = next((i for i, names in enumerate(steps) if parts and parts[0] in names), None)
        if package == "specwhisper_draft_server" and step is not None:
            above = [name for names in steps[step + 1 :] for name in names]
            found += [
                f"{module} imports {name}"
                for name in imported
                if name.startswith("specwhisper_draft_server.") and name.split(".")[1] in above
            ]
    assert found == []


ENGINES = {  # libraries that run models, and the only modules that import them
    "onnxruntime": (
        "specwhisper.model.onnx.",
        "specwhisper.extras",
        "specwhisper.audio.speech",
        "specwhisper_client.cli.tune_command",  # asks whether it is there
    ),
    "onnx": ("specwhisper.model.onnx.", "specwhisper.model.checkpoints.formats"),
    "torch": (
        "specwhisper.model.pytorch.",
        "specwhisper_text.",
        "specwhisper.engine.process",
        "specwhisper.api.speculative",  # for the type of a device
    ),
}


def test_models_run_on_their_engines_only_where_those_are_wrapped():
    found = []
    for module, imported in all_imports().items():
        for name in imported:
            library = name.split(".")[0]
            if library in ENGINES and not module.startswith(ENGINES[library]):
                found.append(f"{module} imports {name}")
    assert found == []


def loaded_by(names, libraries):
    """Return which libraries a process has loaded after it has imported modules."""
    script = f"import sys\nimport {', '.join(names)}\nprint(*sorted({libraries} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_importing_the_client_loads_no_model_library():
    names = [name for name, _ in modules() if layer_of(name) in LIGHT and not name.endswith("__main__")]
    assert loaded_by(names, TORCH | RAY | {"onnxruntime", "jiwer", "matplotlib"}) == []


def test_servers_and_models_on_cpus_load_no_torch():
    """Only ``specwhisper.model.pytorch`` and text models load it."""
    rooms = {
        "specwhisper_draft_server",
        "specwhisper_target_server",
        "specwhisper_recognisers",
        *GROUPS["models"],
    }
    names = [
        name
        for name, _ in modules()
        if layer_of(name) in rooms and not name.startswith("specwhisper.model.pytorch")
    ]
    assert loaded_by(names, TORCH) == []
