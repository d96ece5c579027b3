"""Figures of a sweep, their captions and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from math import isnan, nan
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from experiments.latency.cells import CHOSEN, Arm, Cell, Hints
from experiments.latency.report import figures, page
from experiments.latency.report.captions import captions_of, write_captions
from experiments.latency.report.drawing import (
    HEAT,
    STYLES,
    BestGammas,
    Curve,
    Dots,
    Drawing,
    Tie,
    percent,
    shown,
)
from experiments.latency.report.series import draw, tie_of
from experiments.latency.report.summary import Summary
from experiments.latency.sweep.store import Run, Sweep
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import Mode

ROOT = Path(__file__).parents[4]
STEPS = (0.0, 1.25, 5.0)
TARGET_ONLY, SYNC, FULL = Arm(Mode.TARGET_ONLY), Arm(Mode.SYNC), Arm(Mode.FULL)
TIMES_S = {  # of the first round trip
    (TARGET_ONLY, CHOSEN): 1.0,
    (SYNC, 2): 0.8,
    (SYNC, 8): 0.7,
    (SYNC, CHOSEN): 0.6,
    (FULL, 2): 0.4,
    (FULL, 8): 0.404,
    (FULL, CHOSEN): 0.5,
    (Arm(Mode.FULL, hints=Hints.GIVEN), CHOSEN): 0.3,
}


def summary_of(times_s: dict[tuple[Arm, int], float], num_repeats: int = 3) -> Summary:
    """Make a sweep in which each repeat is 10 % slower, target-only included."""
    request = {
        "modes": ["target-only", "sync", "full"],
        "gammas": [2, 8, CHOSEN],
        "max_cores": 1,
        "hints": ["realigned", "given"],
        "samples": ["one"],
    }
    header = {
        "models": {"target": "large", "draft": "small"},
        "conditions": {"round_trip_s": 0.0},
        "request": request,
        "step_s": 0.0702,
        "round_trips_s": [0.0702 * steps for steps in STEPS],
    }
    statistics = {"forward_ns": 1e9, "draft_ns": 1e9, "network_ns": 1e9}
    runs = [
        Run(
            repeat,
            Cell(arm.mode, gamma, place, arm.cores, arm.hints),
            "one",
            {
                "time_per_token_s": time_s * (1 + 0.1 * repeat) * (1 + 0.01 * repeat * (arm != TARGET_ONLY)),
                "num_tokens": 10,
                "network_share": 0.0,
                "statistics": statistics,
            },
        )
        for (arm, gamma), time_s in times_s.items()
        for place in range(len(STEPS))
        for repeat in range(num_repeats)
    ]
    return Summary.of(Sweep(header, tuple(runs)))


def drawing_of(times_s: dict[tuple[Arm, int], float] = TIMES_S, num_repeats: int = 3) -> Drawing:
    """Draw a made sweep, with made predictions."""
    made = draw(summary_of(times_s, num_repeats), {}, seed=0)
    dots = [Dots(SYNC, ["sync, gamma 2"], [0.8], [0.75]), Dots(FULL, ["full, gamma 2"], [0.4], [0.41])]
    ties = [Tie(3, [2, 3, 4]), Tie(3, [3]), None]
    return replace(made, simulated=dots, closed_form=dots, best_predicted=[BestGammas(SYNC, ties)])


def curve(drawing: Drawing, arm: Arm) -> Curve:
    return next(one for one in drawing.curves if one.arm == arm)


def written_beside_figures(drawing: Drawing, folder: Path) -> None:
    """Write the page and the captions."""
    page.write_page(drawing, ["a <fact>"], ["a bar"], folder / "latency.html")
    write_captions(drawing, folder / "captions.md")


def written(drawing: Drawing, folder: Path) -> dict[str, bytes]:
    """Write all files; return their contents by name."""
    figures.write_figures(drawing, folder)
    written_beside_figures(drawing, folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_ties_are_lengths_within_two_percent_or_with_overlapping_intervals():
    once = {gamma: Ratio(value, value, value, 1) for gamma, value in ((1, 0.5), (2, 0.505), (4, 0.52))}
    assert tie_of(once) == Tie(1, [1, 2])
    several = {
        1: Ratio(0.6, 0.5, 0.7, 3),
        2: Ratio(0.5, 0.45, 0.55, 3),
        4: Ratio(0.6, 0.56, 0.7, 3),
    }
    assert tie_of(several) == Tie(2, [1, 2])


def test_measured_ties_are_drawn_as_ties():
    (sync, full) = drawing_of(num_repeats=1).best_measured
    assert sync.ties[0] == Tie(8, [8])
    assert full.ties[0] == Tie(2, [2, 8])  # 1 % apart
    only_one = {cell: time_s for cell, time_s in TIMES_S.items() if cell[1] != 8}
    assert not drawing_of(only_one).best_measured  # there is nothing to choose from


def test_curves_have_either_chosen_or_set_draft_lengths():
    assert curve(drawing_of(), FULL).values == pytest.approx([0.505] * 3)  # although a set length is faster
    without_sync = {cell: time_s for cell, time_s in TIMES_S.items() if cell != (SYNC, CHOSEN)}
    drawing = drawing_of(without_sync)
    assert all(map(isnan, curve(drawing, SYNC).values))  # no set length replaces it
    assert "All sessions choose their draft length" in captions_of(drawing)[0].text
    only_set = {cell: t for cell, t in TIMES_S.items() if cell[0] == TARGET_ONLY or cell[1] != CHOSEN}
    drawing = drawing_of(only_set)
    assert curve(drawing, SYNC).values == pytest.approx([0.707] * 3)
    assert "the fastest of the set draft lengths" in captions_of(drawing)[0].text


@pytest.mark.parametrize("num_repeats", [1, 3])
def test_intervals_come_from_several_repeats_only(num_repeats, tmp_path):
    drawing = drawing_of(num_repeats=num_repeats)
    full, repeats = curve(drawing, FULL), f"n = {num_repeats}"
    assert drawing.has_intervals is (num_repeats > 1)
    assert isnan(full.low[0]) is isnan(full.high[0]) is (num_repeats == 1)
    assert all(repeats in caption.text for caption in captions_of(drawing))
    assert ("Error bars" in captions_of(drawing)[0].text) is (num_repeats > 1)
    drawn = figures.FIGURES["latency-modes"](drawing)
    assert drawn.legends[0].get_title().get_text() == repeats
    assert bool(drawn.axes[0].containers[0].has_yerr) is (num_repeats > 1)
    plt.close(drawn)
    on_page = page.FIGURES["latency-modes"](drawing)
    assert {one.error_y.visible for one in on_page.data} == {num_repeats > 1}
    assert on_page.layout.legend.title.text == repeats


def test_repeats_are_counted():
    summary = summary_of(TIMES_S)
    assert summary.repeats == "n = 3"
    fewer = {cell: ({0: 1.0} if cell.mode is Mode.FULL else t) for cell, t in summary.times_s.items()}
    assert Summary(summary.sweep, fewer).repeats == "n = 1 to 3"


def test_predictions_name_the_repeats_of_all_cells():
    drawing = replace(drawing_of(), repeats="n = 1 to 3", drawn_repeats="n = 3")
    for name, expected in (("latency-predictions", "n = 1 to 3"), ("latency-modes", "n = 3")):
        drawn = figures.FIGURES[name](drawing)
        assert drawn.legends[0].get_title().get_text() == expected
        plt.close(drawn)


@pytest.mark.nightly
def test_two_runs_write_equal_bytes(tmp_path):
    once, again = (written(drawing_of(), tmp_path / name) for name in ("once", "again"))
    assert once == again
    assert len(once) == 5 * 3 + 2
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for suffix, start in starts.items():
        found = [content for name, content in once.items() if name.endswith(suffix)]
        assert len(found) == 5 and all(content.startswith(start) for content in found)


class Loads(HTMLParser):
    """Collects the addresses that a page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href", "data")]


