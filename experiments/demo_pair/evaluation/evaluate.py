"""Word error rates, acceptance and speed of the exported models."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import jiwer
import numpy as np
import soundfile
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

from experiments.demo_pair.data.corpus import Corpus
from experiments.demo_pair.data.phonemes import words
from experiments.demo_pair.data.samples import sentences_of
from experiments.demo_pair.data.tokenizer import Vocabulary
from experiments.demo_pair.data.windows import WINDOW_SECONDS, WindowMaker
from experiments.demo_pair.decode import greedy
from experiments.demo_pair.evaluation.locality import Locality
from experiments.demo_pair.training.pieces import TARGET_IDS, TINY_IDS, to_tiny
from experiments.pair.measure import Pair
from experiments.pair.step_cost import step_milliseconds
from specwhisper.model.checkpoints.checkpoint import load_checkpoint

RATE = 16_000
MODELS = {"target": TARGET_IDS, "draft-tiny": TINY_IDS, "draft-distil": TARGET_IDS}
DRAFTS = ("draft-tiny", "draft-distil")
FULL_WINDOWS = {"packed": False, "packed-clean": True}  # and whether they are clean
SPLITS = ("test-sentences", "test-voices", "test-fsdd")
BATCH = 16


def normalise(text: str) -> str:
    """Lower case, words only."""
    return " ".join(words(text))


def error_rates(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Word error rate of the words alone, and of words with case and punctuation."""
    plain = jiwer.wer([normalise(r) for r in references], [normalise(h) for h in hypotheses])
    written = jiwer.wer(references, [h.strip() for h in hypotheses])
    return {"wer": round(plain, 4), "wer_written": round(written, 4)}


class Exported:
    """An exported model, loaded as anyone would load it."""

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.whisper = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = WhisperTokenizer.from_pretrained(folder)
        self.extractor = WhisperFeatureExtractor.from_pretrained(folder)

    @torch.inference_mode()
    def encode(self, audio: list[np.ndarray]) -> torch.Tensor:
        """Encode clips, each padded to 30 s."""
        features = self.extractor(audio, sampling_rate=RATE, return_tensors="pt")
        return self.whisper.model.encoder(features["input_features"]).last_hidden_state

    def texts(self, rows: list[list[int]]) -> list[str]:
        """Transcripts without timestamps."""
        first = self.vocabulary.first_timestamp
        return [
            self.tokenizer.decode([t for t in row if t < first], skip_special_tokens=True) for row in rows
        ]

    @torch.inference_mode()
    def choices(self, encoded: torch.Tensor, row: list[int]) -> torch.Tensor:
        """Choose greedily after every prefix of a transcript in the model's own vocabulary."""
        v = self.vocabulary
        tokens = torch.tensor([[v.start, v.english, v.transcribe, *row[:-1]]])
        hidden = self.whisper.model.decoder(
            input_ids=tokens, encoder_hidden_states=encoded, use_cache=False
        ).last_hidden_state
        return self.whisper.proj_out(hidden)[0, 2:].argmax(-1)

    def long_form(self, audio: np.ndarray) -> str:
        """Transcribe a recording of any length with transformers' sequential algorithm."""
        inputs = self.extractor(
            audio,
            sampling_rate=RATE,
            return_tensors="pt",
            truncation=False,
            padding="longest",
            return_attention_mask=True,
        )
        if inputs["input_features"].shape[-1] < 3000:
            inputs = self.extractor(
                audio, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True
            )
        tokens = self.whisper.generate(
            **inputs, language="en", task="transcribe", return_timestamps=True, num_beams=1
        )
        return self.tokenizer.decode(tokens[0], skip_special_tokens=True)


class Agreement:
    """Counts how a draft agrees with the target's texts when it is given their beginnings."""

    def __init__(self, draft: Exported, is_tiny: bool) -> None:
        self._draft = draft
        self._is_tiny = is_tiny
        self._same = self._total = 0
        self._locality = Locality()

    def add(self, encoded: torch.Tensor, row: list[int], local: bool) -> None:
        """Compare with the target's text of one window, in the target's tokens."""
        own = torch.tensor(row)
        own = to_tiny(own) if self._is_tiny else own
        chosen = self._draft.choices(encoded, own.tolist())
        self._same += int((chosen == own).sum())
        self._total += len(row)
        if local:
            v = self._draft.vocabulary
            head = [v.start, v.english, v.transcribe]
            self._locality.add(self._draft.whisper, encoded, head, own.tolist(), chosen.tolist())

    def summary(self) -> dict[str, object]:
        """Return the accepted share, and how local the errors are where that was asked."""
        shares: dict[str, object] = {"acceptance": round(self._same / self._total, 4)}
        return shares | ({"after_errors": self._locality.summary()} if self._locality.num_errors else {})


def exported_step_milliseconds(models: Path) -> dict[str, float]:
    """Time one decoder step of every exported model in this project's engine."""
    checkpoints = {name: load_checkpoint(str(models / name)) for name in MODELS}
    pair = Pair(checkpoints["target"], {name: checkpoints[name] for name in DRAFTS})
    step_ms = step_milliseconds({"target": pair.target, **pair.drafts}, rounds=200)
    return {name: round(milliseconds, 3) for name, milliseconds in step_ms.items()}


