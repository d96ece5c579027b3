"""The look of printed figures: fonts, colours of the modes, files without dates."""

from __future__ import annotations

from specwhisper.types import Mode

DPI = 200
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "svg.hashsalt": "specwhisper",  # equal names in equal files
}
UNDATED: dict[str, dict[str, None]] = {  # two runs write equal bytes
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
COLOURS = {  # colour-blind safe (Okabe and Ito)
    Mode.TARGET_ONLY: "#000000",
    Mode.SYNC: "#D55E00",
    Mode.PIPELINED: "#E69F00",
    Mode.FULL: "#0072B2",
    Mode.ONE_PROCESS: "#009E73",
}
