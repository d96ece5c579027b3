// A statistic as a number and a small line chart of at most the last minute.

const [MIN_SPAN_MS, MAX_SPAN_MS] = [10000, 60000];
const [WIDTH, HEIGHT] = [160, 40];
const SVG = "http://www.w3.org/2000/svg";

const FIGURES = {
  acceptance: { digits: 0, scale: 100, unit: "%", top: 100 },
  tokens: { digits: 1, scale: 1, unit: "", top: 4 },
  roundTrip: { digits: 0, scale: 1, unit: "ms", top: 20 },
  lag: { digits: 1, scale: 1, unit: "s", top: 2 },
};

export class Chart {
  // `root`: a figure with data-figure, an output and an element for the line.
  constructor(root) {
    this.figure = FIGURES[root.dataset.figure];
    this.name = root.dataset.figure;
    this.number = root.querySelector("output");
    this.unit = root.querySelector(".unit");
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true"); // the number has the same information
    [this.area, this.line] = ["area", "line"].map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      svg.append(path);
      return path;
    });
    root.querySelector(".plot").replaceChildren(svg);
    this.render([], 0);
  }

  render(points, now) {
    const { digits, scale, unit, top } = this.figure;
    const last = points.at(-1);
    this.number.value = last ? (last.value * scale).toFixed(digits) : "–";
    this.unit.textContent = last ? unit : "";
    const span = Math.max(MIN_SPAN_MS, Math.min(now, MAX_SPAN_MS));
    const shown = points.filter((point) => point.at >= now - span);
    const highest = Math.max(top, ...shown.map((point) => point.value * scale));
    const places = shown.map(({ at, value }) => [
      WIDTH * (1 - (now - at) / span),
      HEIGHT - 2 - (HEIGHT - 6) * ((value * scale) / highest),
    ]);
    if (places.length) places.push([WIDTH, places.at(-1)[1]]);
    const path = places.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    this.line.setAttribute("d", path);
    this.area.setAttribute("d", path && `${path}L${WIDTH} ${HEIGHT}L${places[0][0].toFixed(1)} ${HEIGHT}Z`);
  }
}
