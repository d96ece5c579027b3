// Texts as words, and how the words of one text become those of another.

// A word with the spaces before it; scripts without spaces go character by character.
const WORD = /\s*(?:[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+)/gu;
const NO_LETTERS = /[^\p{L}\p{N}]+/gu;

export function splitWords(text) {
  return text.match(WORD) ?? [];
}

// What makes a word the same one: a comma that becomes a full stop corrects nothing.
export function keyOf(word) {
  return word.replace(NO_LETTERS, "").toLowerCase() || word.trim();
}

// Pair the words of before with those of after: for each of after, the index of the one it was, or -1.
// Where words stand in place of others, `was` says which.
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

// "stor" is no error where "stormy" follows: the word was not complete.
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