def test_windows(
    corpus: Corpus, per_split: int, packed: int, seed: int
) -> dict[str, list[tuple[np.ndarray, str]]]:
    """Single clean clips of every split, and full windows of unseen sentences, augmented and clean."""
    rng = np.random.default_rng([seed, 6])
    sets: dict[str, list[tuple[np.ndarray, str]]] = {}
    for split in SPLITS:
        clips = corpus.split(split)
        if clips:
            chosen = rng.permutation(len(clips))[:per_split]
            sets[split] = [(corpus.samples(clips[i]), clips[i].text) for i in chosen]
    maker = WindowMaker(corpus, "test-sentences")
    # The clean ones come last, so that the others are those of earlier evaluations.
    for name, clean in FULL_WINDOWS.items():
        sets[name] = []
        while len(sets[name]) < packed:
            window = maker.window(WINDOW_SECONDS, rng, clean=clean)
            if window.segments:
                # The model is to leave a sentence that the window's end cuts to the next window.
                text = " ".join(s.text for s in window.segments if s.end is not None)
                sets[name].append((window.audio, text))
    return sets


def recipe(corpus: Corpus, samples: list[dict], minutes: float, draft_minutes: float, seed: int) -> dict:
    """Describe the models' training data and the machine."""
    train = corpus.split("train")
    trained = {clip.text for clip in train}
    spoken = [sentence for sample in samples for sentence in sentences_of(sample["text"])]
    return {
        "sample_sentences": len(spoken),
        "new_sample_sentences": sum(sentence not in trained for sentence in spoken),
        "sentences": len(train),
        "words": len({word for clip in train for word in words(clip.text)}),
        "voices": len({clip.voice for clip in train if not clip.voice.startswith("fsdd")}),
        "hours": round(sum(clip.length for clip in train) / RATE / 3600, 1),
        "minutes": round(minutes),
        "draft_minutes": round(draft_minutes),
        "seed": seed,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
    }


def measure_windows(
    items: list[tuple[np.ndarray, str]], loaded: dict[str, Exported], local: bool
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, object]]]:
    """Return each model's word error rates, and how each draft agrees with the target.

    ``local`` asks as well how local the drafts' errors are, which takes long.
    """
    texts_of: dict[str, list[str]] = {name: [] for name in loaded}
    agreements = {name: Agreement(loaded[name], name == "draft-tiny") for name in DRAFTS if name in loaded}
    for start in range(0, len(items), BATCH):
        audio = [samples for samples, _ in items[start : start + BATCH]]
        for name, model in loaded.items():
            encoded = model.encode(audio)
            rows = greedy(model.whisper, encoded, model.vocabulary)
            texts_of[name] += model.texts(rows)
            if name == "target":
                right = rows
                continue
            for i, row in enumerate(right):
                agreements[name].add(encoded[i : i + 1], row, local)
    references = [text for _, text in items]
    rates = {name: error_rates(references, texts) for name, texts in texts_of.items()}
    against_target = {name: error_rates(texts_of["target"], texts_of[name])["wer"] for name in agreements}
    return rates, {
        name: {**agreement.summary(), "alone_against_target": against_target[name]}
        for name, agreement in agreements.items()
    }


def measure_samples(models: Path, samples: list[dict], loaded: dict[str, Exported]) -> dict[str, dict]:
    """Return each model's word error rates on the sample recordings."""
    rates: dict[str, dict] = {name: {} for name in loaded}
    for name, model in loaded.items():
        for sample in samples:
            audio, _ = soundfile.read(models / "samples" / sample["file_name"], dtype="float32")
            text = model.long_form(audio)
            rates[name][sample["file_name"]] = error_rates([sample["text"]], [text])
            if name == "target":
                print(f"{sample['file_name']}: {text}", flush=True)
        print(f"{name} samples: {rates[name]}", flush=True)
    return rates


def evaluate(
    models: Path,
    work: Path,
    minutes: float,
    draft_minutes: float,
    per_split: int = 200,
    packed: int = 40,
    seed: int = 0,
) -> dict:
    """Measure all three models and write metrics.json beside them."""
    corpus = Corpus.load(work)
    windows = test_windows(corpus, per_split, packed, seed)
    loaded = {name: Exported(models / name, ids) for name, ids in MODELS.items()}
    metrics: dict = {name: {"wer": {}} for name in loaded}
    for name in DRAFTS:
        metrics[name] |= {"acceptance": {}, "agreement": {}}
    for split, items in windows.items():
        rates, agreements = measure_windows(items, loaded, local=split in FULL_WINDOWS)
        for name in loaded:
            metrics[name]["wer"][split] = rates[name]
            print(f"{name} {split}: {rates[name]}", flush=True)
        for name, agreement in agreements.items():
            metrics[name]["acceptance"][split] = agreement["acceptance"]
            metrics[name]["agreement"][split] = agreement
            print(f"{name} {split}: {agreement}", flush=True)
    lines = (models / "samples" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    samples = [json.loads(line) for line in lines]
    for name, rates in measure_samples(models, samples, loaded).items():
        metrics[name]["samples"] = rates
    step_ms = exported_step_milliseconds(models)
    for name, model in loaded.items():
        metrics[name]["decoder_step_ms"] = step_ms[name]
        metrics[name]["parameters"] = model.whisper.num_parameters()
        folder = models / name
        metrics[name]["bytes"] = sum(f.stat().st_size for f in folder.iterdir())
    metrics["windows"] = {"counts": {name: len(items) for name, items in windows.items()}, "seed": seed}
    metrics["recipe"] = recipe(corpus, samples, minutes, draft_minutes, seed)
    (models / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    return metrics
