// The page of a recorded session, without server or network.

import { Playback } from "./playback.js";
import { Player } from "./player.js";
import { clock } from "./transcript.js";
import { View } from "./view.js";

const recording = JSON.parse(document.querySelector("#recording").textContent);
const [button, slider, time, sentences, audible, audio] = ["#play", "#seek", "#time", "#sentences", "#audible", "#sound"].map(
  (id) => document.querySelector(id),
);
const playback = recording.sound ? new Playback(audio, recording.sound) : null;
const view = new View(document, {
  onSentence: (sentence) => {
    if (player?.isPlaying) sentences.append(Object.assign(document.createElement("p"), { textContent: sentence }));
  },
});
let player = null;
let shownAt = -Infinity;

function show(state, at, isJump) {
  if (isJump) view.clear();
  const isDue = isJump || !player?.isPlaying || at - shownAt >= 80;
  if (isDue) {
    shownAt = at;
    const endS = Math.max(state.sentS, state.receivedS);
    view.render(state, { peaks: recording.peaks, firstPeak: recording.first_peak, peakMs: recording.peak_ms, endS }, at, { isQuiet: isJump });
  }
  slider.value = Math.round(at);
  slider.setAttribute("aria-valuetext", `${clock(at / 1000)} of ${clock(player ? player.lengthMs / 1000 : 0)}`);
  time.textContent = `${clock(at / 1000)} / ${clock((player?.lengthMs ?? 0) / 1000)}`;
  button.textContent = player?.isPlaying ? "Pause" : "Play";
  playback?.follow(at, Boolean(player?.isPlaying));
}

document.querySelector("#title").textContent = recording.title;
document.querySelector("#about").textContent = recording.about;
player = new Player(recording, show);
slider.max = Math.round(player.lengthMs);
slider.addEventListener("input", () => player.seek(Number(slider.value)));
button.addEventListener("click", () => (player.isPlaying ? player.pause() : player.play()));
audible.closest("label").hidden = !playback;
audible.addEventListener("change", () => (audio.muted = !audible.checked));
player.seek(0);
