"""``python -m experiments.sizing``: memory of models, sessions and hints; sessions by the memory of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from experiments.common.models.published import PUBLISHED
from experiments.sizing.hint import measure_hint
from experiments.sizing.memory import BYTES, num_sessions, num_weights, slot_bytes
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.types import CROSS_CACHES

SHAPES = PUBLISHED | {"distil-large-v3": replace(PUBLISHED["large-v3"], decoder_layers=2)}
GIB = 2**30


def sizing(
    gpu: Annotated[
        list[float] | None, typer.Option(help="Memory in GiB. [default: 16, 24, 48, 80, 141]")
    ] = None,
    dtype: Annotated[str, typer.Option(help=f"Of {', '.join(BYTES)}.")] = "float16",
    cross_cache: Annotated[
        str | None, typer.Option(help=f"As the target's: {' or '.join(CROSS_CACHES)}.")
    ] = None,
    reserve: Annotated[float, typer.Option(help="GiB for everything but weights and slots.")] = 3.0,
) -> None:
    """Print a table in Markdown, and what the longest hint takes."""
    sizes = gpu or [16, 24, 48, 80, 141]
    print("| model | weights, MB | a slot, MB |", *(f"{size:g} GiB |" for size in sizes))
    print("|---|---|---|" + "---|" * len(sizes))
    for name, shape in SHAPES.items():
        held = [
            num_sessions(size * GIB, shape, dtype, cross_cache, reserved_bytes=reserve * GIB)
            for size in sizes
        ]
        weights_mb = num_weights(shape) * BYTES[dtype] / 1e6
        slot_mb = slot_bytes(shape, dtype, cross_cache) / 1e6
        print(f"| {name} | {weights_mb:,.0f} | {slot_mb:.1f} |", *(f"{n:,} |" for n in held))
    hint = measure_hint()
    print(
        f"\nA hint of {MAX_HINT_BYTES:,} bytes takes {hint.tokens / 1e6:.1f} MB of main memory a session, "
        f"and {hint.searched / 1e6:.0f} MB once all of it was searched."
    )


if __name__ == "__main__":
    typer.run(sizing)
