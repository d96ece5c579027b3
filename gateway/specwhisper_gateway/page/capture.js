// Runs in the audio thread: passes the microphone's samples on, twenty times a second.

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.samples = new Int16Array(Math.round(sampleRate / 20));
    this.length = 0;
  }

  process([[channel]]) {
    for (const sample of channel ?? []) {
      this.samples[this.length++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.length < this.samples.length) continue;
      this.port.postMessage(this.samples);
      this.length = 0;
    }
    return true;
  }
}

registerProcessor("capture", Capture);
