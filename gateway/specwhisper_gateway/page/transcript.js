// The text: grey while tentative, solid once stable or verified, black when final.

import { keyOf, matchWords, splitWords } from "./words.js";

const SHOW_CORRECTION_MS = 1600;
const SEEN_AFTER_MS = 120; // a word that was shown for less time was not read
const OF_TARGET = ["verified", "final"];
const NUM_COLORS = 6; // of speakers, in the style sheet

export class Transcript {
  // `onSentence` gets each sentence once it is final, for screen readers.
  constructor(root, { onSentence = () => {} } = {}) {
    this.root = root;
    this.onSentence = onSentence;
    this.clear();
  }

  clear() {
    this.root.replaceChildren();
    this.numFinals = 0; // final segments that are shown
    this.open = []; // words on the page that may still change
    this.paragraph = null;
    this.last = null; // the last final word's element
    this.sentence = "";
    this.paragraphs = new Map(); // by the number of their utterance
    this.isEnded = true; // whether the next text begins an utterance
  }

  // Show a state. `isQuiet`, after a jump in time: without corrections.
  render(state, { isQuiet = false } = {}) {
    if (state.finals.length < this.numFinals) this.clear();
    const words = [];
    for (const final of state.finals.slice(this.numFinals)) {
      for (const text of splitWords(final.text)) words.push({ text, status: "final", final });
      if (final.is_utterance_end) words.push({ text: "", status: "end", final });
    }
    this.numFinals = state.finals.length;
    const { verified, stable, tentative } = state;
    let end = 0;
    for (const text of splitWords(verified + stable + tentative)) {
      end += text.length; // a word is as stable as its end
      const ofDraft = state.isUnverified ? "unverified" : end <= (verified + stable).length ? "stable" : "tentative";
      words.push({ text, status: end <= verified.length ? "verified" : ofDraft });
    }
    this.#show(words, isQuiet);
    this.#nameSpeakers(state.speakers);
  }

  #nameSpeakers(speakers) {
    for (const [utterance, paragraph] of this.paragraphs) {
      const name = speakers[utterance] ?? "";
      if (paragraph.speaker.textContent === name) continue;
      paragraph.speaker.textContent = name;
      if (name) paragraph.element.dataset.color = (name.charCodeAt(name.length - 1) - 65) % NUM_COLORS;
      else delete paragraph.element.dataset.color;
    }
  }

  #show(words, isQuiet) {
    const shown = words.filter((word) => word.status !== "end");
    const { source, was } = matchWords(this.open.map((word) => word.key), shown.map((word) => keyOf(word.text)));
    const kept = new Set(source.filter((index) => index >= 0));
    this.open.forEach((word, index) => kept.has(index) || word.element.remove());
    const before = this.open;
    this.open = [];
    let [at, index, previous] = [performance.now(), 0, this.last];
    for (const word of words) {
      if (word.status === "end") {
        this.#endUtterance();
        previous = null;
        continue;
      }
      const old = before[source[index]];
      const entry = old ?? newWord(at);
      // The draft may reword its own text: only the target corrects.
      const wrong = OF_TARGET.includes(word.status) ? before[was[index]] : null;
      if (wrong && !isQuiet && at - wrong.since > SEEN_AFTER_MS) this.#showCorrection(entry, wrong.text);
      if (wrong) entry.since = at;
      this.#write(entry, word);
      this.#place(entry.element, previous, word);
      previous = entry.element;
      if (word.status === "final") this.#finish(entry, word.final);
      else this.open.push(entry);
      index += 1;
    }
  }

  #write(entry, { text, status }) {
    entry.key = keyOf(text);
    if (entry.text !== text) {
      entry.text = text;
      if (keyOf(entry.was?.dataset.was ?? "") === entry.key) hideCorrection(entry); // the earlier word is back
      entry.label.data = text.trimStart();
      entry.space.data = text.slice(0, text.length - text.trimStart().length);
    }
    if (entry.status !== status) entry.word.className = `word ${(entry.status = status)}`;
  }

  #place(element, previous, word) {
    if (this.isEnded) this.#beginUtterance(word.final?.start_s);
    if (word.final && !this.paragraph.time.textContent) this.paragraph.time.textContent = clock(word.final.start_s);
    const { words } = this.paragraph;
    const next = previous && previous.parentNode === words ? previous.nextSibling : words.firstChild;
    if (next !== element) words.insertBefore(element, next);
  }

  #finish(entry, final) {
    this.paragraphs.set(final.utterance, this.paragraph);
    entry.word.title = `${clock(final.start_s)} – ${clock(final.end_s)}`;
    this.last = entry.element;
    this.sentence += entry.text;
    if (/[.?!…。？！]$/u.test(entry.text)) this.#endSentence();
  }

  #endSentence() {
    if (this.sentence.trim()) this.onSentence(this.sentence.trim());
    this.sentence = "";
  }

  #beginUtterance(startS) {
    const [element, when, time, speaker, words] = ["p", "span", "time", "b", "span"].map((name) => document.createElement(name));
    [when.className, words.className] = ["when", "said"];
    if (startS !== undefined) time.textContent = clock(startS);
    when.append(time, " ", speaker);
    element.append(when, words);
    this.root.append(element);
    this.paragraph = { element, time, speaker, words };
    [this.isEnded, this.last] = [false, null];
  }

  #endUtterance() {
    this.#endSentence();
    if (!this.isEnded && !this.last) this.paragraph.element.remove(); // no word of it is left
    [this.isEnded, this.last] = [true, null];
  }

  // Show the replaced text, struck out, above the word for a moment. Ruby text has a place of its own, so
  // corrections of neighbours do not overlap.
  #showCorrection(entry, text) {
    if (!/[\p{L}\p{N}]/u.test(text)) return;
    hideCorrection(entry);
    entry.was = document.createElement("rt");
    entry.was.dataset.was = text.trim();
    entry.word.append(entry.was);
    entry.fading = setTimeout(() => hideCorrection(entry), SHOW_CORRECTION_MS);
  }
}

function hideCorrection(entry) {
  clearTimeout(entry.fading);
  entry.was?.remove();
  entry.was = null;
}

// A word, and the space before it, which is not part of the marked word.
function newWord(since) {
  const [element, word] = [document.createElement("span"), document.createElement("ruby")];
  const [space, label] = [document.createTextNode(""), document.createTextNode("")];
  word.append(label);
  element.append(space, word);
  return { element, word, label, space, since, text: "", status: "", key: "", was: null, fading: 0 };
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
