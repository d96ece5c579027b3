// The page's controls.

import { Connection } from "./connection.js";
import { Rival, progressOf } from "./race.js";
import { KEPT_MINUTES, PEAK_MS, Recorder } from "./recorder.js";
import { Microphone, Recording, SoundError } from "./sound.js";
import { apply, newState } from "./state.js";
import { toSrt, toVtt } from "./subtitles.js";
import { View } from "./view.js";

const RENDER_EVERY_MS = 80;
const RECORDING_MARK = "/*RECORDING*/";
const MAX_SENTENCES = 20; // read by screen readers; the transcript has all of them
const find = (id) => document.getElementById(id);
const form = find("settings");
const buttons = { sample: find("try-sample"), microphone: find("microphone"), file: find("open-file"), stop: find("stop") };
const sentences = find("sentences");
const view = new View(document, {
  onSentence: (text) => {
    sentences.append(Object.assign(document.createElement("p"), { textContent: text }));
    if (sentences.children.length > MAX_SENTENCES) sentences.firstChild.remove();
  },
});

let wanted = null; // the source that is opened or running
let session = null; // {source, connection, recorder, state, rival}
let renderTimer = 0;
let server = null; // as it describes itself, once it does

// Settings

function settings() {
  const { mode, latency, languages } = form.elements;
  return {
    mode: mode.value,
    added_latency_ms: Number(latency.value),
    languages: languages.value,
  };
}

function showSettings() {
  const { added_latency_ms } = settings();
  find("latency-value").value = `${added_latency_ms} ms`;
  form.elements.latency.setAttribute("aria-valuetext", `${added_latency_ms} milliseconds`);
}

function changeSettings() {
  showSettings();
  if (!session?.connection || session.state.isDone) return;
  const { mode, added_latency_ms } = settings();
  const now = session.connection.settings;
  if (mode === now.mode && added_latency_ms === now.added_latency_ms) return;
  session.connection.change({ mode, added_latency_ms });
  session.rival?.change({ added_latency_ms });
}

// A session

async function start(source, title, ownLanguage = "") {
  abandon();
  [session, wanted] = [null, source];
  view.clear();
  sentences.replaceChildren();
  showRace();
  setStatus("");
  setRunning(true);
  try {
    const key = await askServer();
    if (wanted !== source) return;
    if (key === null) return setRunning(false);
    await source.open();
    if (wanted !== source) return source.close();
    const recorder = new Recorder(title, { keepsSound: source.isPaced });
    const chosen = settings();
    const languages = chosen.languages || ownLanguage;
    const connection = new Connection({ sample_rate: source.sampleRate, ...chosen, languages, speakers: true }, key, {
      onMessage: (message) => session?.connection === connection && take(message),
      onState: (state, reason) => session?.connection === connection && showConnection(state, reason),
    });
    const rival = isRace() ? new Rival(find("rival"), { ...connection.settings }, key) : null;
    session = { source, connection, recorder, state: newState(source), rival };
    find("with-sound").disabled = !source.isPaced;
    connection.open();
    source.start(
      (pcm) => {
        recorder.append(pcm, source.sampleRate);
        connection.send(pcm);
        rival?.send(pcm);
        scheduleRender();
      },
      () => finish(),
      () => connection.isBusy || Boolean(rival?.isBusy),
    );
  } catch (error) {
    source.close();
    if (wanted !== source) return;
    setRunning(false);
    setStatus(error instanceof SoundError ? error.message : `Something went wrong: ${error.message}`, true);
    if (!(error instanceof SoundError)) console.error(error);
  }
}

function take(message) {
  session.recorder.note(message);
  apply(session.state, message, session.recorder.at);
  if (message.type !== "done") return scheduleRender();
  render(); // before the status says that it is complete
  end("The transcript is complete.");
}

// End the audio: the text becomes final.
function finish() {
  session.source.close();
  session.connection.finish();
  session.rival?.finish();
  buttons.stop.disabled = true;
  setStatus("Finishing …");
}

// Finish the session; without one, without audio, or if it is finishing already, stop at once.
function stop() {
  if (session?.connection.sentS && !session.connection.isFinished) return finish();
  abandon();
  setRunning(false);
  setStatus(session ? "Stopped before the transcript was complete." : "");
}

// Stop the source and the session, if any.
function abandon() {
  wanted?.close();
  session?.connection.close();
  session?.rival?.close();
  wanted = null;
}

function end(reason, isError = false) {
  session.source.close();
  setRunning(false);
  setStatus(reason, isError);
}

// Whether the target alone runs beside it: not beside itself.
function isRace() {
  return find("race").checked && settings().mode !== "target-only";
}

function showRace() {
  document.body.classList.toggle("race", isRace());
  find("rival").hidden = !isRace();
  find("own-progress").textContent = "";
}

function scheduleRender() {
  renderTimer ||= setTimeout(render, RENDER_EVERY_MS);
}

function render() {
  clearTimeout(renderTimer);
  renderTimer = 0;
  if (!session) return;
  const { state, recorder } = session;
  const { peaks, firstPeak } = recorder;
  const endS = ((firstPeak + peaks.length) * PEAK_MS) / 1000;
  view.render(state, { peaks, firstPeak, peakMs: PEAK_MS, endS }, recorder.at);
  if (session.rival) find("own-progress").textContent = progressOf(state, recorder.at);
  const hasText = state.finals.some((final) => final.text.trim());
  for (const button of document.querySelectorAll("#downloads button")) button.disabled = !hasText;
}

// The server

