// Keeps a session as it happened, for a replay.

export const PEAK_MS = 50;

export class Recorder {
  constructor(title) {
    this.title = title;
    this.startedMs = performance.now();
    this.events = [];
    this.peaks = []; // 0..255, one for each PEAK_MS
    this.unheard = { samples: 0, peak: 0 };
  }

  get at() {
    return performance.now() - this.startedMs;
  }

  note(message) {
    this.events.push({ at: Math.round(this.at), ...message });
  }

  hear(pcm, sampleRate) {
    for (const sample of pcm) {
      this.unheard.peak = Math.max(this.unheard.peak, Math.abs(sample));
      if (++this.unheard.samples < (sampleRate * PEAK_MS) / 1000) continue;
      this.peaks.push(Math.min(255, Math.round(this.unheard.peak / 128)));
      this.unheard = { samples: 0, peak: 0 };
    }
  }

  toJSON() {
    const { title, peaks, events } = this;
    const about = `Recorded ${new Date().toLocaleString()}. All text, figures and times are as they were.`;
    return { version: 1, title, about, peak_ms: PEAK_MS, length_ms: Math.round(this.at), peaks, events };
  }
}
