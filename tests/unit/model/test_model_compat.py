"""An untried release is logged; the output of libraries stays away."""

import pytest
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging

from specwhisper.model import backends
from specwhisper.model.pytorch import compat


def test_another_release_is_logged_once(monkeypatch, caplog):
    backends.log_untried.cache_clear()
    backends.log_untried()
    assert not caplog.records
    backends.log_untried.cache_clear()
    monkeypatch.setattr(backends, "version", lambda package: "1.33.1")
    backends.log_untried()
    backends.log_untried()
    (record,) = caplog.records
    assert (record.message, record.release, record.tried) == ("onnxruntime was not tried", "1.33.1", "1.32")


@pytest.mark.parametrize("has_downloads", [True, False])
def test_transformers_is_quiet_and_the_callers_settings_return(has_downloads):
    try:
        logging.set_verbosity_warning()
        logging.enable_progress_bar()
        (enable_progress_bars if has_downloads else disable_progress_bars)()
        with pytest.raises(ValueError), compat.quiet_transformers():
            assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.ERROR, False)
            assert are_progress_bars_disabled() is not has_downloads
            raise ValueError
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.WARNING, True)
        assert are_progress_bars_disabled() is not has_downloads
    finally:
        enable_progress_bars()
