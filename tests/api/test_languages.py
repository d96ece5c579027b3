"""Recordings in several languages: human speech, real VAD, and a model for which odd samples are German."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import specwhisper
from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import Recording
from specwhisper.audio.speech import TURNS, find_speech, find_voice
from specwhisper.model.choosing import ProbeResult
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import CONTEXT_SAMPLES, Mode
from tests.interference import Interference
from tests.nightly import mostly_nightly

HUMAN = Path(specwhisper.__file__).parent / "demo" / "human"
RATE = 16_000
BOTH = DecodingOptions(languages="en,de", max_new_tokens=20)


class Listener(ScriptedModel):
    """Detects the language of most samples; those of noise are none."""

    def __init__(self, num_slots: int = 1, **kwargs) -> None:
        super().__init__(num_slots, vocabulary=MULTILINGUAL, **kwargs)
        self._language_probs: dict[str, dict[str, float]] = {}
        self.encoded: list[set[str]] = []

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        super().encode(slot, recording, start_frame)
        samples = recording.window_samples(start_frame)[CONTEXT_SAMPLES : -2 * CONTEXT_SAMPLES]
        values = np.round(samples * 32_768).astype(int)
        german, spoken = np.count_nonzero(values % 2), np.count_nonzero(values) or 1
        self._language_probs[self._audio[slot]] = {"en": 1 - german / spoken, "de": german / spoken}
        self.encoded.append(
            {code for code, share in self._language_probs[self._audio[slot]].items() if share > 0}
        )

    def _probe(self, audio: str) -> ProbeResult:
        return replace(super()._probe(audio), language_probs=self._language_probs[audio])


def speech(language: str, length_s: float) -> np.ndarray:
    names = ("austen_0870", "austen_0890", "austen_0920")
    whole = np.frombuffer(b"".join(b"".join(decode_file(HUMAN / f"{name}.flac")) for name in names), "<i2")
    part = np.resize(whole, round(length_s * RATE)) // 2 * 2
    return np.where(part == 0, 2, part) + (language == "de")


def joined(*parts: tuple[str, float], pause_s: float = 0.5) -> tuple[bytes, list[tuple[float, str]]]:
    """Return recordings of parts with pauses after them, and when each begins, in seconds."""
    pause, pieces, begins = np.zeros(round(pause_s * RATE)), [], []
    for language, length_s in parts:
        begins.append((sum(map(len, pieces)) / RATE, language))
        pieces += [speech(language, length_s), pause]
    return np.concatenate(pieces).astype("<i2").tobytes(), begins


def transcribed(pcm: bytes, options: DecodingOptions = BOTH, **kwargs) -> tuple[Transcription, Listener]:
    model = Listener()
    return InlinePair(model, voice=find_voice(), **kwargs).transcribe([pcm], options)[0], model


@pytest.mark.parametrize(
    ("parts", "pause_s"),
    [
        ((("en", 6.0), ("de", 9.0), ("en", 40.0), ("de", 5.5)), 0.5),
        ((("en", 28.0), ("de", 28.0), ("en", 7.0)), 1.0),
    ],
)
def test_no_window_holds_two_languages(parts, pause_s):
    pcm, begins = joined(*parts, pause_s=pause_s)
    text, model = transcribed(pcm)
    assert all(len(languages) <= 1 for languages in model.encoded)
    for segment in text.segments:
        at_s = segment.seek / 100 + pause_s / 2 + 0.1  # a window begins in the middle of a pause
        assert segment.language == [code for begin_s, code in begins if begin_s <= at_s][-1], segment
    assert {segment.language for segment in text.segments} == {"en", "de"}
    assert text.language_probs[text.language] == 1


@pytest.mark.parametrize(("mode", "kind"), mostly_nightly([(Mode.SYNC, "garbage"), (Mode.FULL, "normal")]))
def test_no_draft_changes_languages_or_text(mode, kind):
    pcm, _ = joined(("en", 7.0), ("de", 12.0), ("en", 16.0))
    alone, _ = transcribed(pcm)
    edit = Interference(kind, 3, vocabulary_size=len(MULTILINGUAL.tokens))
    drafted, _ = transcribed(pcm, draft=Listener(error_rate=0.2), mode=mode, gamma=3, edit_block=edit)
    assert drafted.segments == alone.segments


def test_windows_end_at_pauses_and_lose_no_speech():
    pcm, _ = joined(("en", 70.0))
    text, _ = transcribed(pcm, replace(BOTH, timestamps=False))
    cuts_s = sorted({segment.seek / 100 for segment in text.segments})[1:]
    speech_s = [(span.start / RATE, span.stop / RATE) for span in find_speech([pcm], TURNS).spans]
    for cut_s in cuts_s:
        assert not any(start_s + 0.1 < cut_s < stop_s - 0.1 for start_s, stop_s in speech_s), "in no word"
    assert len(cuts_s) == 2
    assert text.segments[-1].end_s == pytest.approx(len(pcm) / 2 / RATE, abs=0.01)
    assert {segment.language for segment in text.segments} == {"en"}


def test_without_vad_windows_are_the_unit():
    pcm, _ = joined(("en", 40.0), ("de", 40.0))
    text = InlinePair(Listener()).transcribe([pcm], BOTH)[0]
    assert {segment.language for segment in text.segments} == {"en", "de"}


@pytest.mark.parametrize("noise_s", mostly_nightly([31.0, 65.0]))
def test_windows_without_speech_do_not_decide_the_language(noise_s):
    noise = np.random.default_rng(0).integers(-150, 150, round(noise_s * RATE)) * 2 + 1
    pcm = noise.astype("<i2").tobytes() + joined(("en", 20.0))[0]
    options = DecodingOptions(max_new_tokens=20, timestamps=False)
    text, _ = transcribed(pcm, options)
    assert (text.segments[0].language, text.language) == ("de", "en")
    without = InlinePair(Listener()).transcribe([pcm], options)[0]
    assert without.language == "de", "as transformers, which detects it in the first window"


def test_where_the_first_window_has_speech_nothing_changes():
    pcm, _ = joined(("en", 20.0), ("de", 50.0))
    options = DecodingOptions(max_new_tokens=20)
    with_vad, without = transcribed(pcm, options)[0], InlinePair(Listener()).transcribe([pcm], options)[0]
    assert (with_vad.segments, with_vad.language_probs) == (without.segments, without.language_probs)
