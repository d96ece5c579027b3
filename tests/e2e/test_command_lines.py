"""Errors on the command lines of processes."""

import socket

import pytest

from tests.e2e.processes import run
from tests.nightly import mostly_nightly

NOT_IN_THE_BASE = "array_api_compat,onnx,onnxruntime,tokenizers,torch,transformers,safetensors"


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
    command = ("specwhisper", "evaluate", "--folder", str(tmp_path))
    sentence = "error: evaluate needs jiwer: pip install 'specwhisper[evaluation]'."
    assert run("tests.without", "jiwer", *command) == (2, "", sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    mostly_nightly([("{", "bad.json is not JSON"), ("[1]", "bad.json must hold an object")]),
)
def test_an_invalid_setting_is_one_sentence_before_torch_is_loaded(text, sentence, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    command = ("specwhisper_target_server", "--device-map", str(tmp_path / "bad.json"))
    status, out, err = run("tests.without", "torch", *command)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("specwhisper-target-server: ")
    assert sentence in err
