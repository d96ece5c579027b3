// Shows a state on the page: text, statistics and waveform.

import { Chart } from "./charts.js";
import { Link } from "./link.js";
import { describeDelay, lastFinalS } from "./state.js";
import { Transcript } from "./transcript.js";
import { Waveform } from "./waveform.js";

export class View {
  constructor(root, options = {}) {
    this.transcript = new Transcript(root.querySelector("#transcript"), options);
    this.charts = [...root.querySelectorAll("[data-figure]")].map((figure) => new Chart(figure));
    this.waveform = new Waveform(root.querySelector("#waveform"));
    this.link = new Link(root.querySelector("#link"));
    this.pair = root.querySelector("#pair");
    this.delay = root.querySelector("#delay");
    this.transcript.root.addEventListener("scroll", () => this.#noteScroll());
    this.follows = true; // whether to scroll to the end of the text
  }

  clear() {
    this.transcript.clear();
    this.link.clear();
    this.delay.textContent = "";
    this.follows = true;
  }

  render(state, sound, at, options) {
    this.transcript.render(state, options);
    for (const chart of this.charts) chart.render(state.series[chart.name], at);
    this.link.render(state, options);
    this.renderSound(state, sound);
    this.delay.textContent = describeDelay(state);
    this.pair.textContent = state.model ? describe(state.model) : "";
    if (this.follows) this.transcript.root.scrollTop = this.transcript.root.scrollHeight;
  }

  renderSound(state, sound) {
    this.waveform.render({ ...sound, finalS: lastFinalS(state) });
  }

  #noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.transcript.root;
    this.follows = scrollHeight - scrollTop - clientHeight < 48;
  }
}

function describe({ target, draft }) {
  return draft ? `${target}, drafted by ${draft}` : `${target} alone`;
}
