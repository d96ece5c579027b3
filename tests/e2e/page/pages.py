"""Open the gateway's page in a browser whose microphone plays a recording."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright: pip install '.[dev]'")

INSTALLED = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Opened:
    """A page; ``warnings`` are those of the browser's console."""

    page: Any
    context: Any
    warnings: list[str] = field(default_factory=list)

    def locator(self, selector: str) -> Any:
        return self.page.locator(selector)

    async def status_is(self, text: str) -> None:
        await playwright.expect(self.locator("#status")).to_contain_text(text, timeout=90_000)

    async def words(self, status: str) -> list[str]:
        return await self.locator(f"#transcript .word.{status}").all_inner_texts()


@asynccontextmanager
async def browser(microphone: Path | None = None, *options: str) -> AsyncIterator[Any]:
    """Start a headless Chromium; skip the test if none is installed."""
    options = ("--no-sandbox", *options)
    if microphone is not None:
        options += (
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}%noloop",
        )
    installed = next(filter(None, map(shutil.which, INSTALLED)), None)
    async with playwright.async_playwright() as api:
        try:
            chromium = await api.chromium.launch(executable_path=installed, args=options)
        except playwright.Error as error:
            pytest.skip(f"no Chromium here (playwright install chromium): {str(error).splitlines()[0]}")
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def opened(chromium: Any, url: str, **settings: Any) -> AsyncIterator[Opened]:
    """Open a page; a warning in its console fails the test."""
    context = await chromium.new_context(**settings)
    page = await context.new_page()
    found = Opened(page, context)
    page.on("console", lambda entry: entry.type in ("error", "warning") and found.warnings.append(entry.text))
    page.on("pageerror", lambda error: found.warnings.append(str(error)))
    try:
        await page.goto(url)
        yield found
        assert found.warnings == []
    finally:
        await context.close()


async def run(page: Opened, module: str, name: str, script: str) -> Any:
    """Run a script with a module's export of this name."""
    return await page.page.evaluate(
        f"async () => {{ const {{ {name} }} = await import('/page/{module}'); {script} }}"
    )


async def faults(page: Opened) -> list[str]:
    """Return what axe-core finds wrong with a page's accessibility."""
    found = await Axe().run(page.page)
    return [
        f"{one['id']}: {node['html'][:100]}: {node['failureSummary']}"
        for one in found.response["violations"]
        for node in one["nodes"]
    ]
