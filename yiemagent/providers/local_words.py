"""The words of a sentence, where a very small model needs help with them: names, words that tell, likeness.

English, as the model is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["copy_names", "copy_spans", "likeness", "stem", "telling", "words_of"]

# Words that carry no claim: they may stand in any answer, never count as kin of a tool, and are never copied alone.
GLUE = frozenset(
    """a about already also am an and any are as at available be been both but by can could current currently day did
    do does for from give has have he hello her here hey hi his hour how i in is it its just know let like live lives me
    moment my now of on or our please right say see she should show take tell than that the their them there these
    they this those to today tomorrow tonight use was we were what when where which who why will with would you your
    """.split()  # noqa: SIM905 - a hundred quoted words are harder to read
)
_NOT_COPIED = GLUE | frozenset(
    """yes no list need want time weather temperature warm cold hot rain raining snow snowing sunny windy umbrella coat
    late local tool tools friend sister brother good morning evening thank thanks write explain translate
    """.split()  # noqa: SIM905 - as above
)
_JOINERS = frozenset("de da do del di la las los le of am an der den upon sur the al el".split())  # noqa: SIM905 - as above
_QUOTES = "'\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(rf"[^\W\d_][\w.{_QUOTES}-]*|\d[\w.:/-]*")
_POSSESSIVE = re.compile(rf"[{_QUOTES}]s$")


def words_of(text: str) -> list[tuple[str, int, int]]:
    """Give the words of a text with where they begin and end; a possessive 's is no part of one."""
    found = []
    for match in _WORD.finditer(text):
        word = _POSSESSIVE.sub("", match.group().rstrip(f".-{_QUOTES}"))
        found.append((word, match.start(), match.start() + len(word)))
    return found


def copy_spans(text: str) -> tuple[str, ...]:
    """Give the pieces of a text that an argument may be copied from: names as a whole, longest first.

    Names are told by their capitals ("Rio de Janeiro" is one). Where nothing is capitalised, every run of words that
    say something counts, up to four of them.
    """
    words = words_of(text)
    names = tuple(dict.fromkeys(_names(text, words)))
    if names:
        return names
    pieces: list[str] = []
    for run in _runs(text, words):
        for length in range(min(4, len(run)), 0, -1):
            for first in range(len(run) - length + 1):
                pieces += [text[run[first][1] : run[first + length - 1][2]]]
    return tuple(dict.fromkeys(pieces))


def _is_name(word: str) -> bool:
    return word[0].isupper() and word.lower() not in _NOT_COPIED


def _names(text: str, words: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    index = 0
    while index < len(words):
        if not _is_name(words[index][0]):
            index += 1
            continue
        last = probe = index
        while probe + 1 < len(words) and not text[words[probe][2] : words[probe + 1][1]].strip(" "):
            probe += 1
            if _is_name(words[probe][0]):
                last = probe
            elif words[probe][0] not in _JOINERS:
                break
        yield text[words[index][1] : words[last][2]]
        index = last + 1


def _runs(text: str, words: Sequence[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    run: list[tuple[str, int, int]] = []
    for word in words:
        apart = bool(run) and bool(text[run[-1][2] : word[1]].strip(" "))
        if word[0].lower() in _NOT_COPIED or apart:
            if run:
                yield run
            run = []
        if word[0].lower() not in _NOT_COPIED:
            run.append(word)
    if run:
        yield run


def stem(word: str) -> str:
    """Give a word in lower case and without its ending, roughly: "raining" and "rain" are the same."""
    word = word.lower()
    for ending in ("ing", "y", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def telling(text: str, *, names: bool = False) -> set[str]:
    """Give the stems of the words that say something; names of places and people only where asked."""
    left_out = set() if names else {part for name in copy_names(text) for part in name.split()}
    return {
        stem(word)
        for word, _, _ in words_of(text)
        if word.lower() not in GLUE and word not in left_out
    }


def copy_names(text: str) -> tuple[str, ...]:
    """Give the names in a text, told by their capitals."""
    return tuple(dict.fromkeys(_names(text, words_of(text))))


def likeness(one: str, other: str) -> float:
    """Tell how alike two sentences are, 0 to 1: shared words, those that say nothing counted for little."""
    left, right = (
        {stem(w) for w, _, _ in words_of(text)} - {stem(n) for n in copy_names(text)}
        for text in (one, other)
    )

    def weight(words: set[str]) -> float:
        return sum(0.2 if word in GLUE else 1.0 for word in words)

    return weight(left & right) / (weight(left | right) or 1.0)
