// Final text as subtitles: one cue for each sentence, or several if it is long.

const MAX_CHARACTERS = 84; // two lines of 42
const MAX_CUE_S = 7;

// `speakers`: names by the number of the utterance.
export function cues(finals, speakers = {}) {
  const found = [];
  let cue = null;
  const flush = () => {
    if (cue?.text.trim()) found.push({ ...cue, text: cue.text.trim() });
    cue = null;
  };
  for (const final of finals) {
    const isTooLong = cue && ((cue.text + final.text).trim().length > MAX_CHARACTERS || final.end_s - cue.start_s > MAX_CUE_S);
    if (isTooLong && /^\s/.test(final.text)) flush();
    if (final.text.trim()) {
      cue ??= { start_s: final.start_s, end_s: final.end_s, text: "", speaker: speakers[final.utterance] ?? "" };
      [cue.text, cue.end_s] = [cue.text + final.text, Math.max(cue.end_s, final.end_s)];
    }
    if (final.is_utterance_end || /[.?!…。？！]\s*$/u.test(final.text)) flush();
  }
  flush();
  return found;
}

export function toSrt({ finals, speakers }) {
  const name = (cue) => (cue.speaker ? `${cue.speaker}: ` : "");
  const blocks = cues(finals, speakers).map((cue, i) => `${i + 1}\n${stamp(cue.start_s, ",")} --> ${stamp(cue.end_s, ",")}\n${name(cue)}${cue.text}\n`);
  return blocks.join("\n");
}

export function toVtt({ finals, speakers }) {
  const voice = (cue) => (cue.speaker ? `<v ${cue.speaker}>` : "");
  const blocks = cues(finals, speakers).map((cue) => `${stamp(cue.start_s, ".")} --> ${stamp(cue.end_s, ".")}\n${voice(cue)}${escaped(cue.text)}\n`);
  return ["WEBVTT\n", ...blocks].join("\n");
}

function stamp(seconds, separator) {
  const ms = Math.round(seconds * 1000);
  const parts = [ms / 3600000, (ms / 60000) % 60, (ms / 1000) % 60].map((part) => String(Math.floor(part)).padStart(2, "0"));
  return `${parts.join(":")}${separator}${String(ms % 1000).padStart(3, "0")}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
