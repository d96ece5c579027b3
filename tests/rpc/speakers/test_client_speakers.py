"""Speakers on the command line."""

import json

import pytest
import soundfile

from specwhisper.errors import DiarizationFailed
from specwhisper_speakers.diarizer import Diarizer
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.terminals import Streams, run_cli
from tests.speaker_models import HIGH_HZ, LOW_HZ, RATE, tones


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "talk.wav"
    soundfile.write(path, tones([(0.0, 1.5, HIGH_HZ), (1.5, 2.5, LOW_HZ)], 2.5), RATE)
    return path


async def test_json_is_openais(recording, speaker_models):
    service = ScriptedTranscription()
    async with serving(service) as address:
        arguments = ("--server", address, "--diarize", speaker_models, "--num-speakers", 2)
        more = ("-f", "diarized_json", "--hallucination-silence-threshold", 2)  # which needs words
        status, out, err = await run_cli("transcribe", recording, *arguments, *more)
    assert status == 0, err
    assert [each["speaker"] for each in json.loads(out)["segments"]] == ["A", "B"]
    assert service.config.config.decoding.word_timestamps


async def test_a_terminal_has_a_colour_for_each_speaker(recording, speaker_models):
    streams = Streams(True)
    async with serving(ScriptedTranscription()) as address:
        assert await streams.run([recording], address, diarizer=Diarizer(speaker_models))
    assert "\x1b[1;36mA: \x1b[0m\x1b[36mHello there." in streams.out
    assert "\x1b[1;35mB: \x1b[0m\x1b[35mBye." in streams.out


@pytest.mark.parametrize("batch_size", [1, 2])
async def test_a_text_whose_speakers_are_not_found_is_written_without_them(
    recording, speaker_models, tmp_path, monkeypatch, batch_size
):
    async def fail(self, decode):
        raise DiarizationFailed("The process that finds speakers has ended: exit status -9.")

    monkeypatch.setattr(Diarizer, "turns_of", fail)
    streams, out = Streams(), tmp_path / "out"
    async with serving(ScriptedTranscription()) as address:
        job = {"diarizer": Diarizer(speaker_models), "batch_size": batch_size, "output_dir": out}
        assert not await streams.run([recording], address, **job)
    assert (out / "talk.txt").read_text() == "Hello there.\nBye.\n"
    assert "exit status -9. The transcript has no speakers: delete it" in " ".join(streams.err.split())


async def test_a_speaker_with_a_sample_is_named(recording, speaker_models, tmp_path):
    soundfile.write(tmp_path / "bob.wav", tones([(0.0, 2.0, LOW_HZ)], 2.0), RATE)
    async with serving(ScriptedTranscription()) as address:
        sample = ("--speaker-sample", f"Bob={tmp_path / 'bob.wav'}")
        status, out, err = await run_cli(
            "transcribe", recording, "--server", address, "--diarize", speaker_models, *sample
        )
    assert (status, out) == (0, "A: Hello there.\nBob: Bye.\n"), err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--diarize {recording}", "holds no model for speaker segmentation"),
        ("--diarize {models} --as-live", "--diarize has no effect with --as-live"),
        ("--diarize {models} --speaker-sample ann.wav", "--speaker-sample is 'ann.wav': write NAME=FILE"),
        ("--diarize {models} --speaker-sample Ann=no.wav", "'no.wav' does not exist"),
        ("--diarize {models} --speaker-sample A=a.wav --speaker-sample A=b.wav", "names 'A' twice"),
    ],
)
async def test_what_cannot_have_speakers_is_refused(recording, speaker_models, arguments, sentence):
    filled = arguments.format(models=speaker_models, recording=recording).split()
    status, out, err = await run_cli("transcribe", recording, *filled)
    assert (status, out) == (2, "")
    assert sentence in " ".join(err.split())
