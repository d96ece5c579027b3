"""Write a sweep as one self-contained, interactive page."""

from __future__ import annotations

from html import escape
from math import log2
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from experiments.latency.report.captions import captions_of
from experiments.latency.report.drawing import (
    GAMMA,
    HEAT,
    HEAT_LIMIT,
    HEAT_TICKS,
    PARTS,
    PER_TOKEN,
    PREDICTED,
    PREDICTION_BOUNDS,
    RATIO_TICKS,
    ROUND_TRIP,
    STYLES,
    TARGET_ONLY,
    Drawing,
    percent,
)

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; } figure { margin: 2.5rem 0; }
figcaption { max-width: 52rem; } .facts { color: #666; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 0.8rem; }
"""


def write_page(drawing: Drawing, facts: list[str], bars: list[str], path: Path) -> None:
    """Write the page."""
    parts = []
    for number, caption in enumerate(captions_of(drawing), 1):
        plot = FIGURES[caption.name](drawing).to_html(
            full_html=False,
            include_plotlyjs=number == 1,
            config={"displaylogo": False},
            div_id=caption.name,  # otherwise random
        )
        title, text = escape(caption.title), escape(caption.text)
        parts.append(
            f"<figure>{plot}<figcaption><b>Figure {number}. {title}.</b> {text}</figcaption></figure>"
        )
    listed = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    held = escape("\n".join(bars))
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Round trip and draft length</title>"
        f"<style>{STYLE}</style><h1>Round trip and draft length</h1><p>{escape(drawing.title)}</p>"
        f"<ul class='facts'>{listed}</ul>{''.join(parts)}<h2>Bars</h2><pre>{held}</pre></html>\n"
    )


def _panels(titles: list[str], **layout: Any) -> go.Figure:
    """Return plots beside each other that share the vertical axis; a legend entry shows and hides an arm."""
    figure = make_subplots(1, len(titles), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    legend = {"orientation": "h", "y": -0.28, "groupclick": "togglegroup"}
    margin = {"t": 40, "r": 10, "b": 60}
    figure.update_layout(template="simple_white", height=520, margin=margin, legend=legend, **layout)
    return figure


def _round_trips(figure: go.Figure, drawing: Drawing) -> None:
    """Label evenly spaced round trips in forward passes and in milliseconds."""
    labels = [f"{step}<br>{ms}" for step, ms in zip(drawing.step_ticks(), drawing.ms_ticks(), strict=True)]
    title = f"{ROUND_TRIP}<br>{drawing.ms_label}"
    figure.update_xaxes(
        title=title, title_font_size=12, tickvals=list(range(len(labels))), ticktext=labels, tickangle=0
    )


def _ratio_axis(title: str) -> dict[str, Any]:
    labels = [f"{tick:g}" for tick in RATIO_TICKS]
    return {"title": title, "type": "log", "tickvals": RATIO_TICKS, "ticktext": labels}


def _curves(drawing: Drawing) -> go.Figure:
    figure = _panels(list(drawing.panels))
    named = set()
    for column, curves in enumerate(drawing.panels.values(), 1):
        for curve in curves:
            style, name = STYLES[curve.arm], str(curve.arm)
            figure.add_scatter(
                x=list(range(len(curve.values))),
                y=curve.values,
                error_y={
                    "array": [high - value for high, value in zip(curve.high, curve.values, strict=True)],
                    "arrayminus": [value - low for low, value in zip(curve.low, curve.values, strict=True)],
                    "visible": drawing.has_intervals,
                    "thickness": 1,
                    "width": 3,
                },
                name=name,
                legendgroup=name,
                showlegend=name not in named,
                mode="lines+markers",
                line={"color": style.colour, "dash": style.dash},
                marker={"symbol": style.marker, "size": 7},
                hovertemplate="%{y:.3f}",
                row=1,
                col=column,
            )
            named.add(name)
    _round_trips(figure, drawing)
    figure.update_yaxes(_ratio_axis(""))
    figure.update_yaxes(title=PER_TOKEN, col=1)
    figure.add_hline(1, line={"color": STYLES[TARGET_ONLY].colour, "width": 1})
    figure.update_layout(hovermode="x unified", legend_title_text=drawing.drawn_repeats)
    return figure


def _heat_maps(drawing: Drawing) -> go.Figure:
    figure = _panels([str(grid.arm) for grid in drawing.grids])
    for column, grid in enumerate(drawing.grids, 1):
        figure.add_heatmap(
            y=[str(gamma) for gamma in grid.gammas],
            z=[[log2(value) for value in row] for row in grid.values],
            text=[["" if value != value else f"{value:.2f}" for value in row] for row in grid.values],
            texttemplate="%{text}",
            hovertemplate=f"{grid.arm}, gamma %{{y}}: %{{text}}<extra></extra>",
            coloraxis="coloraxis",
            row=1,
            col=column,
        )
    _round_trips(figure, drawing)
    figure.update_yaxes(type="category")
    figure.update_yaxes(title=GAMMA, col=1)
    limit = log2(HEAT_LIMIT)
    ticks = {"tickvals": list(map(log2, HEAT_TICKS)), "ticktext": [f"{tick:g}" for tick in HEAT_TICKS]}
    title = {"text": f"{PER_TOKEN}, {drawing.set_repeats}", "side": "right"}
    figure.update_coloraxes(
        colorscale=list(HEAT), cmin=-limit, cmax=limit, colorbar={"title": title, **ticks}
    )
    return figure


def _best_gammas(drawing: Drawing) -> go.Figure:
    figure = _panels(list(map(str, drawing.best_gammas)))
    for column, (arm, found) in enumerate(drawing.best_gammas.items(), 1):
        for name, best in found.items():
            is_measured = name == "measured"
            colour, ties = STYLES[arm].colour if is_measured else PREDICTED, best.placed(name)
            figure.add_scatter(  # None separates the bars
                x=[at for x, tie in ties for at in (*[x] * len(tie.tied), x)],
                y=[gamma for _, tie in ties for gamma in (*tie.tied, None)],
                mode="lines+markers",
                line={"color": colour, "width": 4},
                marker={"symbol": "line-ew-open", "size": 9},
                opacity=0.45,
                hoverinfo="skip",
                showlegend=False,
                row=1,
                col=column,
            )
            figure.add_scatter(
                x=[x for x, _ in ties],
                y=[tie.best for _, tie in ties],
                customdata=[", ".join(map(str, tie.tied)) for _, tie in ties],
                mode="markers",
                marker={
                    "color": colour,
                    "symbol": "circle" if is_measured else "diamond-open",
                    "size": 9,
                },
                name=f"{arm}, {name}",
                hovertemplate=f"{name}: %{{y}}, ties: %{{customdata}}<extra></extra>",
                row=1,
                col=column,
            )
    _round_trips(figure, drawing)
    figure.update_yaxes(type="log", tickvals=[2**power for power in range(8)])
    figure.update_yaxes(title=f"best {GAMMA}", col=1)
    figure.update_layout(legend_title_text=drawing.set_repeats)
    return figure


def _predictions(drawing: Drawing) -> go.Figure:
    figure = _panels(
        [f"{name}, within {percent(PREDICTION_BOUNDS[name])} shaded" for name in drawing.predictions]
    )
    named = set()
    for column, (kind, found) in enumerate(drawing.predictions.items(), 1):
        bound, line = PREDICTION_BOUNDS[kind], list(drawing.prediction_range)
        edges = [end * (1 + bound) for end in line] + [end * (1 - bound) for end in line[::-1]]
        quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "row": 1, "col": column}
        figure.add_scatter(
            x=line + line[::-1], y=edges, fill="toself", fillcolor="#DDDDDD", line={"width": 0}, **quiet
        )
        figure.add_scatter(x=line, y=line, line={"color": "#888888", "width": 1}, **quiet)
        for dots in found:
            style, name = STYLES[dots.arm], str(dots.arm)
            figure.add_scatter(
                x=dots.measured,
                y=dots.predicted,
                customdata=dots.cells,
                name=name,
                legendgroup=name,
                showlegend=name not in named,
                mode="markers",
                marker={"color": style.colour, "symbol": f"{style.marker}-open", "size": 6},
                hovertemplate="%{customdata}<br>measured %{x:.3f}, predicted %{y:.3f}<extra></extra>",
                row=1,
                col=column,
            )
            named.add(name)
    figure.update_xaxes(_ratio_axis(f"measured {PER_TOKEN}"))
    figure.update_yaxes(_ratio_axis(""))
    figure.update_yaxes(title=f"predicted {PER_TOKEN}", col=1)
    figure.update_layout(legend_title_text=drawing.repeats)
    return figure


def _time_parts(drawing: Drawing) -> go.Figure:
    bars, figure = drawing.time_parts, _panels([""], barmode="stack")
    for name, values in bars.parts.items():
        figure.add_bar(x=values, y=bars.labels, name=name, orientation="h", marker={"color": PARTS[name]})
    figure.add_vline(1, line={"color": STYLES[TARGET_ONLY].colour, "width": 1})
    figure.update_xaxes(title=PER_TOKEN)
    figure.update_layout(legend_title_text=drawing.drawn_repeats, legend_traceorder="normal")
    figure.update_yaxes(autorange="reversed", title="mode, round trip in target-only forward passes")
    return figure


FIGURES = {
    "latency-modes": _curves,
    "latency-gamma": _heat_maps,
    "latency-best-gamma": _best_gammas,
    "latency-predictions": _predictions,
    "latency-where": _time_parts,
}
