// The sound of a recorded session, which follows the player's clock.

const MAX_DRIFT_S = 0.15;

export class Playback {
  // `at`: when the sound begins, in milliseconds of the session.
  constructor(audio, { at, url }) {
    this.audio = audio;
    this.startMs = at;
    audio.src = url;
  }

  follow(at, isPlaying) {
    const seconds = (at - this.startMs) / 1000;
    if (!isPlaying || !(seconds >= 0 && seconds < this.audio.duration)) return this.audio.pause();
    if (Math.abs(this.audio.currentTime - seconds) > MAX_DRIFT_S) this.audio.currentTime = seconds;
    if (this.audio.paused) this.audio.play().catch(() => {}); // it was paused meanwhile
  }
}
