// The state of a session, built from its messages, live or in a replay.

import { keyOf, matchWords, splitWords } from "./words.js";

const NUM_DELAYS = 9; // their median is shown
const FIGURES_SPAN_MS = 6000; // ratios cover the last seconds, so that changes show
const POINT_EVERY_MS = 250;
const MAX_POINTS = 240;

// `isPaced`: the sound arrives as it is said, so that words have a delay.
export function newState({ isPaced = false } = {}) {
  return {
    isPaced,
    finals: [], // {text, start_s, end_s, utterance, is_utterance_end}
    speakers: {}, // of utterances, by number
    verified: "",
    stable: "",
    tentative: "",
    isUnverified: false,
    receivedS: 0,
    sentS: 0,
    open: [], // words that may still change: {key, at}, since when each has been shown
    sent: [], // how much sound was sent when: {at, sentS}, as far back as words may still become final
    delays: [], // of the last words of final texts: {shownS, finalS}, seconds from a word's end
    model: null,
    statistics: null,
    series: { acceptance: [], tokens: [], roundTrip: [], lag: [] }, // of {at, value}
    snapshots: [],
    isDone: false,
  };
}

// Apply a message; `at` is its time in milliseconds since the session began.
export function apply(state, message, at) {
  switch (message.type) {
    case "ready":
      state.model = message;
      break;
    case "update":
      applyText(state, message, at);
      if (message.statistics) applyFigures(state, message.statistics, at);
      break;
    case "speaker":
      state.speakers[message.utterance] = message.speaker;
      break;
    case "done":
      state.isDone = true;
      [state.verified, state.stable, state.tentative] = ["", "", ""];
      break;
  }
}

function applyText(state, message, at) {
  state.finals.push(...message.finals);
  state.verified = message.verified;
  state.stable = message.stable;
  state.tentative = message.tentative;
  state.isUnverified = message.is_unverified;
  state.receivedS = Math.max(state.receivedS, message.received_s);
  state.sentS = Math.max(state.sentS, message.sent_s ?? 0);
  if (state.isPaced && message.sent_s !== undefined) applyDelays(state, message.finals, at);
}

function applyDelays(state, finals, at) {
  state.sent.push({ at, sentS: state.sentS });
  const texts = finals.map((final) => splitWords(final.text));
  const words = [...texts.flat(), ...splitWords(state.verified + state.stable + state.tentative)].map(keyOf);
  const { source } = matchWords(state.open.map(({ key }) => key), words);
  const shown = words.map((key, index) => ({ key, at: state.open[source[index]]?.at ?? at }));
  let numFinal = 0;
  for (const [index, final] of finals.entries()) {
    numFinal += texts[index].length;
    const saidAt = timeOf(final.end_s, state.sent);
    if (!texts[index].length || saidAt === null) continue;
    const delay = { shownS: (shown[numFinal - 1].at - saidAt) / 1000, finalS: (at - saidAt) / 1000 };
    state.delays.push(delay);
    addPoint(state.series.lag, at, delay.finalS);
  }
  state.delays.splice(0, state.delays.length - NUM_DELAYS);
  state.open = shown.slice(numFinal);
  while (state.sent[1]?.sentS < lastFinalS(state)) state.sent.shift();
}

// The time at which sound was sent up to a second of it; null if it never was.
function timeOf(soundS, sent) {
  const index = sent.findIndex(({ sentS }) => sentS >= soundS);
  if (index < 0) return null;
  const after = sent[index];
  const before = sent[index - 1] ?? { at: after.at - 1000 * after.sentS, sentS: 0 };
  if (after.sentS === before.sentS) return after.at;
  return before.at + ((after.at - before.at) * (soundS - before.sentS)) / (after.sentS - before.sentS);
}

export function describeDelay({ delays }) {
  if (!delays.length) return "";
  const [shown, final] = ["shownS", "finalS"].map((name) => median(delays.map((delay) => delay[name])));
  const when = Math.round(10 * shown) < 0 ? "before" : "after"; // a draft may guess a word
  return `Words appear ${Math.abs(shown).toFixed(1)} s ${when} they are said. A sentence is final ${final.toFixed(1)} s after its end.`;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

function applyFigures(state, now, at) {
  state.statistics = now;
  state.snapshots.push({ at, ...now });
  while (state.snapshots.length > 2 && state.snapshots[1].at < at - FIGURES_SPAN_MS) state.snapshots.shift();
  const then = state.snapshots.length > 1 ? state.snapshots[0] : { verified: 0, accepted: 0, committed: 0, passes: 0 };
  const since = (name) => now[name] - then[name];
  if (since("verified") > 0) addPoint(state.series.acceptance, at, since("accepted") / since("verified"));
  if (since("passes") > 0) addPoint(state.series.tokens, at, since("committed") / since("passes"));
  if (now.round_trip_ms > 0) addPoint(state.series.roundTrip, at, now.round_trip_ms);
}

// Keep one point for each quarter of a second, the last one.
function addPoint(points, at, value) {
  const last = points.at(-1);
  if (last && at - last.at < POINT_EVERY_MS) last.value = value;
  else points.push({ at, value });
  if (points.length > MAX_POINTS) points.shift();
}

export function lastFinalS(state) {
  return state.finals.at(-1)?.end_s ?? 0;
}
