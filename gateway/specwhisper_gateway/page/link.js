// The way between draft and target: blocks go right, answers come back, as slowly as they really travel.

const MIN_TRAVEL_MS = 90; // faster dots would not be seen
const MAX_DOTS = 6; // at a time: of a GPU's hundred passes a second
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

export class Link {
  // `root`: an element that the link fills.
  constructor(root) {
    this.root = root;
    this.way = make("span", "way");
    this.time = make("span", "time");
    this.way.append(this.time);
    root.append(make("span", "end", "draft"), this.way, make("span", "end", "target"));
    this.clear();
  }

  clear() {
    this.root.hidden = true;
    this.way.replaceChildren(this.time);
    [this.passes, this.verified, this.accepted] = [0, 0, 0];
  }

  // Show what was verified since the last state. `isQuiet`, after a jump in time: without dots.
  render({ statistics, model }, { isQuiet = false } = {}) {
    this.root.hidden = !model?.draft || model.mode === "target-only";
    if (!statistics || this.root.hidden) return;
    const { passes, verified, accepted, round_trip_ms } = statistics;
    const numNew = Math.min(MAX_DOTS, passes - this.passes);
    const isWrong = verified - this.verified > accepted - this.accepted;
    [this.passes, this.verified, this.accepted] = [passes, verified, accepted];
    this.time.textContent = round_trip_ms ? `round trip ${round_trip_ms.toFixed(round_trip_ms < 10 ? 1 : 0)} ms` : "";
    if (isQuiet || STILL.matches) return;
    for (let i = 0; i < numNew; i++) this.#send(round_trip_ms / 2, i, isWrong && i === numNew - 1);
  }

  #send(travelMs, number, isWrong) {
    const dot = make("span", "dot");
    this.way.append(dot);
    const duration = Math.max(MIN_TRAVEL_MS, travelMs);
    const there = [{ left: "0%" }, { left: "100%" }];
    const timing = { duration, delay: (number * duration) / MAX_DOTS, fill: "both" };
    dot.animate(there, timing).onfinish = () => {
      dot.classList.add(isWrong ? "wrong" : "right");
      dot.animate(there.toReversed(), { duration, fill: "both" }).onfinish = () => dot.remove();
    };
  }
}

function make(name, className, text = "") {
  return Object.assign(document.createElement(name), { className, textContent: text });
}
