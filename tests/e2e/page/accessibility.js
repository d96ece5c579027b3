// Check a page's accessibility: names, labels, contrast, no needless focus traps. Returns a list of faults.

() => {
  const faults = [];
  const fault = (element, what) => faults.push(`${element.outerHTML.slice(0, 80)}: ${what}`);
  const visible = (element) => element.checkVisibility({ opacityProperty: false }) && element.getClientRects().length > 0;

  const channels = (color) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const contrast = (element) => {
    const [a, b] = [channels(getComputedStyle(element).color), background(element)].map(luminance).sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const name = (element) => {
    const labelled = element.getAttribute("aria-labelledby");
    const text = labelled ? document.getElementById(labelled)?.textContent : element.getAttribute("aria-label");
    return (text ?? [...(element.labels ?? [])].map((label) => label.textContent).join(" ") ?? "").trim() || (element.matches("button, a, summary") ? element.textContent.trim() : "");
  };

  if (!document.documentElement.lang) faults.push("the document has no language");
  if (!document.title) faults.push("the document has no title");
  if (document.querySelectorAll("h1").length !== 1) faults.push("there is not one heading");
  if (document.querySelectorAll("main").length !== 1) faults.push("there is not one main part");
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) faults.push(`#${id} is there twice`);

  for (const element of document.querySelectorAll("button, input, select, a[href], summary, canvas, section, form, [role]")) {
    const isNamed = name(element) || !visible(element) || element.matches("[role=status]");
    if (!isNamed) fault(element, "has no name");
    if (element.tabIndex > 0) fault(element, "changes the order of the keyboard");
  }
  const scrolls = (element) => element.scrollHeight > element.clientHeight + 1 && getComputedStyle(element).overflowY === "auto";
  for (const element of document.querySelectorAll("main *")) {
    if (scrolls(element) && element.tabIndex < 0) fault(element, "scrolls, but not by keyboard");
  }

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const isShown = texts.currentNode.data.trim() && visible(element) && !element.closest(":disabled, .hidden, script, option, :has(> :disabled)");
    if (isShown && contrast(element) < 4.5) fault(element, `contrast ${contrast(element).toFixed(2)}`);
  }
  for (const element of document.querySelectorAll("button, select, .modes label, summary")) {
    const { width, height } = element.getBoundingClientRect();
    if (visible(element) && (width < 24 || height < 24)) fault(element, "is too small for a finger");
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than its window");
  return faults;
}
