"""Programs written for other Whispers run whole, and print what the target alone writes."""

import re

import pytest

from tests.doors.conftest import PROGRAMS, alone_with

pytestmark = pytest.mark.timeout(600)
KEPT = re.compile(
    r"gamma +(\d+): +\d+\.\d\d s, (\d+) of (\d+) drafted tokens kept, .* tokens per forward pass"
)


def are_kept(lines: list[str]) -> bool:
    """Return whether there is a line for each gamma, and no more tokens are kept than drafted."""
    found = [KEPT.fullmatch(line) for line in lines]
    assert [line[1] for line in found] == ["5", "10", "20"]
    return all(0 <= int(line[2]) <= int(line[3]) for line in found)


def test_every_program_is_tried():
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in PROGRAMS.glob("*.py")} <= tests


def test_openai_whisper(run, alone):
    assert run("openai_whisper") == [f"{alone} {alone['segments'][0]['words'][0]['start']}"]


def test_openai_defaults(run, alone):
    assert run("openai_defaults") == [str(alone)]


def test_results(run, alone):
    first, second, stats, spoken, keys, saved = run("results")
    assert [first, second] == [f"talk.mp3 {alone}", f"answer.mp3 {alone}"]
    rate, tokens_per_iteration = map(float, stats.split())
    assert 0 <= rate <= 1 <= tokens_per_iteration
    assert float(spoken.split()[0]) == pytest.approx(
        sum(each.end_s - each.start_s for each in alone.segments)
    )
    assert keys == f"{alone.duration_s} True {sorted(alone.keys())}"
    assert saved == f"{alone.words[0].text} {rate}"


def test_servers(run, alone, server):
    (line,) = run("servers", {"127.0.0.1:50051": server})
    assert line == f"{alone} {alone['segments'][0]['words'][0]['start']}"


def test_transformers_pipeline(run, alone):
    first = alone.segments[0]
    assert run("transformers_pipeline") == [f" {alone} {(first.start_s, first.end_s)}"]


def test_transformers_inputs(run, alone):
    word = alone_with(word_times="model").words[0]
    assert run("transformers_inputs") == [f"{(word.start_s, word.end_s)}  {alone}"] * 3


def test_faster_whisper(run, alone):
    language, *lines = run("faster_whisper")
    assert language == "en"
    assert lines
    for line in lines:
        start_s, end_s, text = line.split(maxsplit=2)
        assert 0 <= float(start_s) <= float(end_s) <= alone.duration_s
        assert text


def test_draft_lengths(run):
    *compared, line = run("draft_lengths")
    assert are_kept(compared)
    assert re.fullmatch(r"\d+ of \d+ drafted tokens kept", line)


def test_text_models(run, text_pair):
    stated = ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "meta-llama/Llama-2-7b-hf", "max_tokens=100")
    shorter = dict(zip(stated, (*text_pair, "max_tokens=20"), strict=True))
    *text, line, five, ten, twenty = run("text_models", shorter)
    assert "".join(text)
    assert re.fullmatch(r"\d+ of \d+ drafted tokens kept", line)
    assert are_kept([five, ten, twenty])
