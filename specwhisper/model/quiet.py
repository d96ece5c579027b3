"""Keep transformers' own progress bars and warnings off the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()  # both settings are the process's


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Call transformers in the context: it shows errors only.

    It shows no bar of loading weights. Bars of downloads stay, since those take minutes. The caller's own
    settings return afterwards.
    """
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging

    with _LOCK:
        verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        has_downloads = not are_progress_bars_disabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()  # and those of downloads with them
        if has_downloads:
            enable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if had_bars:
                logging.enable_progress_bar()
            if not has_downloads:
                disable_progress_bars()
