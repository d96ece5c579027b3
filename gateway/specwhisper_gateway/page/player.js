// A clock over recorded messages: it plays, pauses and seeks.

import { apply, newState } from "./state.js";

export class Player {
  // `onChange` gets the state, the time in ms, and whether it is a jump.
  constructor(recording, onChange) {
    this.recording = recording;
    this.onChange = onChange;
    this.lengthMs = Math.max(recording.length_ms, recording.events.at(-1)?.at ?? 0);
    this.isPlaying = false;
    this.seek(0);
  }

  play() {
    if (this.at >= this.lengthMs) this.seek(0);
    this.isPlaying = true;
    this.since = performance.now() - this.at;
    const step = () => {
      if (!this.isPlaying) return;
      this.#goTo(Math.min(performance.now() - this.since, this.lengthMs), false);
      if (this.at >= this.lengthMs) this.pause();
      else this.timer = setTimeout(step, 50);
    };
    step();
  }

  pause() {
    this.isPlaying = false;
    clearTimeout(this.timer);
    this.onChange(this.state, this.at, false);
  }

  seek(at) {
    [this.state, this.next] = [newState({ isPaced: this.recording.is_paced }), 0]; // from the start: messages cannot be undone
    this.since = performance.now() - at;
    this.#goTo(at, true);
  }

  #goTo(at, isJump) {
    const { events } = this.recording;
    this.at = at;
    while (this.next < events.length && events[this.next].at <= at) {
      const event = events[this.next++];
      apply(this.state, event, event.at);
    }
    this.onChange(this.state, at, isJump);
  }
}
