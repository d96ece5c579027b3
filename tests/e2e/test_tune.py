"""What ``specwhisper tune`` says of a link."""

from __future__ import annotations

import json

from tests.e2e.processes import run

FACTS = ("link", "draft", "target", "acceptance", "one-process", "target-only", "Run --mode")


def test_a_link_is_measured(start_server, tmp_path):
    target = start_server("target_server", "--model", "demo-target", "--port", "0", "--threads", "1")
    figures = tmp_path / "figures.json"
    arguments = ("--target", target.address, "--threads", "1", "--seconds", "0", "--json", str(figures))
    status, out, err = run("client.cli", "tune", *arguments)
    assert status == 0, err
    for fact in FACTS:
        assert fact in out
    told = json.loads(figures.read_text())
    assert told["estimates"]["pass_ns"] > 0 < told["estimates"]["draft_ns"]
    assert set(told["seconds_per_token"]) == {"target-only", "sync", "full"}
    assert told["mode"] in ("full", "target-only")


def test_a_target_that_is_not_there_is_one_sentence():
    status, out, err = run("client.cli", "tune", "--target", "127.0.0.1:9", "--seconds", "0")
    assert (status, out) == (1, "")
    assert "No target server answered at 127.0.0.1:9" in err
    assert "Traceback" not in err
