"""Write a sweep as one self-contained, interactive page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from experiments.latency.report.drawing import BAND, PARTS, Drawing

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; } p { max-width: 46rem; }
small, .facts { color: #666; } pre { white-space: pre-wrap; background: #f6f6f6; padding: 0.8rem; }
"""
ROUND_TRIP = "round trip, in target-only forward passes"
PER_TOKEN = "time per token relative to target-only"


def write_page(drawing: Drawing, facts: list[str], bars: list[str], path: Path) -> None:
    """Write the page."""
    figures = [
        (
            "Time per token by mode",
            "Solid: measured, each mode with its best draft length, full with its own choice; bands are "
            f"{BAND}. Dashed: the service's engines in simulated time. Dotted: closed forms, of which sync "
            "and pipelined have none where they choose their length.",
            _curves(drawing),
        ),
        (
            "Round trip against draft length",
            "Time per token relative to target-only on the same link: blue is faster, red slower.",
            _heat_maps(drawing),
        ),
        (
            "The best draft length",
            "Measured among the lengths tried, and predicted.",
            _best_gamma(drawing),
        ),
        (
            "Where the time goes",
            "Where draft, network and target take turns, their times add up; where they overlap, the rest is "
            "waiting.",
            _time_parts(drawing),
        ),
    ]
    parts = []
    for number, (title, text, figure) in enumerate(figures):
        plot = figure.to_html(full_html=False, include_plotlyjs=number == 0, config={"displaylogo": False})
        parts.append(f"<h2>{escape(title)}</h2><p>{escape(text)}</p>{plot}")
    listed = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    held = escape("\n".join(bars))
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Round trip and draft length</title>"
        f"<style>{STYLE}</style><h1>Round trip and draft length</h1><p>{escape(drawing.title)}</p>"
        f"<ul class='facts'>{listed}</ul>{''.join(parts)}<h2>Bars</h2><pre>{held}</pre></html>\n"
    )


def _layout(**more: Any) -> dict[str, Any]:
    return {"template": "simple_white", "height": 460, "margin": {"t": 30, "r": 10}, **more}


def _doubling(title: str) -> dict[str, Any]:
    """Return a logarithmic axis with ticks at powers of two."""
    return {"title": title, "type": "log", "tickvals": [2.0**power for power in range(-4, 6)]}


def _round_trip_axis(steps: list[float]) -> dict[str, Any]:
    """Return a categorical axis of round trips, which has room for 0."""
    ticks = sorted(set(steps))
    return {"title": ROUND_TRIP, "tickvals": list(range(len(ticks))), "ticktext": [f"{s:.3g}" for s in ticks]}


def _curves(drawing: Drawing) -> go.Figure:
    figure = go.Figure()
    ticks = sorted({step for curve in drawing.measured for step in curve.steps})
    for curve in drawing.measured:
        places = [ticks.index(step) for step in curve.steps]
        if curve.has_band:
            red, green, blue = hex_to_rgb(curve.colour)
            figure.add_scatter(
                x=places + places[::-1],
                y=curve.high + curve.low[::-1],
                fill="toself",
                fillcolor=f"rgba({red}, {green}, {blue}, 0.15)",
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                legendgroup=curve.name,
                showlegend=False,
            )
        figure.add_scatter(
            x=places,
            y=curve.values,
            name=curve.name,
            legendgroup=curve.name,
            mode="lines+markers" if curve.is_networked else "lines",
            line={"color": curve.colour},
            customdata=list(zip(curve.low, curve.high, strict=True)),
            hovertemplate="%{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]",
        )
    for curves, dash, name in (
        (drawing.simulated, "dash", "simulated"),
        (drawing.closed_form, "dot", "closed form"),
    ):
        for curve in curves:
            figure.add_scatter(
                x=[ticks.index(step) for step in curve.steps],
                y=curve.values,
                name=f"{curve.name}, {name}",
                mode="lines",
                line={"color": curve.colour, "dash": dash, "width": 1},
                hovertemplate="%{y:.3f}",
            )
    figure.update_layout(
        **_layout(xaxis=_round_trip_axis(ticks), yaxis=_doubling(PER_TOKEN), hovermode="x unified")
    )
    return figure


def _heat_maps(drawing: Drawing) -> go.Figure:
    """Return one heat map, with buttons for the others."""
    figure = go.Figure()
    for number, grid in enumerate(drawing.grids):
        figure.add_heatmap(
            x=[f"{step:.3g}" for step in grid.steps],
            y=[str(gamma) for gamma in grid.gammas],
            z=grid.values,
            zmid=1,
            zmin=0.25,
            zmax=1.75,
            colorscale="RdBu_r",
            texttemplate="%{z:.2f}",
            visible=number == len(drawing.grids) - 1,
            hovertemplate=f"{grid.name}, round trip %{{x}}, gamma %{{y}}: %{{z:.3f}}<extra></extra>",
        )
    buttons = [
        {"label": grid.name, "method": "update", "args": [{"visible": [g is grid for g in drawing.grids]}]}
        for grid in drawing.grids
    ]
    menu = {"buttons": buttons, "type": "buttons", "direction": "right", "x": 0, "y": 1.12, "xanchor": "left"}
    menu["active"] = len(buttons) - 1
    axes = {
        "xaxis": {"title": ROUND_TRIP, "type": "category"},
        "yaxis": {"title": "gamma", "type": "category"},
    }
    figure.update_layout(**_layout(updatemenus=[menu] if buttons else [], **axes))
    return figure


def _best_gamma(drawing: Drawing) -> go.Figure:
    figure = go.Figure()
    curves = [*drawing.best_measured, *drawing.best_predicted]
    ticks = sorted({step for curve in curves for step in curve.steps})
    for found, dash, suffix in (
        (drawing.best_measured, "solid", "measured"),
        (drawing.best_predicted, "dash", "predicted"),
    ):
        for curve in found:
            figure.add_scatter(
                x=[ticks.index(step) for step in curve.steps],
                y=curve.values,
                name=f"{curve.name}, {suffix}",
                line={"color": curve.colour, "dash": dash},
            )
    figure.update_layout(**_layout(xaxis=_round_trip_axis(ticks), yaxis=_doubling("best draft length")))
    return figure


def _time_parts(drawing: Drawing) -> go.Figure:
    bars, figure = drawing.time_parts, go.Figure()
    for name, values in bars.parts.items():
        figure.add_bar(x=values, y=bars.labels, name=name, orientation="h", marker={"color": PARTS[name]})
    figure.update_layout(
        **_layout(barmode="stack", xaxis={"title": PER_TOKEN}, yaxis={"autorange": "reversed"})
    )
    return figure
