// The target alone, on the same audio and at the same time: what a draft is compared with.

import { Connection } from "./connection.js";
import { apply, newState } from "./state.js";
import { Transcript } from "./transcript.js";

export class Rival {
  // `root`: an element with a transcript and a progress text.
  constructor(root, settings, key) {
    this.root = root;
    this.progress = root.querySelector(".progress");
    this.transcript = new Transcript(root.querySelector(".transcript"));
    this.startedMs = performance.now();
    this.state = newState();
    this.isOpen = false;
    this.progress.textContent = "";
    this.connection = new Connection({ ...settings, mode: "target-only", speakers: false }, key, {
      onMessage: (message) => this.#take(message),
      onState: (state, reason) => this.#show(state, reason),
    });
    this.connection.open();
  }

  send(pcm) {
    this.connection.send(pcm);
  }

  // No audio follows.
  finish() {
    this.connection.finish();
  }

  close() {
    this.connection.close();
  }

  // A rival without a connection delays nothing: its lane has the reason.
  get isBusy() {
    return this.isOpen && this.connection.isBusy;
  }

  change(settings) {
    this.connection.change({ ...settings, mode: "target-only" });
  }

  #take(message) {
    const atMs = performance.now() - this.startedMs;
    apply(this.state, message, atMs);
    this.transcript.render(this.state);
    this.transcript.root.scrollTop = this.transcript.root.scrollHeight;
    this.progress.textContent = progressOf(this.state, atMs);
  }

  #show(state, reason) {
    this.isOpen = state === "open";
    if (state === "waiting" || state === "failed") this.progress.textContent = reason;
  }
}

// How far a lane is: its final words, and its time once it is complete.
export function progressOf(state, atMs) {
  const words = state.finals.reduce((sum, final) => sum + (final.text.match(/\S+/g)?.length ?? 0), 0);
  return state.isDone ? `${words} words, complete after ${(atMs / 1000).toFixed(1)} s` : `${words} words final`;
}
