"""Keys are checked, unexpected errors stay secret, a missing extra is named."""

import subprocess
import sys

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper_gateway.config import API_KEY, KeysFlag
from specwhisper_gateway.errors import answer_to, body_of


@pytest.mark.parametrize("key", ["", "guessed"])
def test_invalid_api_keys_are_refused(key, monkeypatch):
    monkeypatch.setenv(API_KEY, key)
    with pytest.raises(InvalidRequest, match=r"\$SPECWHISPER_API_KEY is not a token of .* visible ASCII"):
        KeysFlag().tokens()


def test_a_key_in_the_environment_is_the_only_one(tmp_path, monkeypatch):
    monkeypatch.delenv(API_KEY, raising=False)
    assert KeysFlag().tokens() is None
    monkeypatch.setenv(API_KEY, "0123456789abcdef")
    assert KeysFlag().tokens().name_of("bearer 0123456789abcdef") == "api-key"
    file = tmp_path / "tokens"
    file.write_text("anna 0123456789abcdef\n")
    with pytest.raises(InvalidRequest, match="move the key into --tokens-file"):
        KeysFlag(tokens_file=file).tokens()


def test_the_error_names_a_missing_extra():
    script = (
        "import sys; sys.modules['uvicorn'] = None; from specwhisper_gateway.__main__ import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 2
    needs = "specwhisper-gateway: the gateway needs uvicorn: pip install 'specwhisper[gateway]'."
    assert run.stderr.strip() == needs


def test_an_unexpected_error_is_not_described():
    assert "secret" not in str(body_of(KeyError("secret")))
    assert answer_to(KeyError("secret")).close_code == 1011
