"""Help, versions and errors on the command lines."""

import socket

import pytest

from specwhisper import __version__
from tests.e2e.processes import run
from tests.nightly import mostly_nightly

NOT_IN_THE_BASE = "array_api_compat,onnx,onnxruntime,tokenizers,torch,transformers,safetensors"
MODULES = ("specwhisper_target_server", "specwhisper_draft_server")


SERVER_FLAGS = ("--port", "--insecure", "--max-sessions", "--drain-timeout", "--log-format")
CLIENT_FLAGS = ("--temperature-increment-on-fallback", "--condition-on-previous-text", "--output-format")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        *(((module,), SERVER_FLAGS) for module in MODULES),
        (("specwhisper_client.cli.main", "transcribe"), CLIENT_FLAGS),
    ],
)
def test_help_fits_a_terminal_and_lists_every_option(command, flags):
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert [flag for flag in flags if flag not in out] == []


@pytest.mark.parametrize("module", [*MODULES, "specwhisper_client.cli.main"])
def test_every_program_has_a_version_flag(module):
    assert run(module, "--version") == (0, f"specwhisper {__version__}\n", "")


@pytest.mark.parametrize(
    ("module", "extra"),
    mostly_nightly([("specwhisper_target_server", "server"), ("specwhisper_draft_server", "draft")]),
)
def test_a_server_without_its_packages_names_the_extra(module, extra):
    status, out, err = run("tests.without", NOT_IN_THE_BASE, module, "--help")
    assert (status, err) == (0, "")
    status, out, err = run("tests.without", NOT_IN_THE_BASE, module)
    assert (status, out) == (2, "")
    assert f"specwhisper[{extra}]" in err
    assert "Traceback" not in err


def test_a_taken_port_is_one_sentence_without_lines_of_grpcs():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ("specwhisper_draft_server", "--mode", "target-only", "--port", str(port))
        status, out, err = run(*command, "--log-level", "error")
    name = "specwhisper-draft-server"
    assert (status, out, err) == (1, "", f"{name}: Cannot listen on 127.0.0.1:{port}: the port is taken.")


def test_evaluate_without_its_packages_names_the_extra(tmp_path):
    command = ("specwhisper_client.cli.main", "evaluate", "--folder", str(tmp_path))
    sentence = "error: evaluate needs jiwer: pip install 'specwhisper[evaluation]'."
    assert run("tests.without", "jiwer", *command) == (2, "", sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    mostly_nightly(
        [
            (
                "specwhisper_target_server --host 0.0.0.0",
                "Listening on '0.0.0.0' would open a server without encryption",
            ),
            (
                "specwhisper_draft_server --mode one-process",
                "--mode is 'one-process': choose from",
            ),
            ("specwhisper_target_server --device-map {folder}/bad.json", "bad.json is not JSON"),
            (
                "specwhisper_draft_server --host ::",
                "Listening on '::' would open a server without encryption",
            ),
            ("specwhisper_draft_server --target nowhere", "Address 'nowhere' is not HOST:PORT"),
            ("specwhisper_target_server --device-map {folder}/list.json", "list.json must hold an object"),
        ],
        by_day=3,
    ),
)
def test_an_invalid_setting_is_one_sentence_at_once(arguments, sentence, tmp_path):
    """Each is reported before torch is loaded."""
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    status, out, err = run(*arguments.format(folder=tmp_path).split())
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith(f"{arguments.split()[0].replace('_', '-')}: ")
    assert sentence in err
