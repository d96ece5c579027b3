// Sources of sound: a microphone, or a recording that is sent in real time or at once.

const RECORDING_RATE = 16000;
const PIECE_S = 0.05;

// An error of a source, with a message for the user.
export class SoundError extends Error {}

export class Microphone {
  isPaced = true; // sound arrives in real time

  async open() {
    if (!window.isSecureContext) {
      throw new SoundError(
        "Browsers allow a microphone only on pages from https:// or localhost. Open this page as localhost, or serve the gateway over https.",
      );
    }
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({
        audio: { channelCount: 1, echoCancellation: false, autoGainControl: true, noiseSuppression: false },
      });
    } catch (error) {
      throw new SoundError(MICROPHONE_ERRORS[error.name] ?? `The microphone cannot be used: ${error.message}`);
    }
    this.context = new AudioContext();
    await this.context.audioWorklet.addModule("page/capture.js");
    await this.context.resume(); // one that is created long after a click may be suspended
    this.sampleRate = this.context.sampleRate;
  }

  // Pass samples on until it is closed.
  start(onPcm, onEnd) {
    const source = this.context.createMediaStreamSource(this.stream);
    this.node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => onPcm(data);
    source.connect(this.node);
    this.stream.getAudioTracks()[0].addEventListener("ended", onEnd);
  }

  close() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.context?.close();
    [this.stream, this.context] = [null, null];
  }
}

const MICROPHONE_ERRORS = {
  NotAllowedError: "The microphone was not allowed. Allow it in the browser's address bar, then start again.",
  NotFoundError: "No microphone was found. Connect one, or try a sample.",
  NotReadableError: "Another program uses the microphone. Close it, then start again.",
};

export class Recording {
  // `read` returns the file's bytes.
  constructor(read, { atOnce, isAudible }) {
    this.read = read;
    this.atOnce = atOnce;
    this.isPaced = !atOnce;
    this.isAudible = isAudible;
    this.sampleRate = RECORDING_RATE;
  }

  async open() {
    let data;
    try {
      data = await this.read();
    } catch {
      throw new SoundError("This recording cannot be read. Choose it again.");
    }
    try {
      const decoder = new OfflineAudioContext(1, 1, RECORDING_RATE);
      this.buffer = await decoder.decodeAudioData(data);
    } catch {
      throw new SoundError("The browser cannot decode this file. WAV, FLAC, MP3 and M4A usually work.");
    }
    this.samples = mixed(this.buffer);
  }

  // `isBusy` returns whether sending at once should wait.
  start(onPcm, onEnd, isBusy) {
    const piece = Math.round(RECORDING_RATE * PIECE_S);
    const startedMs = performance.now();
    if (this.isAudible && !this.atOnce) this.#play();
    let sent = 0;
    const step = () => {
      const elapsedS = (performance.now() - startedMs) / 1000;
      const due = this.atOnce ? this.samples.length : Math.min(this.samples.length, elapsedS * RECORDING_RATE);
      // Send a part, then let the page run.
      const until = Math.min(due, sent + 100 * piece);
      while (sent < this.samples.length && (sent + piece <= until || until === this.samples.length) && !(this.atOnce && isBusy())) {
        onPcm(this.samples.slice(sent, (sent += piece)));
      }
      if (sent < this.samples.length) this.timer = setTimeout(step, this.atOnce ? 10 : 25);
      else onEnd();
    };
    step();
  }

  close() {
    clearTimeout(this.timer);
    this.context?.close();
    this.context = null;
  }

  #play() {
    this.context = new AudioContext();
    const source = new AudioBufferSourceNode(this.context, { buffer: this.buffer });
    source.connect(this.context.destination);
    source.start();
  }
}

// Mix all channels into one, with 16 bits.
function mixed(buffer) {
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, i) => buffer.getChannelData(i));
  return Int16Array.from({ length: buffer.length }, (_, i) => {
    const mean = channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length;
    return Math.max(-32768, Math.min(32767, Math.round(mean * 32768)));
  });
}
