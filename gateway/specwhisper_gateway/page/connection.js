// The WebSocket to the gateway. Audio that is not final is kept: where the connection is lost, another one goes on
// from the last final word and neither loses nor repeats one.

const SUBPROTOCOL = "specwhisper.live";
const KEY_SUBPROTOCOL = "openai-insecure-api-key.";
const TRY_AGAIN = [1001, 1006, 1012, 1013]; // gone, lost, restarting, full or unreachable
const WAITS_MS = [500, 1000, 2000, 4000, 8000]; // and on like this, for as long as sound is kept
const MAX_UNSENT_BYTES = 512 * 1024;
const MAX_KEPT_S = 600; // an outage that is longer loses what was said first
const POSITION_RATE = 16000; // Hz of a position's samples
const FRAME_SAMPLES = 160; // a position is a multiple of it
const COUNTS = ["drafted", "verified", "accepted", "committed", "passes", "steps"];

export class Connection {
  // `onMessage` is told what the gateway says; times and counts are of all that was ever sent. `onState` is one of
  // connecting, open, waiting, failed, closed, and what is to be said of it.
  constructor(settings, key, { onMessage, onState }) {
    this.settings = settings;
    this.key = key;
    this.onMessage = onMessage;
    this.onState = onState;
    this.kept = []; // pieces that are not final yet: {startS, pcm}
    this.sentS = 0;
    this.counts = {}; // of all connections
    this.countsBefore = {}; // of those before this one
    this.position = null; // where another connection would go on, as the last update told it
    this.numFailures = 0;
    this.lostMs = null; // when the gateway was lost, until it is heard again
    this.isFinished = false;
    this.isClosed = false;
  }

  open() {
    const protocols = [SUBPROTOCOL, ...(this.key ? [KEY_SUBPROTOCOL + this.key] : [])];
    const url = new URL("live", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    this.timer = 0;
    this.onState("connecting");
    this.error = null;
    this.socket = new WebSocket(url, protocols);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => this.#begin());
    this.socket.addEventListener("message", ({ data }) => this.#hear(JSON.parse(data)));
    this.socket.addEventListener("close", ({ code }) => this.#lost(code));
  }

  send(pcm) {
    if (this.isFinished) return; // a microphone's last piece comes after its end
    const piece = { startS: this.sentS, pcm };
    this.sentS += pcm.length / this.settings.sample_rate;
    this.kept.push(piece);
    while (this.sentS - this.kept[0].startS > MAX_KEPT_S) this.kept.shift();
    if (this.#isOpen) this.socket.send(pcm);
  }

  // How far the network is behind, for those who could send faster than it takes.
  get isBusy() {
    return !this.#isOpen || this.socket.bufferedAmount > MAX_UNSENT_BYTES;
  }

  change(settings) {
    Object.assign(this.settings, settings);
    const { mode, gamma, added_latency_ms } = this.settings;
    this.#tell({ type: "change", mode, gamma, added_latency_ms });
  }

  finish() {
    this.isFinished = true;
    this.#tell({ type: "finish" });
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }

  // Try now what would be tried in a while.
  retry() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.numFailures = 0;
    this.open();
  }

  get #isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  #tell(message) {
    if (this.#isOpen) this.socket.send(JSON.stringify(message));
  }

  #begin() {
    this.countsBefore = this.counts;
    const lostS = this.#passOver();
    const position = this.position ? { position: this.position } : {};
    this.#tell({ type: "start", ...this.settings, ...position });
    for (const { startS, pcm } of this.kept) {
      const before = Math.round((this.#positionS - startS) * this.settings.sample_rate);
      this.socket.send(pcm.subarray(Math.max(0, before)));
    }
    if (this.isFinished) this.#tell({ type: "finish" });
    this.onState("open", lostS > 0 ? `${Math.ceil(lostS)} s of sound could not be kept for so long: their words are lost.` : "");
  }

  // Go on where what is kept begins, if that is behind the position; tells how many seconds lie between.
  #passOver() {
    const lostS = (this.kept[0]?.startS ?? 0) - this.#positionS;
    if (lostS * POSITION_RATE < 1) return 0;
    const frames = Math.ceil((this.kept[0].startS * POSITION_RATE) / FRAME_SAMPLES);
    this.position = { ...this.position, start_sample: frames * FRAME_SAMPLES, final_tokens: [] };
    return lostS;
  }

  #hear(message) {
    if (message.type === "error") this.error = message;
    else [this.numFailures, this.lostMs] = [0, null];
    if (message.type === "done") this.isClosed = true;
    if (message.type === "update") this.#place(message);
    if (message.statistics) this.#count(message.statistics);
    this.onMessage(message);
  }

  #place(message) {
    message.sent_s = this.sentS;
    this.position = message.position;
    const endS = ({ startS, pcm }) => startS + pcm.length / this.settings.sample_rate;
    while (this.kept.length && endS(this.kept[0]) <= this.#positionS) this.kept.shift();
  }

  // Each connection counts anew.
  #count(statistics) {
    for (const name of COUNTS) statistics[name] += this.countsBefore[name] ?? 0;
    this.counts = statistics;
  }

  get #positionS() {
    return (this.position?.start_sample ?? 0) / POSITION_RATE;
  }

  #lost(code) {
    if (this.isClosed) return this.onState("closed");
    this.lostMs ??= performance.now();
    const isOver = performance.now() - this.lostMs > MAX_KEPT_S * 1000;
    if (!TRY_AGAIN.includes(code) || isOver) {
      this.onState("failed", this.error?.message ?? `The connection was lost (code ${code}).`);
      return;
    }
    this.onState("waiting", this.error?.message ?? "The gateway does not answer.");
    this.timer = setTimeout(() => this.open(), WAITS_MS[this.numFailures++] ?? WAITS_MS.at(-1));
  }
}