def test_page_and_captions_file_have_the_same_captions(tmp_path):
    written_beside_figures(drawing_of(), tmp_path)
    captions = captions_of(drawing_of())
    html, markdown = ((tmp_path / name).read_text() for name in ("latency.html", "captions.md"))
    assert [caption.name for caption in captions] == list(figures.FIGURES) == list(page.FIGURES)
    for caption in captions:
        assert f"![{caption.title}]({caption.name}.png)\n\n*{caption.title}.* {caption.text}\n" in markdown
        assert caption.text.replace("'", "&#x27;") in html
    assert "a &lt;fact&gt;" in html and "Plotly.newPlot" in html
    assert not Loads(html.rpartition("</script>")[0][:2_000] + html.rpartition("</script>")[2]).found
    assert Loads("<script src='https://cdn/plotly.js'></script>").found


def test_every_axis_has_a_label():
    for draw_one in figures.FIGURES.values():
        drawn = draw_one(drawing_of())
        assert drawn.axes[0].get_ylabel()
        for axes in drawn.axes:
            assert axes.get_xlabel() or axes.get_ylabel().startswith("time per token")  # the colour bar
            tops = [top.get_xlabel() for top in axes.child_axes]
            assert all(label == "round trip, ms\n(target-only forward pass: 70.2 ms)" for label in tops)
            assert len(tops) == axes.get_xlabel().startswith("round trip")
        plt.close(drawn)


