"""``page``: the figures and tables of the pages on latency, from the laboratory's JSON files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.capacity.laws import laws
from experiments.common.bench.report import ROOT
from experiments.latency.cells import CHOSEN
from specwhisper.types import Mode

FOLDER = ROOT / "docs" / "figures"
PAGES = [ROOT / "docs" / name for name in ("latency.md", "latency-tables.md")]
PREFIX = "latency-"  # file names: latency-grid.json, latency-drift.json ...
Facts = Mapping[str, Any]
ARMS = {
    "`sync`": (Mode.SYNC, False),
    "`pipelined`": (Mode.PIPELINED, False),
    "`full`": (Mode.FULL, False),
    "one process, one core": (Mode.ONE_PROCESS, False),
    "`full`, given hint": (Mode.FULL, True),
    "target-only, given hint": (Mode.TARGET_ONLY, True),
}


def page(
    folder: Annotated[Path, typer.Option(file_okay=False, exists=True, help="JSON files, figures.")] = FOLDER,
) -> None:
    """Draw the figures, and fill the tables of docs/latency.md and docs/latency-tables.md."""
    from experiments.latency.figures import draw  # matplotlib takes a second to load

    facts = read(folder)
    for path in draw(facts, folder):
        typer.echo(path)
    for path in PAGES:
        try:
            path.write_text(filled(path.read_text(), facts))
        except KeyError as error:
            sys.exit(f"experiments.latency: {path} needs {error.args[0]}, which {folder} does not have.")


def read(folder: Path) -> Facts:
    return {
        path.stem.removeprefix(PREFIX): json.loads(path.read_text())
        for path in folder.glob(f"{PREFIX}*.json")
    }


def filled(text: str, facts: Facts) -> str:

    def table(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{TABLES[found[1]](facts)}\n<!-- end -->"

    return re.sub(r"<!-- (table [\w\-, ]+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _interval(value: Sequence[float] | None) -> str:
    return "" if value is None else f"{value[0]:.2f} [{value[1]:.2f}, {value[2]:.2f}]"


def cells(grid: Facts, **wanted: Any) -> list[Facts]:
    """Return the cells of a grid that have these values, by round trip."""
    found = [cell for cell in grid["cells"] if all(cell[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda cell: cell["rtt_ms"])


def _find(grid: Facts, **wanted: Any) -> Facts | None:
    return next(iter(cells(grid, **wanted)), None)


def _round_trips(grid: Facts) -> list[float]:
    return sorted({cell["rtt_ms"] for cell in grid["cells"]})


def speech(facts: Facts) -> str:
    head = ["speech", "tokens", "accepted, given the target's text", "mean run", "right after an error"]
    return rows_of(
        head,
        [
            [
                condition,
                f"{counts['num_tokens']}",
                f"{counts['acceptance']:.1%}",
                f"{counts['mean_run']:.0f}",
                f"{counts['realigned']:.0%}",
            ]
            for condition, counts in facts["grid"]["speech"].items()
        ],
    )


def ratios(condition: str, what: str, *, intervals: bool = True) -> Callable[[Facts], str]:

    def shown(cell: Facts | None) -> str:
        ratio = cell and cell[f"{what}_over_target_only"]
        return _interval(ratio) if intervals else _number(ratio and ratio[0])

    def table(facts: Facts) -> str:
        grid = facts["grid"]
        round_trips = sorted({cell["rtt_ms"] for cell in grid["cells"] if cell["condition"] == condition})
        rows = []
        for name, (mode, has_hint) in ARMS.items():
            wanted = {"condition": condition, "mode": mode, "gamma": CHOSEN, "has_hint": has_hint}
            found = [_find(grid, rtt_ms=ms, **wanted) for ms in round_trips]
            if any(found):
                rows.append([name, *map(shown, found)])
        return rows_of(["round trip, ms", *(f"{ms:g}" for ms in round_trips)], rows)

    return table


def waits(facts: Facts) -> str:
    grid = facts["grid"]
    round_trips = [ms for ms in _round_trips(grid) if ms >= 25]
    rows = []
    for mode in (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL):
        wanted = {"condition": "clean", "mode": mode, "gamma": CHOSEN, "has_hint": False}
        found = [_find(grid, rtt_ms=ms, **wanted) for ms in round_trips]
        rows.append([f"`{mode}`", *(_number(c and c["waits"], 1) for c in found)])
    return rows_of(["round trip, ms", *(f"{ms:g}" for ms in round_trips)], rows)


def best(facts: Facts) -> str:
    grid = facts["grid"]
    rows = []
    for mode in (Mode.SYNC, Mode.PIPELINED, Mode.FULL):
        row, chosen = [f"`{mode}`, best set"], [f"`{mode}`, chosen"]
        for ms in _round_trips(grid):
            here = cells(grid, condition="clean", mode=mode, rtt_ms=ms, has_hint=False)
            times = {c["gamma"]: c["decoding_over_target_only"][0] for c in here}
            own, lengths = times.pop(CHOSEN, None), times
            least = min(lengths, key=lambda gamma: lengths[gamma], default=None)
            row.append("" if least is None else f"{lengths[least]:.2f} ({least})")
            chosen.append(_number(own))
        rows += [row, chosen]
    return rows_of(["round trip, ms", *(f"{ms:g}" for ms in _round_trips(grid))], rows)


def errors(facts: Facts) -> str:
    rows = []
    for condition, mode, is_set in product(
        facts["grid"]["speech"], (Mode.SYNC, Mode.PIPELINED, Mode.FULL), (False, True)
    ):
        here = [
            cell
            for cell in facts["grid"]["cells"]
            if (cell["condition"], cell["mode"], cell["gamma"] != CHOSEN) == (condition, mode, is_set)
            and "simulated" in cell
        ]
        row = [condition, f"`{mode}`", "set" if is_set else "chosen"]
        if here:
            off = sorted(abs(cell["simulated"] / cell["decoding_over_target_only"][0] - 1) for cell in here)
            rows.append([*row, f"{off[len(off) // 2]:.0%}", f"{off[-1]:.0%}"])
    return rows_of(["speech", "mode", "gamma", "simulation, middle", "at worst"], rows)


def drift(facts: Facts) -> str:
    arms = facts["drift"]["arms"]
    lengths = sorted({arm["gamma"] for arm in arms}, key=lambda gamma: gamma or 1000)
    rows = []
    for mode in dict.fromkeys(arm["mode"] for arm in arms):
        over = {arm["gamma"]: arm["over"] for arm in arms if arm["mode"] == mode}
        rows.append([f"`{mode}`", *(_number(over[gamma][0]) for gamma in lengths)])
    return rows_of(["gamma", *(f"{gamma}" if gamma else "chosen" for gamma in lengths)], rows)


def large(facts: Facts) -> str:
    tables = facts["large-v3"]["expected"]
    names = list(tables[0]["rows"][0])
    head = ["speech", "round trip, ms", *(name for name in names if name != "rtt_ms")]
    rows = [
        [
            table["condition"],
            f"{row['rtt_ms']:g}",
            *(_number(row[name]) for name in names if name != "rtt_ms"),
        ]
        for table in tables
        for row in table["rows"]
    ]
    return rows_of(head, rows)


def capacity(facts: Facts) -> str:
    rows = [
        [name, f"{each.clients}", _number(each.predicted), _number(each.gain), f"{each.share:.0%}"]
        for name, found in laws(facts).items()
        for each in found
    ]
    return rows_of(["models", "clients", "law", "measured", "share"], rows)


def ablation(facts: Facts) -> str:
    found = facts["ablation"]
    near_ms = min(case["round_trip_ms"] for case in found["cases"])
    shown = [
        case
        for case in found["cases"]
        if case["mode"] == Mode.FULL
        and (case["place"] == "measured" or (case["condition"], case["round_trip_ms"]) == ("clean", near_ms))
    ]
    shown.sort(key=lambda case: (case["place"] != "measured", case["place"], case["condition"]))
    head = ["without", "lines"]
    for case in shown:
        at = f"{case['round_trip_ms']:g} ms"
        head.append(
            f"{case['condition']}, {at}" if case["place"] == "measured" else f"simulated: {case['place']}"
        )
    whole = ["(all, over target-only)", "", *(_number(case["over_target_only"][0]) for case in shown)]
    rows = [
        [name, f"{lines}", *(_loss(case, name) for case in shown)] for name, lines in found["lines"].items()
    ]
    return rows_of(head, [whole, *rows])


def _loss(case: Facts, name: str) -> str:
    ratio = case["without"][name]
    return _interval(ratio) if case["place"] == "measured" else _number(ratio[0])


def parts(facts: Facts) -> str:
    return rows_of(
        ["model", "precision", "encoder, a window, ms", "a pass, ms", "a pass of 17 tokens, ms"],
        [
            [
                Path(row["model"]).name,
                row["precision"],
                _number(row["encode_ms"], 0),
                _number(row["pass_ms"], 1),
                _number(row["wide_pass_ms"], 1),
            ]
            for row in facts["parts"]["parts"]
        ],
    )


TABLES: dict[str, Callable[[Facts], str]] = {
    "table speech": speech,
    "table decoding, clean": ratios("clean", "decoding"),
    "table whole, clean": ratios("clean", "wall"),
    "table decoding, babble": ratios("10 dB babble", "decoding", intervals=False),
    "table decoding, telephone": ratios("telephone", "decoding", intervals=False),
    "table waits": waits,
    "table best": best,
    "table errors": errors,
    "table drift": drift,
    "table large-v3": large,
    "table capacity": capacity,
    "table ablation": ablation,
    "table parts": parts,
}
