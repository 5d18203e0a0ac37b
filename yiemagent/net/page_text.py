"""What a web page says, as plain text with its headings, lists and links.

A scanner of our own, since it has to take whatever pages hold in time that grows with their size: it goes forward only,
and what is never closed ends the page.
"""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

__all__ = ["page_text"]

_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]*)")
_HREF = re.compile(r"""\bhref\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*("[^"]*"|'[^']*')""", re.IGNORECASE)
_UNSEEN = {"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea"}
_PARAGRAPHS = {
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "p",
    "pre",
    "table",
    "ul",
    "ol",
    "dl",
    "title",
    "blockquote",
}
_LINES = {
    "address",
    "article",
    "aside",
    "body",
    "dd",
    "details",
    "div",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
}
_LINES |= {
    "footer",
    "form",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "section",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
}
_BLOCKS = _PARAGRAPHS | _LINES
_MAX_TAG = 20_000


def page_text(source: str, url: str) -> str:
    """Give the text of an HTML page; links as `[text](address)`, with whole addresses.

    Args:
        source: the page.
        url: where it is from.
    """
    page = _Page(url)
    position = 0
    while position < len(source):
        opening = source.find("<", position)
        if opening < 0:
            page.text(source[position:])
            break
        page.text(source[position:opening])
        position = _markup(source, opening, page)
    return page.result()


def _markup(source: str, opening: int, page: _Page) -> int:
    """Take in what begins with `<`; gives where it ends."""
    if source.startswith("<!--", opening):
        return _behind(source, "-->", opening + 4)
    tag = _TAG.match(source, opening)
    if tag is None:
        if source.startswith(("<!", "<?", "</"), opening):
            return _behind(source, ">", opening)
        page.text("<")
        return opening + 1
    end = _behind(source, ">", opening)
    name, closing = tag[1].lower(), source[opening + 1] == "/"
    if name in _UNSEEN and not closing:
        close = re.compile(rf"</{name}\b[^>]*>?", re.IGNORECASE).search(source, end)
        return close.end() if close else len(source)
    page.tag(name, source[tag.end() : min(end - 1, tag.end() + _MAX_TAG)], closing=closing)
    return end


def _behind(source: str, mark: str, start: int) -> int:
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)


class _Page:
    """The text so far, and what is open."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._parts: list[str] = []
        # Where in the parts a link began, and where it leads.
        self._open_link: tuple[int, str] | None = None
        self._as_is = 0

    def text(self, source: str) -> None:
        if source:
            plain = html.unescape(source)
            if not self._as_is:
                # A mark for line breaks that are meant; those of the source are blanks.
                plain = re.sub(r"\s+", " ", plain)
            self._parts.append(plain)

    def tag(self, name: str, attributes: str, *, closing: bool) -> None:
        if name == "a":
            self._link(attributes, closing=closing)
        elif name == "br":
            self._parts.append("\n")
        elif name == "img" and (alt := _value(_ALT, attributes)):
            self._parts.append(f"[image: {alt}]")
        if name == "pre":
            self._as_is = max(0, self._as_is + (-1 if closing else 1))
        if name in _BLOCKS:
            self._parts.append("\n\n" if name in _PARAGRAPHS else "\n")
            if not closing and name == "li":
                self._parts.append("- ")
            elif not closing and re.fullmatch("h[1-6]", name):
                self._parts.append("#" * int(name[1]) + " ")

    def _link(self, attributes: str, *, closing: bool) -> None:
        if not closing:
            self._open_link = len(self._parts), _value(_HREF, attributes)  # links don't nest
            return
        if self._open_link is None:
            return
        (start, target), self._open_link = self._open_link, None
        words = " ".join("".join(self._parts[start:]).split())
        if words and target and not target.startswith(("#", "javascript:", "data:")):
            self._parts[start:] = [f"[{words}]({_whole(self._url, target)})"]

    def result(self) -> str:
        lines = [line.strip(" ") for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _value(pattern: re.Pattern[str], attributes: str) -> str:
    found = pattern.search(attributes)
    return html.unescape(found[1].strip("\"'")).strip() if found else ""


def _whole(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return target