def test_round_trips_keep_three_digits():
    drawing = drawing_of()
    assert list(drawing.step_ticks()) == ["0", "1.25", "5"]
    assert list(drawing.ms_ticks()) == ["0", "87.8", "351"]
    assert "sync, 1.25" in drawing.time_parts.labels
    assert [shown(value) for value in (0.125, 999.4, 12_345.6)] == ["0.125", "999", "12,346"]
    assert percent(0.15) == "15 %"


def test_page_and_files_have_the_same_colours():
    drawn, on_page = (
        figures.FIGURES["latency-gamma"](drawing_of()),
        page.FIGURES["latency-gamma"](drawing_of()),
    )
    image, coloraxis = drawn.axes[0].images[0], on_page.layout.coloraxis
    assert [colour.upper() for _, colour in coloraxis.colorscale] == list(HEAT)
    ends = [image.norm.vmin, image.norm.vmax]
    assert [2**coloraxis.cmin, 2**coloraxis.cmax] == pytest.approx(ends)
    for value, colour in zip((ends[0], 1, ends[1]), (HEAT[0], HEAT[5], HEAT[-1]), strict=True):
        assert image.cmap(image.norm(value))[:3] == pytest.approx(to_rgb(colour), abs=0.01)
    plt.close(drawn)


def test_arms_of_a_mode_differ_in_dashes_and_markers():
    for mode in Mode:
        styles = [style for arm, style in STYLES.items() if arm.mode is mode]
        assert len({style.dash for style in styles}) == len({style.marker for style in styles}) == len(styles)
    assert len({style.colour for style in STYLES.values()}) == len(STYLES)


def test_hints_have_a_panel_of_their_own():
    panels = {name: [str(one.arm) for one in curves] for name, curves in drawing_of().panels.items()}
    assert panels == {"modes": ["sync", "full"], "full, by hints": ["full", "full with a given hint"]}
    modes = {cell: time_s for cell, time_s in TIMES_S.items() if cell[0].hints is Hints.REALIGNED}
    assert list(drawing_of(modes).panels) == ["modes"]
    assert "Right:" not in captions_of(drawing_of(modes))[0].text


def test_a_gap_is_drawn_where_a_round_trip_was_not_measured(tmp_path):
    drawing = drawing_of()
    gap = Curve(FULL, [nan, 0.5, nan], [nan] * 3, [nan] * 3)
    drawing = replace(drawing, curves=[gap])
    for draw_one in figures.FIGURES.values():
        plt.close(draw_one(drawing))
    page.write_page(drawing, [], [], tmp_path / "latency.html")


def without_numbers(text: str) -> str:
    return re.sub(r"n = \d+( to \d+)?", "n", " ".join(text.split()))


def test_the_docs_show_each_figure_with_its_caption():
    docs = (ROOT / "docs/latency.md").read_text()
    allowed: dict[str, set[str]] = {}
    for chosen, has_hints, num_repeats in product((True, False), (True, False), (1, 3)):
        times_s = {cell: t for cell, t in TIMES_S.items() if has_hints or cell[0].hints is Hints.REALIGNED}
        drawing = replace(drawing_of(times_s, num_repeats), lengths_are_chosen=chosen)
        for one in captions_of(drawing):
            allowed.setdefault(one.name, set()).add(without_numbers(f"*{one.title}.* {one.text}"))
    names = [path.stem for path in sorted((ROOT / "docs/figures").glob("latency-*.png"))]
    assert names
    for name in names:
        _, found, after = docs.partition(f"](figures/{name}.png)\n\n")
        assert found, f"docs/latency.md does not show {name}.png"
        assert without_numbers(after.partition("\n\n")[0]) in allowed[name]
