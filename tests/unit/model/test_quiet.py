"""transformers' bars and warnings stay off the terminal while it loads; downloads keep their bars."""

import pytest
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging

from specwhisper.model.pytorch.compat import quiet_transformers


@pytest.fixture
def settings():
    """Return what the process has set now; the test's changes are undone."""

    def now() -> tuple[int, bool, bool]:
        return logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled()

    verbosity, has_bars, has_no_downloads = now()
    yield now
    logging.set_verbosity(verbosity)
    (logging.enable_progress_bar if has_bars else logging.disable_progress_bar)()
    (disable_progress_bars if has_no_downloads else enable_progress_bars)()


@pytest.mark.parametrize("has_bars", [True, False])
@pytest.mark.parametrize("has_downloads", [True, False])
def test_the_callers_settings_return(settings, has_bars, has_downloads):
    logging.set_verbosity_warning()
    (logging.enable_progress_bar if has_bars else logging.disable_progress_bar)()
    (enable_progress_bars if has_downloads else disable_progress_bars)()
    before = settings()
    with pytest.raises(ValueError), quiet_transformers():
        assert settings() == (logging.ERROR, False, not has_downloads)
        raise ValueError
    assert settings() == before
