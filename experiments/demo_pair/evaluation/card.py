"""Write the model card from the measured figures, so that they agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("card.md")
MODELS = {"target": "target", "tiny": "draft-tiny", "distil": "draft-distil"}
DRAFTS = ("draft-tiny", "draft-distil")
SETS = {
    "test-sentences": "held-out sentences",
    "test-voices": "held-out voices",
    "test-fsdd": "official FSDD test split",
    "packed": "full windows of 30 s",
    "packed-clean": "full windows without noise",
}


def percent(share: float) -> str:
    """Write a share with one decimal."""
    return f"{100 * share:.1f} %"


def locality_rows(metrics: dict[str, Any]) -> list[str]:
    """Describe the errors of uncorrected drafts, and how many tokens they take to agree again."""
    found = [metrics[name]["agreement"]["packed"] for name in DRAFTS]
    runs = [draft.get("after_errors", {"realigned": 0.0, "mean_run": 0.0}) for draft in found]
    rows = {
        "words unlike the target's": [percent(draft["alone_against_target"]) for draft in found],
        "realigns (β)": [percent(run["realigned"]) for run in runs],
        "tokens that then hold": [f"{run['mean_run']:.1f}" for run in runs],
    }
    return [f"| {title} | {' | '.join(values)} |" for title, values in rows.items()]


def write_card(out: Path) -> None:
    """Fill the template with metrics.json, both below ``out``."""
    metrics: dict[str, Any] = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    facts: dict[str, object] = dict(metrics["recipe"])
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in facts.pop("versions").items())
    for short, name in MODELS.items():
        config = json.loads((out / name / "config.json").read_text(encoding="utf-8"))
        layers = f"{config['encoder_layers']} + {config['decoder_layers']}"
        facts[f"{short}_layers"] = config["decoder_layers"] if short == "distil" else layers
        facts[f"{short}_width"] = config["d_model"]
        facts[f"{short}_parameters"] = f"{metrics[name]['parameters'] / 1e6:.1f} M"
        facts[f"{short}_size"] = f"{metrics[name]['bytes'] / 1e6:.1f} MB"
        facts[f"{short}_step"] = f"{metrics[name]['decoder_step_ms']:.1f} ms"
    present = {key: title for key, title in SETS.items() if key in metrics["target"]["wer"]}
    facts["wer_rows"] = "\n".join(
        f"| {title} ({metrics['windows']['counts'][key]}) | "
        + " | ".join(percent(metrics[name]["wer"][key]["wer"]) for name in MODELS.values())
        + " |"
        for key, title in present.items()
    )
    facts["acceptance_rows"] = "\n".join(
        f"| {title} | " + " | ".join(percent(metrics[name]["acceptance"][key]) for name in DRAFTS) + " |"
        for key, title in present.items()
    )
    facts["locality_rows"] = "\n".join(locality_rows(metrics))
    text = TEMPLATE.read_text(encoding="utf-8")
    for key, value in facts.items():
        text = text.replace("{" + key + "}", str(value))
    (out / "README.md").write_text(text, encoding="utf-8")
