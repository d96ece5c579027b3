"""Errors have an HTTP status, settings are checked, a missing extra is named."""

import math
import subprocess
import sys

import pytest

from specwhisper import errors
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway import errors as gateway_errors
from specwhisper_gateway.config import API_KEY, GatewayConfig, KeysFlag
from specwhisper_gateway.errors import answer_to, body_of

TOKENS = Tokens({"0123456789abcdef": "anna"})


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"server": "nowhere"}, InvalidRequest),
        ({"max_connections": 0}, InvalidRequest),
        ({"session_timeout_s": math.nan}, InvalidRequest),
        ({"max_sessions_per_token": 0, "tokens": TOKENS}, InvalidRequest),
    ],
)
def test_invalid_settings_are_refused(settings, kind):
    with pytest.raises(kind):
        GatewayConfig(**settings)


@pytest.mark.parametrize("key", ["", "two words and more", "schlüssel-von-anna", "guessed"])
def test_invalid_api_keys_are_refused(key, monkeypatch):
    monkeypatch.setenv(API_KEY, key)
    with pytest.raises(InvalidRequest, match=r"\$SPECWHISPER_API_KEY is not a token of .* visible ASCII"):
        KeysFlag().tokens()


def test_a_key_and_tokens_together_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(API_KEY, "0123456789abcdef")
    file = tmp_path / "tokens"
    file.write_text("anna 0123456789abcdef\n")
    with pytest.raises(InvalidRequest, match="move the key into --tokens-file"):
        KeysFlag(tokens_file=file).tokens()


def test_an_api_key_is_not_stored_as_text(monkeypatch):
    monkeypatch.delenv(API_KEY, raising=False)
    assert KeysFlag().tokens() is None
    monkeypatch.setenv(API_KEY, "0123456789abcdef")
    tokens = KeysFlag().tokens()
    assert tokens.name_of("bearer 0123456789abcdef") == "api-key"
    assert "0123456789abcdef" not in repr(vars(tokens))


def test_the_error_names_a_missing_extra():
    script = (
        "import sys; sys.modules['uvicorn'] = None; from specwhisper_gateway.__main__ import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 2
    needs = "specwhisper-gateway: the gateway needs uvicorn: pip install 'specwhisper[gateway]'."
    assert run.stderr.strip() == needs


@pytest.mark.parametrize(
    ("error", "status", "kind", "close_code"),
    [
        (errors.InvalidAudio("A gap."), 400, "invalid_request_error", 1008),
        (gateway_errors.WrongApiKey("No key."), 401, "invalid_request_error", 1008),
        (errors.MessageTooLarge("Too much."), 413, "invalid_request_error", 1009),
        (errors.ServerFull("No room."), 429, "requests", 1013),
        (errors.TargetUnavailable("The target went away."), 503, "server_error", 1013),
        (errors.PairMismatch("They cannot work together."), 500, "server_error", 1011),
        (SpecWhisperError("Something else."), 500, "server_error", 1011),
    ],
)
def test_answers_to_errors(error, status, kind, close_code):
    assert (answer_to(error).status, answer_to(error).close_code) == (status, close_code)
    described = body_of(error)["error"]
    assert (described["type"], described["message"]) == (kind, str(error))


def test_an_unexpected_error_is_not_described():
    assert "secret" not in str(body_of(KeyError("secret")))
    assert answer_to(KeyError("secret")).close_code == 1011
