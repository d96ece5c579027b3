"""Run the cells of examples/tour.ipynb in a fresh process and save what they print.

python -m scripts.notebook
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "examples" / "tour.ipynb"
END_OF_CELL = "\f\n"


def cells_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed_by(notebook: dict[str, Any]) -> list[str]:
    """Run all cells in one process, in which a warning is an error; return what each of them prints."""
    cells = ["".join(cell["source"]) + f"\nprint({END_OF_CELL!r}, end='')" for cell in cells_of(notebook)]
    command = [sys.executable, "-W", "error", "-c", "\n".join(cells)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise RuntimeError(f"The notebook's cells ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout.split(END_OF_CELL)[:-1]


def saved_in(notebook: dict[str, Any]) -> list[str]:
    return ["".join(line for each in cell["outputs"] for line in each["text"]) for cell in cells_of(notebook)]


def main() -> None:
    notebook = json.loads(TOUR.read_text(encoding="utf-8"))
    for number, (cell, text) in enumerate(zip(cells_of(notebook), printed_by(notebook), strict=True), 1):
        lines = text.splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    TOUR.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
