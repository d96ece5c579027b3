// The WebSocket to the gateway. Audio without final text is kept: if the connection is lost, a new one resumes
// after the last final word, and no word is lost or repeated.

const SUBPROTOCOL = "specwhisper.live";
const KEY_SUBPROTOCOL = "openai-insecure-api-key.";
const TRY_AGAIN = [1001, 1006, 1012, 1013]; // gone, lost, restarting, full or unreachable
const WAITS_MS = [500, 1000, 2000, 4000, 8000]; // then 8 s, for as long as audio is kept
const MAX_UNSENT_BYTES = 512 * 1024;
const MAX_KEPT_S = 600; // a longer outage loses the first audio
const RESUME_RATE = 16000; // Hz of a resume point's samples
const PIECE_SAMPLES = 320; // its sample is a multiple of it
const COUNTS = ["drafted", "verified", "accepted", "committed", "passes", "steps"];

export class Connection {
  // `onMessage` gets the gateway's messages, with times and counts of all connections. `onState` gets one of
  // connecting, open, waiting, failed, closed, and a reason to show.
  constructor(settings, key, { onMessage, onState }) {
    this.settings = settings;
    this.key = key;
    this.onMessage = onMessage;
    this.onState = onState;
    this.kept = []; // pieces without final text: {startS, pcm}
    this.sentS = 0;
    this.counts = {}; // of all connections
    this.countsBefore = {}; // of earlier connections
    this.resumePoint = null; // where a new connection resumes, from the last update
    this.numFailures = 0;
    this.lostMs = null; // when the connection was lost, until the gateway answers
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
    this.socket.addEventListener("message", ({ data }) => this.#onMessage(JSON.parse(data)));
    this.socket.addEventListener("close", ({ code }) => this.#lost(code));
  }

  send(pcm) {
    if (this.isFinished) return; // a microphone's last piece arrives after its end
    const piece = { startS: this.sentS, pcm };
    this.sentS += pcm.length / this.settings.sample_rate;
    this.kept.push(piece);
    while (this.sentS - this.kept[0].startS > MAX_KEPT_S) this.kept.shift();
    if (this.#isOpen) this.socket.send(pcm);
  }

  // Whether the network takes audio more slowly than it is sent.
  get isBusy() {
    return !this.#isOpen || this.socket.bufferedAmount > MAX_UNSENT_BYTES;
  }

  change(settings) {
    Object.assign(this.settings, settings);
    const { mode, added_latency_ms } = this.settings;
    this.#send({ type: "change", mode, added_latency_ms });
  }

  finish() {
    this.isFinished = true;
    this.#send({ type: "finish" });
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }

  // Reconnect now instead of after the wait.
  retry() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.numFailures = 0;
    this.open();
  }

  get #isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  #send(message) {
    if (this.#isOpen) this.socket.send(JSON.stringify(message));
  }

  #begin() {
    this.countsBefore = this.counts;
    const lostS = this.#skipLostAudio();
    const point = this.resumePoint ? { resume_point: this.resumePoint } : {};
    this.#send({ type: "start", ...this.settings, ...point });
    for (const { startS, pcm } of this.kept) {
      const before = Math.round((this.#resumeS - startS) * this.settings.sample_rate);
      this.socket.send(pcm.subarray(Math.max(0, before)));
    }
    if (this.isFinished) this.#send({ type: "finish" });
    this.onState("open", lostS > 0 ? `${Math.ceil(lostS)} s of sound were lost, because the outage was too long.` : "");
  }

  // If audio after the resume point is lost, continue at the first kept audio. Returns the lost seconds.
  #skipLostAudio() {
    const lostS = (this.kept[0]?.startS ?? 0) - this.#resumeS;
    if (lostS * RESUME_RATE < 1) return 0;
    const sample = Math.ceil((this.kept[0].startS * RESUME_RATE) / PIECE_SAMPLES) * PIECE_SAMPLES;
    if (this.resumePoint) this.resumePoint = { ...this.resumePoint, start_sample: sample };
    return lostS;
  }

  #onMessage(message) {
    if (message.type === "error") this.error = message.error;
    else [this.numFailures, this.lostMs] = [0, null];
    if (message.type === "done") this.isClosed = true;
    if (message.type === "update") this.#keep(message);
    if (message.statistics) this.#count(message.statistics);
    this.onMessage(message);
  }

  #keep(message) {
    message.sent_s = this.sentS;
    this.resumePoint = message.resume_point ?? this.resumePoint;
    const endS = ({ startS, pcm }) => startS + pcm.length / this.settings.sample_rate;
    while (this.kept.length && endS(this.kept[0]) <= this.#resumeS) this.kept.shift();
  }

  // Each connection counts from 0.
  #count(statistics) {
    for (const name of COUNTS) statistics[name] += this.countsBefore[name] ?? 0;
    this.counts = statistics;
  }

  get #resumeS() {
    return (this.resumePoint?.start_sample ?? 0) / RESUME_RATE;
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
