"""Whisper's languages, by code and by English name."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Codes as in the tokens, and names in lower case; "jw" is what Whisper calls Javanese.
NAMES = {
    "af": "afrikaans",
    "am": "amharic",
    "ar": "arabic",
    "as": "assamese",
    "az": "azerbaijani",
    "ba": "bashkir",
    "be": "belarusian",
    "bg": "bulgarian",
    "bn": "bengali",
    "bo": "tibetan",
    "br": "breton",
    "bs": "bosnian",
    "ca": "catalan",
    "cs": "czech",
    "cy": "welsh",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fo": "faroese",
    "fr": "french",
    "gl": "galician",
    "gu": "gujarati",
    "ha": "hausa",
    "haw": "hawaiian",
    "he": "hebrew",
    "hi": "hindi",
    "hr": "croatian",
    "ht": "haitian creole",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "is": "icelandic",
    "it": "italian",
    "ja": "japanese",
    "jw": "javanese",
    "ka": "georgian",
    "kk": "kazakh",
    "km": "khmer",
    "kn": "kannada",
    "ko": "korean",
    "la": "latin",
    "lb": "luxembourgish",
    "ln": "lingala",
    "lo": "lao",
    "lt": "lithuanian",
    "lv": "latvian",
    "mg": "malagasy",
    "mi": "maori",
    "mk": "macedonian",
    "ml": "malayalam",
    "mn": "mongolian",
    "mr": "marathi",
    "ms": "malay",
    "mt": "maltese",
    "my": "myanmar",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "nynorsk",
    "no": "norwegian",
    "oc": "occitan",
    "pa": "punjabi",
    "pl": "polish",
    "ps": "pashto",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sa": "sanskrit",
    "sd": "sindhi",
    "si": "sinhala",
    "sk": "slovak",
    "sl": "slovenian",
    "sn": "shona",
    "so": "somali",
    "sq": "albanian",
    "sr": "serbian",
    "su": "sundanese",
    "sv": "swedish",
    "sw": "swahili",
    "ta": "tamil",
    "te": "telugu",
    "tg": "tajik",
    "th": "thai",
    "tk": "turkmen",
    "tl": "tagalog",
    "tr": "turkish",
    "tt": "tatar",
    "uk": "ukrainian",
    "ur": "urdu",
    "uz": "uzbek",
    "vi": "vietnamese",
    "yi": "yiddish",
    "yo": "yoruba",
    "yue": "cantonese",
    "zh": "chinese",
}
# Other names of the same languages.
ALIASES = {
    "burmese": "my",
    "castilian": "es",
    "flemish": "nl",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "mandarin": "zh",
    "moldavian": "ro",
    "moldovan": "ro",
    "panjabi": "pa",
    "pushto": "ps",
    "sinhalese": "si",
    "valencian": "ca",
}
CODES = {name: code for code, name in NAMES.items()} | ALIASES
# BCP 47 has other codes for these: the present ones, and some of before 1989 that systems still send.
OTHER_CODES = {
    "cmn": "zh",
    "fil": "tl",
    "in": "id",
    "iw": "he",
    "ji": "yi",
    "jv": "jw",
    "nb": "no",
}


def language_code(language: str | None) -> str | None:
    """Return Whisper's code for a code, a name or a tag with a region.

    "de", "German", "de-CH" and "de_CH" are all "de". An unknown language is only lowercased, without its
    region, so that a model can refuse it.
    """
    if language is None:
        return None
    name = language.strip().lower()
    primary = re.split("[-_]", name, maxsplit=1)[0].strip() or name  # a BCP 47 tag begins with the language
    return CODES.get(primary) or OTHER_CODES.get(primary, primary)


def language_codes(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the codes of languages in a list, or in a text with commas, each once."""
    names = names.split(",") if isinstance(names, str) else names
    listed = tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) and name.isascii() for name in listed):
        raise ValueError("it must be languages, as 'en,fr' or in a list")
    return tuple(dict.fromkeys(filter(None, map(language_code, listed))))


def language_name(code: str) -> str:
    """Return a code's English name in lower case, or the code if it has none."""
    return NAMES.get(code, code)
