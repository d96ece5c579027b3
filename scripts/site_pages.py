"""Add pages to the site of docs/: the README as its first page, and other files that pages link to.

Links are written as they work in the repository. Those that leave docs/ are changed to the pages made here,
or become plain text if there is none.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "specwhisper/demo/README.md": "demo-pair.md",
    "experiments/demo_pair/README.md": "demo-pair-training.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where their files are on the site."""
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def lead(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path not in PAGES and not path.startswith("docs/"):
            return text
        return f"[{text}]({PAGES.get(path, path.removeprefix('docs/'))}{anchor})"

    return LINK.sub(lead, markdown)
