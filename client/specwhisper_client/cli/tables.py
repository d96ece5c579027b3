"""Tables of a transcription's statistics and of a server's models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from specwhisper.printable import blanked
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper_client.updates import ServerInfo

MAX_TARGET = 24  # characters in a line of the targets that a draft may serve


def transcript_table(transcript: Transcription) -> Table:
    counts = transcript.stats or SpeculationStatistics()
    round_trips = f"{counts.num_blocks} blocks"
    if counts.min_round_trip_ns:
        round_trips += f", the fastest took {counts.min_round_trip_ns / 1e6:.2f} ms"
    wrote = {"model": _pair(transcript.model)} if transcript.model.target else {}  # none without speech
    rows = {
        **wrote,
        "audio": f"{transcript.duration_s:.2f} s in {transcript.elapsed_s:.2f} s, "
        f"real-time factor {transcript.real_time_factor:.3f}",
        **counts.described(),
        "round trips": round_trips,
    }
    if counts.draft_note:
        rows["draft"] = counts.draft_note
    elif transcript.model.draft and not (counts.num_drafted or counts.num_hinted):
        rows["draft"] = f"no candidates: it knows no '{transcript.language}', or came too late"
    elif counts.gamma:
        rows["draft"] = f"blocks of {counts.gamma}"
    if counts.num_draft_steps and counts.num_forwards:
        rows["times"] = (
            f"draft step {counts.draft_ns / counts.num_draft_steps / 1e6:.1f} ms, "
            f"forward pass {counts.forward_ns / counts.num_forwards / 1e6:.1f} ms"
        )
        if counts.num_answers:
            rows["times"] += f", on the way {counts.network_ns / counts.num_answers / 1e6:.1f} ms"
    return facts_table(rows)


def server_table(info: ServerInfo) -> Table:
    return facts_table(
        {
            "model": _pair(info.model),
            "weights": info.model.target_weights_digest,
            "languages": ", ".join(info.languages),
            "sessions": f"{info.max_sessions} at once",
            "version": info.software_version,
        }
    )


def local_models_table(models: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", overflow="fold")
    table.add_column("format", no_wrap=True)
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column("layers", no_wrap=True)
    table.add_column("drafts for", overflow="fold", max_width=MAX_TARGET)
    english_only = {model["name"] for model in models if model["english_only"]}
    for model in models:
        in_english = {*model["drafts_for"]} - english_only if model["english_only"] else ()
        shape = "{encoder_layers} + {decoder_layers} x {width}".format_map(model) if model["width"] else ""
        table.add_row(
            escape(model["name"]),
            model["format"] + (", quantised" if model["quantised"] else ""),
            f"{model['bytes'] / 1e6:.0f}",
            shape,
            escape("\n".join(name + " in English" * (name in in_english) for name in model["drafts_for"])),
        )
    return table


def _pair(model: ModelInfo) -> str:
    blocks = f" in blocks of {model.gamma}" if model.gamma else ""
    draft = f", drafted by {model.draft}{blocks}" if model.draft else ""
    return f"{model.target}{draft} ({model.mode})"


def facts_table(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, value in rows.items():
        table.add_row(Text(label, "dim"), Text(blanked(value)))
    return table
