"""Film docs/figures/page.gif, or take its pictures: the gateway's page while it transcribes a bundled sample.

make demo-web MODEL=real                          # in another terminal
python scripts/film_page.py http://localhost:8000/ docs/figures/page.gif
python scripts/film_page.py http://localhost:8000/ docs/figures/page.gif --pictures
"""

from __future__ import annotations

import asyncio
import io
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from PIL import Image
from playwright.async_api import Page, ViewportSize, async_playwright

SAMPLE = "01_phone_call"
LATENCY_MS = 250  # so that one sees the way to the target and back
SIZE = {"width": 760, "height": 1000}
FROM_S, TO_S = 3.0, 13.0  # of the session
FRAMES_PER_S = 8
LAST_S = 2.5  # that the last frame stays
NUM_COLORS = 128
PICTURES: dict[str, tuple[ViewportSize, bool]] = {  # size, and whether the target races alone, by suffix
    "race": ({"width": 1000, "height": 720}, True),
    "phone": ({"width": 390, "height": 760}, False),
}
PICTURE_S = 10.0  # of the session


@asynccontextmanager
async def transcribing(url: str, size: ViewportSize, *, races: bool = False) -> AsyncIterator[Page]:
    """Open the page and begin with the sample."""
    installed = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    async with async_playwright() as api:
        browser = await api.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        page = await browser.new_page(viewport=size, color_scheme="light", device_scale_factor=1)
        await page.goto(url)
        await page.select_option("#sample", SAMPLE)
        await page.locator("#latency").fill(str(LATENCY_MS))
        if races:
            await page.locator("#race").check()
        await page.locator("#try-sample").click()
        yield page
        await browser.close()


async def take_pictures(url: str, output: Path) -> None:
    """Write pictures of the race, and of the page on a phone."""
    for name, (size, races) in PICTURES.items():
        async with transcribing(url, size, races=races) as page:
            await page.wait_for_timeout(1000 * PICTURE_S)
            await page.evaluate("scrollTo(0, 0)")
            await page.screenshot(path=output.with_name(f"{output.stem}-{name}.png"))


async def film(url: str) -> list[tuple[float, Image.Image]]:
    """Return frames of the page and their times in seconds."""
    async with transcribing(url, SIZE) as page:
        started_s, frames = monotonic(), []
        while (at_s := monotonic() - started_s) < TO_S:
            if at_s < FROM_S:
                await page.wait_for_timeout(1000 * (FROM_S - at_s))
                continue
            frames.append((at_s, await picture(page)))
            next_s = started_s + FROM_S + len(frames) / FRAMES_PER_S
            await page.wait_for_timeout(max(1, 1000 * (next_s - monotonic())))
    return frames


async def picture(page: Page) -> Image.Image:
    """Return the part of the page between controls and figures."""
    top: Any = await page.locator("#link").bounding_box()
    bottom: Any = await page.locator(".legend").bounding_box()
    height = bottom["y"] + bottom["height"] - top["y"]
    clip = {"x": 0, "y": top["y"] - 8, "width": SIZE["width"], "height": height + 16}
    return Image.open(io.BytesIO(await page.screenshot(clip=clip))).convert("RGB")


def save(frames: list[tuple[float, Image.Image]], output: Path) -> None:
    """Write frames as an animation that repeats."""
    times_s = [at_s for at_s, _ in frames]
    shown_ms = [1000 * (b - a) for a, b in itertools.pairwise(times_s)] + [1000 * LAST_S]
    palette = frames[-1][1].quantize(NUM_COLORS, method=Image.Quantize.MAXCOVERAGE)
    pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for _, picture in frames]
    pictures[0].save(
        output, save_all=True, append_images=pictures[1:], duration=shown_ms, loop=0, optimize=True
    )


def main(
    url: Annotated[str, typer.Argument()],
    output: Annotated[Path, typer.Argument(dir_okay=False)],
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Write OUTPUT-race.png and OUTPUT-phone.png instead.")
    ] = False,
) -> None:
    """Film the page."""
    if pictures:
        asyncio.run(take_pictures(url, output))
    else:
        save(asyncio.run(film(url)), output)


if __name__ == "__main__":
    typer.run(main)
