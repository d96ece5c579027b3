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
    """A window of a recording, and what the target has written in it.

    Attributes
    ----------
    draft_log_probs, divergences, continuation_log_probs : as in :class:`Decoding`.
    """

    sample: Sample
    options: DecodingOptions
    window: Window
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    no_speech_prob: float | None = None
    draft_log_probs: list[float] = field(default_factory=list)
    divergences: dict[int, tuple[int, ...]] = field(default_factory=dict)
    continuation_log_probs: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def add(self, commit: Commit) -> None:
        self.tokens += commit.tokens
        self.log_probs += commit.log_probs
        self.margins += commit.margins
        if commit.base == 0:
            self.no_speech_prob = commit.no_speech_prob

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
    written = [one for windows in transcribe(target, jobs, max_new_tokens) for one in windows]
    for one in written:
        find_divergences(draft, one, max_continuation)
    return tuple(
        Decoding(
            recording=one.sample.name,
            start_frame=one.window.start_frame,
            audio=window_digest(one.sample.recording, one.window.start_frame),
            prompt=one.window.prompt,
            temperature=one.window.temperature,
            tokens=tuple(one.tokens),
            log_probs=tuple(one.log_probs),
            margins=tuple(one.margins),
            no_speech_prob=one.no_speech_prob,
            divergences=one.divergences,
            draft_log_probs=tuple(one.draft_log_probs),
            continuation_log_probs=one.continuation_log_probs,
        )
        for one in written
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
                    windows.append(WrittenWindow(*jobs[int(session)], window))
                case Commit():
                    windows[-1].add(event)
                case Failed(error=error):
                    raise error
                case Finished():
                    verifier.close(session)
                    open_sessions.remove(int(session))
    return written


def find_divergences(draft: Model, written: WrittenWindow, max_continuation: int) -> None:
    """Note the draft's choices after the target's text, and its continuations where it diverges."""
    draft.encode(0, written.sample.recording, written.window.start_frame)
    choices, written.draft_log_probs = _choices(draft, written)
    tokens, num_prompt = written.tokens, len(written.window.prompt)
    # From last to first: the text before a divergence is then still the target's.
    for position in reversed(range(len(tokens))):
        if choices[position] == tokens[position]:
            continue
        draft.rollback(0, num_prompt + position)
        own, log_probs = [choices[position]], [written.draft_log_probs[position]]
        room = min(max_continuation, draft.max_positions - num_prompt - position)
        while len(own) < room and own[-1] not in draft.vocabulary.ends:
            (scores,) = draft.score([written.row([*tokens[:position], *own], own[-1:])])
            own += scores.tokens
            log_probs += scores.log_probs
        written.divergences[position] = tuple(own)
        written.continuation_log_probs[position] = tuple(log_probs)


def _choices(draft: Model, written: WrittenWindow) -> tuple[list[int], list[float]]:
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