function keyHeaders() {
  const key = find("key").value.trim();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function askServer() {
  let reply;
  try {
    reply = await fetch("v1/models", { headers: keyHeaders() });
    if (reply.ok && !server) await showModels();
  } catch {
    setStatus("The gateway does not answer. Is it still running?", true, true);
    return null;
  }
  if (reply.ok) return find("key").value.trim();
  const { error } = await reply.json();
  if (reply.status === 401) {
    find("key-row").hidden = false;
    find("key").focus();
  }
  setStatus(error.message, true, reply.status >= 500);
  return null;
}

function showConnection(state, reason) {
  document.body.dataset.connection = state;
  if (state === "open") {
    const isListening = session.source instanceof Microphone;
    setStatus(reason || (isListening ? "Listening. Say something." : "Transcribing …"), Boolean(reason));
    buttons.stop.disabled = session.connection.isFinished;
  }
  if (state === "waiting") {
    setStatus(`${reason} Trying again …`, true, true);
    buttons.stop.disabled = false;
  }
  if (state === "failed") {
    end(reason, true);
    find("retry").hidden = false;
  }
}

// Status line and buttons

function setStatus(text, isError = false, mayRetry = false) {
  const status = find("status");
  status.textContent = text;
  status.classList.toggle("error", isError);
  find("retry").hidden = !mayRetry;
}

function setRunning(runs) {
  document.body.classList.toggle("running", runs);
  if (runs) document.body.classList.add("used"); // the explanation makes room for the text
  for (const name of ["sample", "microphone", "file"]) buttons[name].disabled = runs;
  find("race").disabled = runs || server?.draft_model === "";
  buttons.stop.disabled = !runs;
  form.elements.languages.disabled = runs;
}

function isRunning() {
  return document.body.classList.contains("running");
}

let again = () => {};
function startAgain(begin) {
  again = begin;
  return begin();
}

async function trySample() {
  const select = find("sample");
  const read = async () => (await fetch(`samples/${select.value}.wav`)).arrayBuffer();
  // The bundled pair detects no language, and all samples are English.
  return start(new Recording(read, options()), select.selectedOptions[0].textContent, "en");
}

function options() {
  return { atOnce: find("at-once").checked, isAudible: find("audible").checked };
}

async function openFile(file) {
  return start(new Recording(() => file.arrayBuffer(), options()), file.name);
}

// Downloads

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function saveReplay() {
  const { recorder } = session;
  try {
    const template = await (await fetch("page/replay.html")).text();
    const recording = await recorder.recording({ withSound: find("with-sound").checked });
    // The transcript must not contain an end tag, which would end the script.
    const written = JSON.stringify(recording).replaceAll("<", "\\u003c");
    download("replay.html", "text/html", template.replace(RECORDING_MARK, () => written));
    if (recorder.isCut) setStatus(`The replay has the last ${KEPT_MINUTES} minutes.`);
  } catch {
    setStatus("The gateway does not answer, and the replay needs its files. Try again later.", true);
  }
}

// Start

async function showServer() {
  setStatus("");
  try {
    const samples = await fetch("samples");
    const titles = (await samples.json()).map(({ name, title, seconds }) => [`${title}, ${Math.round(seconds)} s`, name]);
    find("sample").replaceChildren(...titles.map(([title, name]) => new Option(title, name)));
    find("sample").closest(".source").hidden = !titles.length;
    await showModels();
  } catch {
    setStatus("The gateway does not answer. Is it still running?", true, true);
  }
}

async function showModels() {
  const health = await fetch("health", { headers: keyHeaders() });
  const described = await health.json();
  if (!health.ok) return setStatus(described.error.message, true, true);
  if (!described.target_model) return; // without a key the gateway reports its status only
  server = described;
  find("known-languages").replaceChildren(...server.languages.map((code) => new Option(languageName(code), code)));
  if (!server.draft_model) offerTargetOnly();
  find("latency-row").hidden = !server.allows_latency_injection;
  if (!server.allows_latency_injection) form.elements.latency.value = 0;
  find("limits").hidden = !server.target_model.startsWith("demo-");
  find("race").disabled = isRunning() || !server.draft_model;
  find("pair").textContent = server.draft_model ? `${server.target_model}, drafted by ${server.draft_model}` : server.target_model;
}

function offerTargetOnly() {
  for (const radio of form.elements.mode) {
    radio.checked = radio.value === "target-only";
    radio.disabled = !radio.checked;
  }
  showSettings();
}

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

buttons.sample.addEventListener("click", () => startAgain(trySample));
buttons.microphone.addEventListener("click", () => startAgain(() => start(new Microphone(), "Microphone")));
buttons.file.addEventListener("click", () => find("file").click());
find("file").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  if (file) startAgain(() => openFile(file));
  target.value = "";
});
buttons.stop.addEventListener("click", stop);
find("retry").addEventListener("click", () => (isRunning() ? session?.connection.retry() : again()));
find("race").addEventListener("change", () => {
  if (find("race").checked) find("at-once").checked = true; // at the speed of speech both keep up
});
form.addEventListener("input", showSettings);
form.addEventListener("change", changeSettings);
for (const each of document.forms) each.addEventListener("submit", (event) => event.preventDefault());
find("key-row").addEventListener("submit", () => isRunning() || again());
find("save-srt").addEventListener("click", () => download("transcript.srt", "application/x-subrip", toSrt(session.state)));
find("save-vtt").addEventListener("click", () => download("transcript.vtt", "text/vtt", toVtt(session.state)));
find("save-replay").addEventListener("click", saveReplay);
addEventListener("resize", scheduleRender);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", scheduleRender);
again = showServer;
showSettings();
setRunning(false);
showServer();
