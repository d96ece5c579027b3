// Keeps a session as it happened, for a replay: its last minutes, so that hours of it do not fill the memory.

import { KeptSound } from "./kept_sound.js";

export const PEAK_MS = 50;
export const KEPT_MINUTES = 10;
const KEPT_MS = KEPT_MINUTES * 60000;
const MAX_PEAKS = 3600000 / PEAK_MS; // an hour: what is sent at once is ahead of the clock

export class Recorder {
  // `keepsSound` where sound comes as fast as it is heard: other sound would not go with a replay.
  constructor(title, { keepsSound = false } = {}) {
    this.title = title;
    this.startedMs = performance.now();
    this.lastMs = 0; // when something was noted or heard last
    this.events = [];
    this.model = null; // the last event that named it, of those that are forgotten
    this.peaks = []; // 0..255, one for each PEAK_MS
    this.firstPeak = 0; // how many are forgotten
    this.unheard = { samples: 0, peak: 0 };
    this.soundEndMs = 0;
    this.sound = keepsSound ? new KeptSound(KEPT_MS / 1000) : null;
  }

  get at() {
    return performance.now() - this.startedMs;
  }

  // Whether there was more than is kept.
  get isCut() {
    return this.lastMs > KEPT_MS;
  }

  // Where another session would go on is nothing that a replay shows.
  note({ position, ...message }) {
    this.lastMs = this.at;
    this.events.push({ at: Math.round(this.lastMs), ...message });
    this.#forget();
  }

  hear(pcm, sampleRate) {
    this.lastMs = this.at;
    this.sound?.add(pcm, sampleRate);
    for (const sample of pcm) {
      this.unheard.peak = Math.max(this.unheard.peak, Math.abs(sample));
      if (++this.unheard.samples < (sampleRate * PEAK_MS) / 1000) continue;
      this.peaks.push(Math.min(255, Math.round(this.unheard.peak / 128)));
      this.unheard = { samples: 0, peak: 0 };
    }
    this.soundEndMs = this.lastMs;
    this.#forget();
  }

  // What a replay plays: its clock begins with what is kept.
  async recording({ withSound = false } = {}) {
    const startMs = Math.max(0, Math.round(this.lastMs) - KEPT_MS);
    const span = this.isCut ? ` These are its last ${KEPT_MINUTES} minutes.` : "";
    const events = this.model ? [{ ...this.model, at: startMs }, ...this.events] : this.events;
    const recording = {
      version: 1,
      title: this.title,
      about: `Recorded ${new Date().toLocaleString()}.${span} All text, figures and times are as they were.`,
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

  #forget() {
    while (this.events[0]?.at < this.lastMs - KEPT_MS) {
      const event = this.events.shift();
      if (event.type === "ready") this.model = event;
    }
    const excess = this.peaks.length - MAX_PEAKS;
    if (excess > 0) this.firstPeak += this.peaks.splice(0, excess).length;
  }
}
