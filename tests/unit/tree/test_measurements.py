"""The page of all figures follows from its data files, which name their conditions."""

import tomllib

import pytest

from scripts.measurements import DATA, PAGE, page

FILES = sorted(DATA.glob("*.toml"))


def test_the_page_is_that_of_its_data():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.measurements"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_names_its_conditions_and_its_rows_are_complete(path):
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {"title", "machine", "models", "date", "reading"} <= data.keys()
    assert "tables" in data or "notes" in data
    for table in data.get("tables", ()):
        assert "latency" in table or {len(row) for row in table["rows"]} == {len(table["columns"])}
