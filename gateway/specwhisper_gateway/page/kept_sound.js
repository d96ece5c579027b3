// The last minutes of a session's sound, small enough to embed in a page.

const RATE = 16000; // Hz, the models' sample rate

export class KeptSound {
  constructor(maxS) {
    this.maxSamples = maxS * RATE;
    this.pieces = [];
    this.numSamples = 0;
  }

  get lengthS() {
    return this.numSamples / RATE;
  }

  add(pcm, sampleRate) {
    const piece = resampled(pcm, Math.round((pcm.length * RATE) / sampleRate));
    this.pieces.push(piece);
    this.numSamples += piece.length;
    while (this.numSamples > this.maxSamples) this.numSamples -= this.pieces.shift().length;
  }

  // Return it as a data URL of a WAV file.
  url() {
    const file = new Blob([waveHeader(this.numSamples), ...this.pieces], { type: "audio/wav" });
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
  }
}

// Each sample is the mean of the samples it replaces.
function resampled(pcm, length) {
  if (length === pcm.length) return pcm;
  const step = pcm.length / length;
  return Int16Array.from({ length }, (_, i) => {
    const part = pcm.subarray(Math.floor(i * step), Math.max(Math.floor(i * step) + 1, Math.floor((i + 1) * step)));
    return part.reduce((sum, sample) => sum + sample, 0) / part.length;
  });
}

function waveHeader(numSamples) {
  const numBytes = 2 * numSamples;
  const format = [[16, 4], [1, 2], [1, 2], [RATE, 4], [2 * RATE, 4], [2, 2], [16, 2]]; // 16-bit samples of one channel
  const fields = ["RIFF", [36 + numBytes, 4], "WAVEfmt ", ...format, "data", [numBytes, 4]];
  return Uint8Array.from(fields.flatMap((field) => (typeof field === "string" ? letters(field) : littleEndian(...field))));
}

function letters(word) {
  return [...word].map((letter) => letter.charCodeAt(0));
}

function littleEndian(value, numBytes) {
  return Array.from({ length: numBytes }, (_, i) => (value >>> (8 * i)) & 255);
}
