"""Imports point down only, and the client stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TORCH = {"torch", "transformers", "accelerate", "safetensors"}
GRPC = {"grpc", "grpc_health", "grpc_reflection", "google"}
RAY = {"ray"}

CORE = {"specwhisper", "specwhisper.errors", "specwhisper.live", "specwhisper.options", "specwhisper.types"}
PURE = {"specwhisper.audio", "specwhisper.speculation", "specwhisper.transcription"}
BOTH = {"specwhisper.whisper", "specwhisper.wire"}

# Layer: which of our layers it may import besides itself, and which libraries it must do without.
LAYERS = {
    "specwhisper.errors": (set(), TORCH | GRPC | RAY),
    "specwhisper.types": ({"specwhisper.errors"}, TORCH | GRPC | RAY),
    "specwhisper.live": ({"specwhisper.errors"}, TORCH | GRPC | RAY),
    "specwhisper.options": ({"specwhisper.errors", "specwhisper.live"}, TORCH | GRPC | RAY),
    "specwhisper.audio": (CORE, TORCH | GRPC | RAY),
    "specwhisper.speculation": (CORE, TORCH | GRPC | RAY),
    "specwhisper.transcription": (CORE | {"specwhisper.speculation"}, TORCH | GRPC | RAY),
    "specwhisper.whisper": (CORE | PURE, GRPC | RAY),
    "specwhisper.evaluation": (CORE | PURE | {"specwhisper.whisper"}, GRPC | RAY),
    "specwhisper.text": (CORE | PURE | {"specwhisper.whisper"}, GRPC | RAY),
    "specwhisper.wire": (CORE | PURE, TORCH | RAY),
    "specwhisper": (
        CORE | PURE | BOTH | {"specwhisper.text"},
        RAY,
    ),  # the package itself: may re-export, lazily
    "client": (CORE | PURE | {"specwhisper.wire"}, TORCH | RAY),
    "draft_server": (CORE | PURE | BOTH, RAY),
    "target_server": (CORE | PURE | BOTH, RAY),
    "deploy": (CORE | {"specwhisper.wire", "client", "draft_server", "target_server"}, TORCH),
}
OURS = {*LAYERS, "experiments", "examples", "tests"}


def layer_of(module):
    """Name the layer a dotted module belongs to, or ``None`` for a foreign one."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in OURS), None)


def modules():
    for package in ("specwhisper", "client", "draft_server", "target_server", "deploy"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path, module, is_package):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def violations(module, imported):
    """Say what is wrong with the imports of a module."""
    layer = layer_of(module)
    allowed, forbidden = LAYERS[layer]
    for name in imported:
        target = layer_of(name)
        if target is not None and target != layer and target not in allowed:
            yield f"{module} imports {name}: {layer} must not know {target}"
        if name.split(".")[0] in forbidden:
            yield f"{module} imports {name}: {layer} does without it"


def test_imports_point_down_only():
    found = []
    for module in modules():
        path = ROOT / Path(*module.split("."))
        is_package = path.is_dir()
        path = path / "__init__.py" if is_package else path.with_suffix(".py")
        found += violations(module, imports_of(path, module, is_package))
    assert found == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("client.cli", "draft_server.app"),
        ("client.cli", "specwhisper.whisper.model"),
        ("draft_server.link", "target_server.verifier"),
        ("specwhisper.whisper.model", "grpc.aio"),
        ("specwhisper.whisper.model", "specwhisper.wire.codec"),
        ("specwhisper.wire.codec", "torch"),
        ("specwhisper.audio.mel", "torch"),
        ("specwhisper.types", "specwhisper.audio.mel"),
        ("specwhisper.errors", "specwhisper.types"),
        ("target_server.app", "experiments.common.scripted"),
    ],
)
def test_the_rule_sees_what_it_forbids(module, imported):
    assert len(list(violations(module, [imported]))) == 1


def test_importing_the_client_loads_no_model_library():
    names = [name for name in modules() if layer_of(name) == "client" and not name.endswith("__main__")]
    script = f"import sys\nimport {', '.join(names)}\nprint(*sorted({TORCH | RAY} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (run.stdout.strip(), run.returncode) == ("", 0), run.stderr
