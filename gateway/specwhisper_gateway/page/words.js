// Split texts into words, and match the words of two texts.

// A word with the spaces before it; in scripts without spaces, a character.
const WORD = /\s*(?:[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+)/gu;
const NO_LETTERS = /[^\p{L}\p{N}]+/gu;

export function splitWords(text) {
  return text.match(WORD) ?? [];
}

// The key of a word without its punctuation: changed punctuation isn't a correction.
export function keyOf(word) {
  return word.replace(NO_LETTERS, "").toLowerCase() || word.trim();
}

// Match the words of two texts: for each word of `after`, the index of the same word of `before`, or -1.
// `was` has the index of the word that a new word replaces.
export function matchWords(before, after) {
  const pairs = commonWords(before, after);
  const source = new Array(after.length).fill(-1);
  const was = new Array(after.length).fill(null);
  let [i, j] = [0, 0];
  for (const [nextI, nextJ] of [...pairs, [before.length, after.length]]) {
    const [removed, added] = [nextI - i, nextJ - j];
    for (let k = 0; k < Math.min(removed, added); k++) {
      source[j + k] = i + k;
      if (!grew(before[i + k], after[j + k])) was[j + k] = i + k;
    }
    if (nextJ < after.length) source[nextJ] = nextI;
    [i, j] = [nextI + 1, nextJ + 1];
  }
  return { source, was };
}

// "stor" before "stormy" isn't a correction: the word was not complete.
function grew(before, after) {
  return after.startsWith(before) || before.startsWith(after);
}

// The longest common subsequence, as pairs of indices.
function commonWords(before, after) {
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      lengths[i][j] = before[i] === after[j]
        ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) pairs.push([i++, j++]);
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return pairs;
}
