"""Keep the audio of a session, and compute the features of its windows.

Features equal those that transformers computes from the whole file at once, although the file arrives piece
by piece and only the audio of the open window is kept. Mel frame k is centred at sample 160 k; before the
first sample and after the last one the audio is mirrored; a recording shorter than 30 s is padded with
silence. With padding ``ZERO`` they equal openai/whisper's: silence follows the last sample, and frames
centred after the audio are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.audio.mel import NUM_FFT, SILENCE, log_mel_power, normalise, power_spectrogram
from specwhisper.errors import InvalidAudio
from specwhisper.options import Padding
from specwhisper.types import CONTEXT_SAMPLES, HOP_SAMPLES, WINDOW_FRAMES, WINDOW_SAMPLES, AudioChunk

MEL_BINS = (80, 128)  # Whisper's models have these, before large-v3 and since


class LogMelMax:
    """Tracks the log-mel maximum by number of mel bins.

    If the maximum of the whole recording is known, it is that one, as in transformers. Otherwise it is the
    maximum over the windows up to the one in question. It depends on where that window ends, and not on the
    order of calls: a window that was predicted wrongly does not change the features of the right one.

    ``known``: maxima of the whole recording, for the numbers of mel bins that they are known for.
    """

    def __init__(self, known: Mapping[int, float]) -> None:
        self._known = dict(known)
        self._maxima: dict[int, dict[int, float]] = {}  # by number of mel bins, by end frame of the window

    def update(self, num_mel_bins: int, end_frame: int, log_mel_max: float) -> float:
        """Add the maximum of a window that ends at a frame; return the one for its features."""
        if num_mel_bins in self._known:
            return self._known[num_mel_bins]
        maxima = self._maxima.setdefault(num_mel_bins, {})
        maxima[end_frame] = max([log_mel_max, *(value for end, value in maxima.items() if end <= end_frame)])
        return maxima[end_frame]

    def at(self, num_mel_bins: int, end_frame: int) -> float | None:
        """Return the maximum for a window that ends at a frame; ``None`` before any window."""
        if num_mel_bins in self._known:
            return self._known[num_mel_bins]
        maxima = self._maxima.get(num_mel_bins, {})
        return max((value for end, value in maxima.items() if end <= end_frame), default=None)


class Recording:
    """Canonical audio from some sample on, in order.

    One thread may append while another computes features.

    Parameters
    ----------
    log_mel_max : largest log10 mel power of the whole recording by number of mel bins, where it is known.
    padding : what follows the audio.
    is_cut : whether a draft may encode less silence after it than up to 30 s.

    Attributes
    ----------
    first_sample : index of the first sample that is held.
    """

    def __init__(
        self,
        log_mel_max: Mapping[int, float] | None = None,
        padding: Padding = Padding.SILENCE,
        *,
        is_cut: bool = False,
    ) -> None:
        self.is_cut = is_cut
        self._padding = padding
        self._has_zeros = padding is Padding.ZERO
        self._log_mel_max = LogMelMax(log_mel_max or {})
        self._pcm = bytearray()
        self.first_sample = 0
        self._has_begun = False
        self.is_complete = False
        self._lock = Lock()

    @property
    def held_bytes(self) -> int:
        return len(self._pcm)

    @property
    def received_samples(self) -> int:
        return self.first_sample + len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def total_frames(self) -> int | None:
        """Mel frames of the whole recording, silence up to 30 s included; ``None`` until it has ended."""
        num_samples = self.received_samples if self._has_zeros else self._padded_samples
        return max(1, num_samples // HOP_SAMPLES) if self.is_complete else None

    @property
    def audio_frames(self) -> int:
        return -(-self.received_samples // HOP_SAMPLES)

    @property
    def _padded_samples(self) -> int:
        received = self.received_samples
        return received + WINDOW_SAMPLES if self._has_zeros else max(received, WINDOW_SAMPLES)

    def append(self, chunk: AudioChunk) -> None:
        """Append the new samples of a chunk.

        The first chunk may start at any sample; the others must leave no gap.
        """
        end_sample = chunk.start_sample + len(chunk.pcm) // BYTES_PER_SAMPLE
        with self._lock:
            if not self._has_begun:
                self.first_sample = chunk.start_sample
                self._has_begun = True
            received = self.received_samples
            if chunk.start_sample > received:
                raise InvalidAudio(
                    f"The audio leaves a gap: samples {received} to {chunk.start_sample} are missing."
                )
            if self.is_complete and end_sample > received:
                raise InvalidAudio(f"More audio came after the end of the recording at sample {received}.")
            if chunk.is_last and end_sample < received:
                raise InvalidAudio(
                    f"The audio ends at sample {end_sample}, but {received} samples came before."
                )
            if chunk.is_last and end_sample == 0:
                raise InvalidAudio("The recording is empty: it holds no audio samples.")
            if end_sample > received:
                self._pcm += chunk.pcm[(received - chunk.start_sample) * BYTES_PER_SAMPLE :]
            self.is_complete |= chunk.is_last

    def discard_before(self, sample: int) -> None:
        """Free the audio that no window starting at ``sample`` or later needs."""
        with self._lock:
            keep_from = min(sample - CONTEXT_SAMPLES, self.received_samples)
            if keep_from > self.first_sample:
                del self._pcm[: (keep_from - self.first_sample) * BYTES_PER_SAMPLE]
                self.first_sample = keep_from

    def window_is_ready(self, start_frame: int) -> bool:
        """Return whether the features of a window can be computed and are final."""
        needed = start_frame * HOP_SAMPLES + WINDOW_SAMPLES + CONTEXT_SAMPLES - HOP_SAMPLES
        return self.is_complete or self.received_samples >= needed

    def window_frames(self, start_frame: int) -> int:
        """Count the frames of a window: 3,000, or the rest of the recording; 0 after its end."""
        if self.total_frames is None:
            return WINDOW_FRAMES
        return max(0, min(WINDOW_FRAMES, self.total_frames - start_frame))

    def window_features(self, start_frame: int, num_mel_bins: int) -> NDArray[np.float32]:
        """Return the normalised log-mel of a window, ``[bins, 3000]``; 0 after the end of the recording."""
        num_frames = self.window_frames(start_frame)
        log_mel = log_mel_power(power_spectrogram(self.window_samples(start_frame)), num_mel_bins)
        with self._lock:
            end_frame = start_frame + num_frames
            log_mel_max = self._log_mel_max.update(num_mel_bins, end_frame, float(log_mel.max()))
        features = np.zeros((num_mel_bins, WINDOW_FRAMES), np.float32)
        features[:, :num_frames] = normalise(SILENCE, log_mel_max)
        computed = normalise(log_mel[:, :num_frames], log_mel_max)
        features[:, : computed.shape[1]] = computed
        return features

    def clip(self, start_frame: int, num_frames: int, *, is_cut: bool = False) -> Recording:
        """Return frames as a recording of their own; fewer if the audio ends before."""
        clip = Recording(padding=self._padding, is_cut=is_cut)
        clip.append(AudioChunk(0, self.pcm(start_frame, num_frames), is_last=True))
        return clip

    def pcm(self, start_frame: int, num_frames: int) -> bytes:
        begin, end = start_frame * HOP_SAMPLES, (start_frame + num_frames) * HOP_SAMPLES
        with self._lock:
            return b"" if begin < self.first_sample else self._read(begin, end)

    def log_mel_max(self, start_frame: int, num_mel_bins: int) -> float | None:
        """Return a window's log-mel maximum; ``None`` before any features were computed."""
        with self._lock:
            return self._log_mel_max.at(num_mel_bins, start_frame + self.window_frames(start_frame))

    def resume_log_mel_max(self, num_mel_bins: int, log_mel_max: float) -> None:
        """Take over the log-mel maximum of another recording of the same audio."""
        with self._lock:
            self._log_mel_max.update(num_mel_bins, 0, log_mel_max)

    def window_samples(self, start_frame: int) -> NDArray[np.float32]:
        """Return the samples of a window's frames, except frames of padding only.

        With padding ``ZERO`` the last window has the frames after it too that hold its last samples: as in
        openai/whisper, they count for the log-mel maximum.
        """
        with self._lock:
            if start_frame < 0 or not (self.window_is_ready(start_frame) and self.window_frames(start_frame)):
                raise InvalidAudio(f"There is no window at frame {start_frame}: {self._extent()}.")
            # Frames of padding only are exact silence.
            audible_frames = (self.received_samples + CONTEXT_SAMPLES) // HOP_SAMPLES + 1 - start_frame
            num_frames = max(1, audible_frames)
            if not self._has_zeros or self.received_samples > start_frame * HOP_SAMPLES + WINDOW_SAMPLES:
                num_frames = min(num_frames, self.window_frames(start_frame))
            begin = start_frame * HOP_SAMPLES - CONTEXT_SAMPLES
            end = begin + (num_frames - 1) * HOP_SAMPLES + NUM_FFT
            mirrored_before = max(0, -begin)
            mirrored_after = max(0, end - self._padded_samples) if self.is_complete else 0
            begin += mirrored_before
            end -= mirrored_after
            if begin < self.first_sample:
                raise InvalidAudio(f"The window at frame {start_frame} begins too early: {self._extent()}.")
            held = self._read(begin, end)
        samples = np.zeros(end - begin, np.float32)
        samples[: len(held) // BYTES_PER_SAMPLE] = floats(held)
        return np.pad(samples, (mirrored_before, mirrored_after), mode="reflect")

    def _read(self, begin: int, end: int) -> bytes:
        first = self.first_sample
        return bytes(self._pcm[(begin - first) * BYTES_PER_SAMPLE : (end - first) * BYTES_PER_SAMPLE])

    def _extent(self) -> str:
        ending = "which is its end" if self.is_complete else "so far"
        return f"the recording is held from sample {self.first_sample} to {self.received_samples}, {ending}"


def log_mel_max(
    pcm_blocks: Iterable[bytes],
    num_mel_bins: Iterable[int] = MEL_BINS,
    padding: Padding = Padding.SILENCE,
) -> dict[int, float]:
    """Return the log-mel maximum of a recording by number of mel bins."""
    if padding is Padding.ZERO:  # silence follows the last sample, in every frame that holds it
        pcm_blocks = chain(pcm_blocks, [bytes(NUM_FFT * BYTES_PER_SAMPLE)])
    num_mel_bins = tuple(num_mel_bins)
    maxima = dict.fromkeys(num_mel_bins, -np.inf)
    recording = Recording()
    start_frame = 0

    def measure_ready_windows() -> None:
        nonlocal start_frame
        while recording.window_is_ready(start_frame) and recording.window_frames(start_frame):
            power = power_spectrogram(recording.window_samples(start_frame))
            for bins in num_mel_bins:
                maxima[bins] = max(maxima[bins], float(log_mel_power(power, bins).max()))
            start_frame += WINDOW_FRAMES
            recording.discard_before(start_frame * HOP_SAMPLES)

    for pcm in pcm_blocks:
        recording.append(AudioChunk(recording.received_samples, pcm))
        measure_ready_windows()
    recording.append(AudioChunk(recording.received_samples, b"", is_last=True))
    measure_ready_windows()
    return maxima
