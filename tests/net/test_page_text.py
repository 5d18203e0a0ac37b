"""What a web page says as text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.net.page_text import page_text

URL = "https://example.org/a/b.html"


@pytest.mark.parametrize(
    "source, text",
    [
        ("", ""),
        ("just words", "just words"),
        ("<p>one\n  two</p><p>three", "one two\n\nthree"),
        ("a<br>b", "a\nb"),
        ("<h2>Title</h2>text", "## Title\n\ntext"),
        ("<ul><li>one<li>two</ul>end", "- one\n- two\n\nend"),
        ("x &amp; y &lt;z&gt; &#65;", "x & y <z> A"),
        ("<pre>a\n  b</pre>", "a\nb"),
        ("<script>if (a < b) { x }</script>seen", "seen"),
        ("<STYLE>p { }</STYLE >seen", "seen"),
        ("<!-- <p>no</p> -->seen", "seen"),
        ("<!DOCTYPE html><?xml?>seen", "seen"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ('<img alt="a cat" src="x">', "[image: a cat]"),
        ("<img src=x>", ""),
        ('<a href="c.html">next</a>', "[next](https://example.org/a/c.html)"),
        ("<a href='/top?x=1&amp;y=2'>top</a>", "[top](https://example.org/top?x=1&y=2)"),
        ("<a href=//other.org>other</a>", "[other](https://other.org)"),
        ('<a href="#here">here</a>', "here"),
        ('<a href="javascript:void(0)">do</a>', "do"),
        ('<a href="http://[bad">bad</a>', "[bad](http://[bad)"),
        ("</a>text<a>no target</a>", "textno target"),
        ("<script>never closed", ""),
        ("<!-- never closed", ""),
        ("<p never closed", ""),
        ("<a href=one>first<a href=two>second</a></a>", "first[second](https://example.org/a/two)"),
    ],
)
def test_a_page_is_read(source, text):
    """Headings, lists, links and breaks stay, what nobody sees goes."""
    assert page_text(source, URL) == text


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a",
        "<!--",
        "<p ",
        "<script>",
        "</",
        "<a href='",
        "&",
        "<a>x",
        "<![",
        "\n ",
        "<a href=x>x</a>",
    ],
)
def test_reading_takes_time_that_grows_with_the_page(piece):
    """A page of anything that is never closed is read in time."""
    begun = time.process_time()
    page_text(piece * (200_000 // len(piece)), URL)

    assert time.process_time() - begun < 10


@given(st.text(alphabet="<>!-/ab&;\"'= \n", max_size=80))
def test_no_page_raises(source):
    """Whatever a page holds, it is read."""
    assert isinstance(page_text(source, URL), str)
