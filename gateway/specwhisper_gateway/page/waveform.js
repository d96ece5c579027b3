// The waveform of the last seconds; sound with final text has the colour of final text.

const SPAN_S = 20;
const BAR = 3; // pixels, with the gap

export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.style = getComputedStyle(canvas);
  }

  // `peaks`: 0..255, one for each `peakMs`, beginning with number `firstPeak`. `finalS`: end of the final text, in
  // seconds.
  render({ peaks, firstPeak, peakMs, endS, finalS }) {
    const { canvas } = this;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio)) {
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const [waiting, final, base] = ["--wave", "--wave-final", "--line"].map((name) => this.style.getPropertyValue(name));
    context.fillStyle = base;
    context.fillRect(0, height / 2 - 0.5, width, 1);
    // Bars have fixed times, so that they move and do not flicker.
    const barS = (SPAN_S * BAR) / width;
    const startS = Math.max(0, endS - SPAN_S);
    for (let bar = Math.floor(startS / barS); bar * barS < endS; bar++) {
      const from = Math.floor((bar * barS * 1000) / peakMs);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * barS * 1000) / peakMs));
      let peak = 0;
      for (let i = from; i < to; i++) peak = Math.max(peak, peaks[i - firstPeak] ?? 0);
      const length = Math.max(1, (peak / 255) ** 0.7 * (height - 4));
      context.fillStyle = bar * barS < finalS ? final : waiting;
      context.fillRect(((bar * barS - startS) / SPAN_S) * width, (height - length) / 2, BAR - 1, length);
    }
  }
}
