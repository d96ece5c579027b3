// The state of a session, built from its messages, live or in a replay.

import { splitWords } from "./words.js";

const AHEAD_MS = 1000; // of sound that arrives as it is said
const FIGURES_SPAN_MS = 6000; // ratios cover the last seconds, so that changes show
const POINT_EVERY_MS = 250;
const MAX_POINTS = 240;

export function newState() {
  return {
    finals: [], // {text, start_s, end_s, utterance, is_utterance_end}
    speakers: {}, // of utterances, by number
    verified: "",
    stable: "",
    tentative: "",
    isUnverified: false,
    receivedS: 0,
    sentS: 0,
    numFinal: 0, // final words
    shownS: [], // of each word, the sound that was sent when it was shown
    delay: null, // {shownS, finalS}: seconds from the end of the last final word until it was shown, and final
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
  const last = message.finals.findLast((final) => final.text.trim());
  for (const final of message.finals) state.numFinal += splitWords(final.text).length;
  const numShown = state.numFinal + splitWords(state.verified + state.stable + state.tentative).length;
  if (state.shownS.length > numShown) state.shownS.length = numShown; // words that were taken back
  while (state.shownS.length < numShown) state.shownS.push(state.sentS);
  if (!last || message.sent_s === undefined || 1000 * message.sent_s > at + AHEAD_MS) return;
  const [shownS, finalS] = [state.shownS[state.numFinal - 1], state.sentS].map((sentS) => Math.max(0, sentS - last.end_s));
  state.delay = { shownS, finalS };
  addPoint(state.series.lag, at, finalS);
}

export function describeDelay({ delay }) {
  if (!delay) return "";
  const [shown, final] = [delay.shownS.toFixed(1), delay.finalS.toFixed(1)];
  return `Words appear ${shown} s after they are said. A sentence is final ${final} s after its end.`;
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
