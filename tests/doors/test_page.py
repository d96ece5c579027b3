"""The programs of docs/migrating.md are those that are tested."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")


def test_the_page_has_the_same_programs():
    shown = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    files = [path.read_text() for folder in ("before", "programs") for path in HERE.glob(f"{folder}/*.py")]
    assert sorted(shown) == sorted(files)


def test_a_program_of_another_library_is_followed_by_ours():
    names = {path.stem for path in HERE.glob("before/*.py")}
    assert len(names) == 3
    for name in names:
        before, after = ((HERE / folder / f"{name}.py").read_text() for folder in ("before", "programs"))
        assert before.startswith("# before\n")
        assert f"```python\n{before}```\n\n```python\n{after}```\n" in PAGE
