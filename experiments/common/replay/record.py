"""Record a trace: run the target on recordings, then the draft after every prefix of its text.

Where the draft agrees, its continuation is that of the next position; only where it diverges is it followed,
token by token, as it would draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from experiments.common.audio.samples import Sample
from experiments.common.replay.trace import Decoding, Trace, window_digest
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.recording import Recording
from specwhisper.engine.verifier import Verifier
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.choosing import Row
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import whisper_plan
from specwhisper.types import AudioChunk, Commit, Failed, Finished, Limits, Mode, Window, WindowOpened

NUM_SLOTS = 8
MAX_CONTINUATION = 128  # tokens followed after a divergence: a window seldom has more


@dataclass
class WrittenWindow:
    window: Window
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    no_speech_prob: float | None = None


def record(
    samples: Sequence[Sample],
    *,
    target: str,
    draft: str,
    draft_dtype: str = "float32",
    cut_windows: bool = False,
    options: Sequence[DecodingOptions],
) -> Trace:
    """Record a pair on recordings.

    Parameters
    ----------
    draft_dtype, cut_windows : how the draft is loaded; its errors depend on both.
    options : decoding options; each recording is decoded with each of them and its own log-mel maximum.
        Replays must use the same options.
    """
    large, small = load_checkpoint(target), load_checkpoint(draft, dtype=draft_dtype, is_draft=True)
    decodings = record_models(
        WhisperModel(large, NUM_SLOTS),
        open_draft(small, 1, large.vocabulary, cut_windows=cut_windows),
        samples,
        options,
        max_new_tokens=large.max_new_tokens,
    )
    return Trace(large.name, small.name, large.vocabulary.digest, decodings)


def record_models(
    target: Model,
    draft: Model,
    samples: Sequence[Sample],
    options: Sequence[DecodingOptions],
    *,
    max_new_tokens: int | None = None,
    max_continuation: int = MAX_CONTINUATION,
) -> tuple[Decoding, ...]:
    jobs = [(s, replace(o, log_mel_max=s.log_mel_max)) for s in samples for o in options]
    written: list[tuple[str, WrittenWindow]] = []
    texts: list[TargetText] = []
    for (sample, used), windows in zip(jobs, transcribe(target, jobs, max_new_tokens), strict=True):
        written += [(sample.name, one) for one in windows]
        texts += [TargetText(sample.recording, one.window, one.tokens, used) for one in windows]
    found = [find_divergences(draft, text, max_continuation) for text in texts]
    return tuple(
        Decoding(
            recording=name,
            start_frame=one.window.start_frame,
            audio=window_digest(text.recording, one.window.start_frame),
            prompt=one.window.prompt,
            temperature=one.window.temperature,
            tokens=tuple(one.tokens),
            log_probs=tuple(one.log_probs),
            margins=tuple(one.margins),
            no_speech_prob=one.no_speech_prob,
            divergences=divergences.tokens,
            draft_log_probs=divergences.log_probs,
            continuation_log_probs=divergences.continuation_log_probs,
        )
        for (name, one), text, divergences in zip(written, texts, found, strict=True)
    )


def transcribe(
    target: Model, jobs: Sequence[tuple[Sample, DecodingOptions]], max_new_tokens: int | None
) -> list[list[WrittenWindow]]:
    """Transcribe the jobs concurrently with one model alone; return the windows of each."""
    longest = max(len(sample.pcm) // BYTES_PER_SAMPLE for sample, _ in jobs)
    limits = Limits(max_ahead_samples=max(longest, Limits().max_ahead_samples))
    plan = whisper_plan(target.vocabulary, target.tokenize, max_new_tokens)
    verifier = Verifier(target, limits=limits, plan=plan)
    written: list[list[WrittenWindow]] = [[] for _ in jobs]
    waiting, open_sessions = list(range(len(jobs))), set[int]()
    while waiting or open_sessions:
        while waiting and verifier.num_free_slots:
            job = waiting.pop(0)
            sample, options = jobs[job]
            verifier.open(str(job), Mode.TARGET_ONLY, options)
            verifier.submit(str(job), AudioChunk(0, sample.pcm, is_last=True))
            open_sessions.add(job)
        for session, event in verifier.step():
            windows = written[int(session)]
            match event:
                case WindowOpened(window=window):
                    windows.append(WrittenWindow(window))
                case Commit():
                    _add_commit(event, windows[-1])
                case Failed(error=error):
                    raise error
                case Finished():
                    verifier.close(session)
                    open_sessions.remove(int(session))
    return written


def _add_commit(commit: Commit, written: WrittenWindow) -> None:
    written.tokens += commit.tokens
    written.log_probs += commit.log_probs
    written.margins += commit.margins
    if commit.base == 0:
        written.no_speech_prob = commit.no_speech_prob


@dataclass(frozen=True)
class TargetText:
    recording: Recording
    window: Window
    tokens: Sequence[int]
    options: DecodingOptions

    def row(self, generated: Sequence[int], fed: Sequence[int], num_candidates: int = 0) -> Row:
        return Row(
            slot=0,
            tokens=fed,
            num_candidates=num_candidates,
            generated=generated,
            timestamps=self.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(self.options),
            sampling=window_sampling(self.window, self.options),
        )


@dataclass(frozen=True)
class Divergences:
    """A draft's choices in one window: after the target's text, and where it diverges.

    Attributes
    ----------
    log_probs : log-probability of its choice after each prefix of the target's text.
    tokens, continuation_log_probs : its continuation, by position of the divergence.
    """

    log_probs: tuple[float, ...]
    tokens: dict[int, tuple[int, ...]]
    continuation_log_probs: dict[int, tuple[float, ...]]


def find_divergences(draft: Model, written: TargetText, max_continuation: int) -> Divergences:
    draft.encode(0, written.recording, written.window.start_frame)
    choices, log_probs = _choices(draft, written)
    tokens, num_prompt = list(written.tokens), len(written.window.prompt)
    found = Divergences(tuple(log_probs), {}, {})
    # From last to first: the text before a divergence is then still the target's.
    for position in reversed(range(len(tokens))):
        if choices[position] == tokens[position]:
            continue
        draft.rollback(0, num_prompt + position)
        own, own_log_probs = [choices[position]], [log_probs[position]]
        room = min(max_continuation, draft.max_positions - num_prompt - position)
        while len(own) < room and own[-1] not in draft.vocabulary.ends:
            (scores,) = draft.score([written.row([*tokens[:position], *own], own[-1:])])
            own += scores.tokens
            own_log_probs += scores.log_probs
        found.tokens[position] = tuple(own)
        found.continuation_log_probs[position] = tuple(own_log_probs)
    return found


def _choices(draft: Model, written: TargetText) -> tuple[list[int], list[float]]:
    """Return the draft's choice after every prefix of the target's text, and its log-probability."""
    tokens, chosen, log_probs = list(written.tokens), list[int](), list[float]()
    while (position := len(chosen)) < len(tokens):
        text = [*written.window.prompt, *tokens[:-1]]
        candidates = tokens[position:-1]
        row = written.row(tokens[:position], text[draft.length(0) :], len(candidates))
        scores = draft.score([row])[0]
        wrong = (
            i for i, (own, token) in enumerate(zip(scores.tokens, candidates, strict=False)) if own != token
        )
        num_new = 1 + next(wrong, len(candidates))  # what follows the first difference may be made up
        chosen += scores.tokens[:num_new]
        log_probs += scores.log_probs[:num_new]
        draft.rollback(0, len(written.window.prompt) + len(chosen) - 1)
    return chosen, log_probs
