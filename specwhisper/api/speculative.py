"""A Python API with draft and target in one process.

Begin with ``SpeculativeWhisper("tiny", "large-v3")``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from specwhisper.api.pipeline import call_as_pipeline
from specwhisper.api.progress import ProgressBar
from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.api.transcribe_call import (
    ChunkedRecordings,
    Cut,
    SpeechFilter,
    TranscribeCall,
    Watch,
    check_batch_size,
)
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.inputs import Audio, Source
from specwhisper.audio.recording import log_mel_max
from specwhisper.audio.source import pcm_if_short
from specwhisper.engine.process import check_device, default_device
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.errors import RecordingsFailed
from specwhisper.languages import language_name
from specwhisper.model.backend import Encoder
from specwhisper.model.backends import SharedEncoder, load_encoders
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.chunked import load_tokenizer
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import TranslatedModel, open_draft
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import ModelInfo, Transcription, losses
from specwhisper.types import SAMPLE_RATE, DeviceMap, Mode, default_num_batched_tokens

if TYPE_CHECKING:
    import torch

ResultOrError = Transcription | Exception


class SpeculativeWhisper:
    """Transcribes with a pair of models; the text is the large model's own.

    Thread-safe: calls from several threads, also of :meth:`without_draft`, share the ``batch_size`` slots and
    every forward pass, so that eight threads are as fast as one call with eight recordings. A call that fails
    or is interrupted frees its slots and changes no other call's text. An open file is read by one call at a
    time: each thread needs a file object of its own.

    On a CPU a forked process can use it too, with threads of its own, if nothing was being transcribed at the
    fork; else calls there raise :class:`InvalidRequest`, since models may hang in such a process.

    Parameters
    ----------
    draft_model, final_model : names such as "tiny", "large-v3" or "demo-target", hub ids or folders; without
        a draft the final model works alone.
    device : where both run, as torch names it; "auto" for the first of cuda, mps and cpu that there is. By
        default cuda if there is one, else cpu.
    config : how to speculate and choose tokens; each call reads it once, when it begins.
    dtype : number type of the weights, one of :data:`specwhisper.types.DTYPES`, or as torch names it.
    draft_dtype : the same for the draft, if it differs: it never changes the text.
    batch_size : recordings that are transcribed side by side, of all calls together.
    cut_windows : whether the draft encodes only the audio of a window (:class:`WhisperModel`).
    device_map : where parts of the final model run, in place of ``device``: "auto" or a map from module to
        device, "cpu" or "disk" (:func:`specwhisper.model.backends.open_backend`). Its weights are loaded
        straight to their place, and it shares no encoder with the draft.
    offload_folder : for weights that the map puts on disk.
    """

    def __init__(
        self,
        draft_model: str | None = "tiny",
        final_model: str = "large-v3",
        device: str | None = None,
        config: SpeculativeConfig | None = None,
        *,
        dtype: str | torch.dtype = "float32",
        draft_dtype: str | torch.dtype | None = None,
        batch_size: int = 8,
        cut_windows: bool = False,
        device_map: DeviceMap | None = None,
        offload_folder: str | Path | None = None,
    ) -> None:
        check_batch_size(batch_size)
        self.batch_size = batch_size
        device = check_device(device or default_device(), "device")
        self.config = config or SpeculativeConfig()
        target = load_checkpoint(final_model, dtype=dtype)
        draft = None
        if draft_model is not None:
            draft = load_checkpoint(draft_model, dtype=draft_dtype or dtype, is_draft=True)
        self._models = ModelInfo(target.name, draft.name if draft else "", target.weights_digest)
        self._source = resolve(final_model)
        self._num_mel_bins = {c.num_mel_bins for c in (target, draft) if c is not None}
        draft_encoder: Encoder | None = None  # each model loads its own
        encoder: Encoder | None = None
        if draft is not None and device_map is None:
            draft_encoder, encoder = load_encoders(
                draft, target, batch_size, draft_device=device, target_device=device
            )
        self.draft_model: WhisperModel | TranslatedModel | None = None
        if draft is not None:
            self.draft_model = open_draft(
                draft,
                batch_size,
                target.vocabulary,
                device=device,
                encoder=draft_encoder,
                cut_windows=cut_windows,
            )
        self.shares_encoder = isinstance(encoder, SharedEncoder)
        self.final_model = WhisperModel(
            *(target, batch_size),
            device=device,
            encoder=encoder,
            device_map=device_map,
            offload_folder=None if offload_folder is None else Path(offload_folder),
        )
        num_tokens = default_num_batched_tokens(device, device_map)
        self._pair = SharedPair(self.final_model, self.draft_model, target.max_new_tokens, num_tokens)

    def without_draft(self) -> SpeculativeWhisper:
        """Return the final model alone, without loading it again."""
        alone = copy.copy(self)
        alone.draft_model = None
        return alone

    __call__ = call_as_pipeline

    @overload
    def transcribe(
        self,
        audio: Audio,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        use_adaptive_gamma: bool | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        progress: bool | None = None,
        on_error: Literal["raise"] = "raise",
        watch: Watch = ...,
        **options: Any,
    ) -> Transcription: ...
    @overload
    def transcribe(
        self, audio: Iterable[Audio], *, on_error: Literal["raise"] = "raise", **how: Any
    ) -> list[Transcription]: ...
    @overload
    def transcribe(
        self, audio: Audio | Iterable[Audio], *, on_error: Literal["return"], **how: Any
    ) -> Any: ...
    def transcribe(
        self,
        audio: Audio | Iterable[Audio],
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        use_adaptive_gamma: bool | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        progress: bool | None = None,
        on_error: Literal["raise", "return"] = "raise",
        watch: Watch = lambda index, builder: None,
        **options: Any,
    ) -> Any:
        """Transcribe a recording, or several side by side.

        Parameters
        ----------
        audio : one recording or any iterable of them: files of any format (by name, open, or as bytes),
            arrays or tensors of 16 kHz mono samples (floats in -1..1, int16, int32 or uint8), or dicts of
            ``array`` and ``sampling_rate``. At most one is read ahead of those that are being transcribed.
        mode : ``Mode.TARGET_ONLY`` for the final model alone; by default ``Mode.ONE_PROCESS``, with a draft.
            The others need two servers.
        gamma, use_adaptive_gamma : as in :class:`SpeculativeConfig`; by default the config's. A ``gamma``
            alone stays as it is.
        batch_size : most recordings of this call side by side, at most that of the constructor.
        chunk_length_s, stride_length_s : decode overlapping chunks side by side, as transformers' pipeline
            does, instead of window after window; 15 s suits distil models. It offers no word times, holds a
            recording in memory, and does not call ``watch``.
        progress : whether to show a progress bar on standard error; by default if that is a terminal.
        on_error : what to do about a recording that fails. "raise" transcribes the others, then raises
            :class:`RecordingsFailed` with their results. Missing files of a list are all named before
            anything is decoded. "return" puts the error in the recording's place. A single recording's own
            error is raised, or returned. If the iterable itself raises, the recordings before its error are
            transcribed. Then :class:`RecordingsFailed` is raised from that error, also with "return".
        watch : called in this thread with a recording's index and its transcript so far, to be read only,
            whenever that has changed. With ``vad_filter``, its times count the speech only.
        options : fields of :class:`DecodingOptions`, such as ``language``, ``word_timestamps`` or
            ``initial_prompt``; they override the config, also with ``None``.

        Returns
        -------
        a :class:`Transcription`, or a list of them in the order of the recordings.
        """
        call = self._call(
            audio,
            mode=mode,
            gamma=gamma,
            use_adaptive_gamma=use_adaptive_gamma,
            batch_size=batch_size,
            chunk_length_s=chunk_length_s,
            stride_length_s=stride_length_s,
            return_stats=return_stats,
            progress=progress,
            on_error=on_error,
            watch=watch,
            **options,
        )
        results = dict(self._results(call))
        errors = {index: result for index, result in results.items() if isinstance(result, Exception)}
        in_order = [results[index] for index in range(len(results))]
        ended_by = call.reading_error
        if ended_by is not None or (errors and on_error == "raise"):
            if call.is_one:
                raise errors[0]
            raise RecordingsFailed.of(errors, len(results), in_order, ended_by=ended_by) from ended_by
        return in_order[0] if call.is_one else in_order

    def transcribe_iter(self, audio: Audio | Iterable[Audio], **how: Any) -> Iterator[tuple[int, Any]]:
        """Yield each recording's index and :class:`Transcription` when it ends.

        It takes what :meth:`transcribe` takes. With ``on_error="raise"``, :class:`RecordingsFailed` is raised
        after the last result; with "return", errors are yielded in the place of results. It is also raised
        after the last result if the iterable raises. Recordings that have begun continue while the caller is
        busy; closing the iterator frees their slots.
        """
        call = self._call(audio, **how)
        return call.handed_over(self._results(call))

    def _call(self, audio: Audio | Iterable[Audio], **how: Any) -> TranscribeCall:
        """Check the arguments, and read the config, which may be replaced later."""
        return TranscribeCall(audio, self.config, self.draft_model is not None, self.batch_size, **how)

    def _results(self, call: TranscribeCall) -> Iterator[tuple[int, Transcription | Exception]]:
        """Yield every recording's index and its result or error, as they finish."""
        speech = SpeechFilter(call.decoding)
        sources = speech.filtered(call.sources)
        transcribe = self._whole if call.cut is None else partial(self._chunked, call.cut)
        with ProgressBar(call.num_recordings, call.progress) as bar:
            for index, outcome in transcribe(sources, call, bar):
                bar.finish(index)
                outcome = speech.placed(index, outcome)
                yield index, outcome if isinstance(outcome, Exception) else self._result(outcome, call)

    def _whole(
        self, sources: Iterable[Source | Exception], call: TranscribeCall, bar: ProgressBar
    ) -> Iterator[tuple[int, ResultOrError]]:
        """Transcribe recordings window after window."""
        num_samples: dict[int, int] = {}  # by index, of recordings under way

        def prepared() -> Iterator[Prepared | Exception]:
            for index, source in enumerate(sources):
                recording = self._prepared(source, call.decoding)
                if isinstance(recording, Prepared):
                    num_samples[index] = recording.num_samples
                yield recording

        def watch(index: int, builder: TranscriptBuilder) -> None:
            transcribed = builder.span_s[0] * SAMPLE_RATE
            bar.advance(index, min(1.0, transcribed / max(1, num_samples[index])))
            call.watch(index, builder)

        for index, outcome in self._pair.transcribe(
            prepared(), call.draft_length, max_sessions=call.num_slots, watch=watch
        ):
            num_samples.pop(index, None)
            if isinstance(outcome, Transcription):
                outcome = replace(outcome, warnings=losses(call.decoding, outcome.duration_s))
            yield index, outcome

    def _chunked(
        self, cut: Cut, sources: Iterable[Source | Exception], call: TranscribeCall, bar: ProgressBar
    ) -> Iterator[tuple[int, ResultOrError]]:
        """Transcribe the chunks of all recordings side by side."""
        pcms = (_decoded(source) for source in sources)
        recordings = ChunkedRecordings(pcms, cut, call.decoding, load_tokenizer(self._source))
        for number, outcome in self._pair.transcribe(
            recordings.prepared(), call.draft_length, max_sessions=call.num_slots
        ):
            index, share, joined = recordings.take(number, outcome)
            if joined is not None:
                yield index, joined
            else:
                bar.advance(index, share)

    def _prepared(self, source: Source | Exception, options: DecodingOptions) -> Prepared | Exception:
        """Decode a short recording; scan a long one for its log-mel maximum."""
        if isinstance(source, Exception):
            return source
        try:
            pcm = pcm_if_short(source.decode())
            if pcm is not None:
                return Prepared(pcm, options, len(pcm) // BYTES_PER_SAMPLE)
            num_bytes = 0

            def counted() -> Iterator[bytes]:
                nonlocal num_bytes
                for pcm in source.decode():
                    num_bytes += len(pcm)
                    yield pcm

            maxima = log_mel_max(counted(), self._num_mel_bins, options.padding)
            options = replace(options, log_mel_max=maxima)
            return Prepared(source.decode(), options, num_bytes // BYTES_PER_SAMPLE)
        except Exception as error:
            return error

    def _result(self, transcribed: Transcription, call: TranscribeCall) -> Transcription:
        length = call.draft_length
        drafts = length.mode.drafts
        model = replace(
            self._models,
            draft=self._models.draft if drafts else "",
            mode=length.mode,
            gamma=(length.gamma or 0) if drafts else 0,
            is_lossy=call.decoding.is_lossy and (drafts or bool(call.decoding.hint)),
        )
        return replace(
            transcribed,
            language_name=language_name(transcribed.language),
            stats=transcribed.stats if call.return_stats else None,
            model=model,
            options=call.decoding,
            elapsed_s=time.perf_counter() - call.started_s,
        )


def _decoded(source: Source | Exception) -> bytes | Exception:
    """Decode a whole recording."""
    if isinstance(source, Exception):
        return source
    try:
        return b"".join(source.decode())
    except Exception as error:
        return error
