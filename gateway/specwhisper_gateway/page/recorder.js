// Records a session for a replay: its last minutes, so that hours of it do not fill the memory.

import { KeptSound } from "./kept_sound.js";

export const PEAK_MS = 50;
export const KEPT_MINUTES = 10;
const KEPT_MS = KEPT_MINUTES * 60000;
const MAX_PEAKS = 3600000 / PEAK_MS; // an hour: audio that is sent at once is ahead of the clock

export class Recorder {
  // `keepsSound`: keep the sound too; only sound in real time matches a replay.
  constructor(title, { keepsSound = false } = {}) {
    this.title = title;
    this.startedMs = performance.now();
    this.lastMs = 0; // of the last message or sound
    this.events = [];
    this.model = null; // the last discarded event that names the model
    this.peaks = []; // 0..255, one for each PEAK_MS
    this.firstPeak = 0; // number of discarded peaks
    this.pending = { samples: 0, peak: 0 };
    this.soundEndMs = 0;
    this.sound = keepsSound ? new KeptSound(KEPT_MS / 1000) : null;
  }

  get at() {
    return performance.now() - this.startedMs;
  }

  // Whether the session is longer than its recording.
  get isCut() {
    return this.lastMs > KEPT_MS;
  }

  // Record a message, without its resume point, which a replay does not show.
  note({ resume_point, ...message }) {
    this.lastMs = this.at;
    this.events.push({ at: Math.round(this.lastMs), ...message });
    this.#discard();
  }

  append(pcm, sampleRate) {
    this.lastMs = this.at;
    this.sound?.add(pcm, sampleRate);
    for (const sample of pcm) {
      this.pending.peak = Math.max(this.pending.peak, Math.abs(sample));
      if (++this.pending.samples < (sampleRate * PEAK_MS) / 1000) continue;
      this.peaks.push(Math.min(255, Math.round(this.pending.peak / 128)));
      this.pending = { samples: 0, peak: 0 };
    }
    this.soundEndMs = this.lastMs;
    this.#discard();
  }

  // Return the data of a replay; its clock begins with the first kept event.
  async recording({ withSound = false } = {}) {
    const startMs = Math.max(0, Math.round(this.lastMs) - KEPT_MS);
    const span = this.isCut ? ` These are its last ${KEPT_MINUTES} minutes.` : "";
    const events = this.model ? [{ ...this.model, at: startMs }, ...this.events] : this.events;
    const recording = {
      version: 1,
      is_paced: Boolean(this.sound),
      title: this.title,
      about: `Recorded ${new Date().toLocaleString()}.${span} Text, statistics and times are as recorded.`,
      peak_ms: PEAK_MS,
      first_peak: this.firstPeak,
      length_ms: Math.round(this.lastMs) - startMs,
      peaks: this.peaks,
      events: events.map((event) => ({ ...event, at: event.at - startMs })),
    };
    if (!withSound || !this.sound?.lengthS) return recording;
    const at = Math.round(this.soundEndMs - 1000 * this.sound.lengthS) - startMs;
    return { ...recording, sound: { at, url: await this.sound.url() } };
  }

  #discard() {
    while (this.events[0]?.at < this.lastMs - KEPT_MS) {
      const event = this.events.shift();
      if (event.type === "ready") this.model = event;
    }
    const excess = this.peaks.length - MAX_PEAKS;
    if (excess > 0) this.firstPeak += this.peaks.splice(0, excess).length;
  }
}
