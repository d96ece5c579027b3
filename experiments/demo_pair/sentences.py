"""The text of the corpus: sentences from a template grammar."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

GRAMMAR = Path(__file__).with_name("grammar.txt")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
DIGIT_TEMPLATES = ("{digit}.", "{digits}.")
DIGIT_SHARE = 0.04


@cache
def load_grammar() -> tuple[dict[str, list[str]], list[str]]:
    """Return the word classes of grammar.txt, and the templates that draw on them."""
    classes: dict[str, list[str]] = {}
    templates: list[str] = []
    for line in GRAMMAR.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, equals, words = line.partition(" = ")
        if equals:
            classes[name] = words.split(" | ")
        else:
            templates.append(line)
    return classes, templates


def number_words(number: int) -> str:
    if number < 10:
        return DIGITS[number]
    if number < 20:
        return TEENS[number - 10]
    tens = TENS[number // 10 - 2]
    return tens if number % 10 == 0 else f"{tens}-{DIGITS[number % 10]}"


def _count(rng: np.random.Generator) -> str:
    if rng.random() < 0.06:
        return f"{DIGITS[rng.integers(2, 10)]} hundred"
    return number_words(int(rng.integers(2, 13) if rng.random() < 0.5 else rng.integers(13, 100)))


def _clock(rng: np.random.Generator) -> str:
    hour = number_words(int(rng.integers(1, 13)))
    minutes = number_words(int(rng.choice([10, 15, 20, 25, 30, 35, 40, 45, 50, 55])))
    forms = (
        f"{hour} o'clock",
        f"half past {hour}",
        f"{hour} {minutes}",
        f"a quarter to {hour}",
        f"a quarter past {hour}",
        f"ten minutes to {hour}",
    )
    return str(rng.choice(forms))


def _date(rng: np.random.Generator) -> str:
    day = int(rng.integers(1, 32))
    month = rng.choice(load_grammar()[0]["month"])
    if day <= 20:
        ordinal = ORDINALS[day - 1]
    elif day == 30:
        ordinal = "thirtieth"
    else:
        ordinal = f"{TENS[day // 10 - 2]}-{ORDINALS[day % 10 - 1]}"
    return f"the {ordinal} of {month}"


def _year(rng: np.random.Generator) -> str:
    century = rng.choice(["eighteen", "nineteen", "twenty"])
    return f"{century} {number_words(int(rng.integers(10, 100)))}"


def _price(rng: np.random.Generator) -> str:
    dollars = f"{number_words(int(rng.integers(2, 100)))} dollars"
    cents = f" and {number_words(int(rng.integers(2, 20)) * 5)} cents"
    return dollars + (cents if rng.random() < 0.4 else "")


BUILT_IN = {
    "count": _count,
    "hour": lambda rng: number_words(int(rng.integers(1, 13))),
    "clock": _clock,
    "date": _date,
    "year": _year,
    "price": _price,
    "digit": lambda rng: DIGITS[rng.integers(10)],
    "digits": lambda rng: ", ".join(DIGITS[rng.integers(10)] for _ in range(rng.integers(3, 8))),
}


def _expand(text: str, rng: np.random.Generator) -> str:
    def fill(slot: re.Match[str]) -> str:
        name = slot.group(1)
        if name in BUILT_IN:
            return BUILT_IN[name](rng)
        return _expand(str(rng.choice(load_grammar()[0][name])), rng)

    return re.sub(r"\{(\w+)\}", fill, text)


def _polish(sentence: str) -> str:
    """Write "an" before a vowel and a capital letter at the start."""
    sentence = re.sub(r"\b([Aa]) (?=[aeiou])(?!one|useful|uniform)", r"\1n ", sentence)
    sentence = re.sub(r"\b([Aa]) a (\w)", r"\1 \2", sentence)
    return sentence[0].upper() + sentence[1:]


def grammar_sentence(rng: np.random.Generator) -> str:
    templates = DIGIT_TEMPLATES if rng.random() < DIGIT_SHARE else load_grammar()[1]
    return _polish(_expand(str(rng.choice(templates)), rng))


def corpus(count: int, held_out: int, seed: int) -> tuple[list[str], list[str]]:
    """Draw training sentences (some repeat, as they do in speech) and unseen ones for the tests."""
    rng = np.random.default_rng([seed, 1])
    train = [grammar_sentence(rng) for _ in range(count)]
    seen = set(train)
    test: list[str] = []
    while len(test) < held_out:
        sentence = grammar_sentence(rng)
        if sentence not in seen:
            seen.add(sentence)
            test.append(sentence)
    return train, test
