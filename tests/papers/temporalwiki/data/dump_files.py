"""Small dumps for tests, written by hand-made rules and not by the code under test."""

import bz2
import gzip
from pathlib import Path
from xml.sax.saxutils import escape

NAMESPACES = {
    -2: "Media",
    0: "",
    1: "Talk",
    4: "Wikipedia",
    6: "File",
    10: "Template",
    14: "Category",
}


def page(
    number, title, text, ns=0, revision=None, sha1="", redirect="", time="2020-01-01T00:00:00Z"
):
    """The XML of one page in export format 0.10."""
    target = f'<redirect title="{escape(redirect)}" />' if redirect else ""
    digest = f"<sha1>{sha1}</sha1>" if sha1 else ""
    return (
        f"  <page>\n<title>{escape(title)}</title>\n<ns>{ns}</ns>\n<id>{number}</id>\n{target}"
        f"<revision>\n<id>{revision or number * 10}</id>\n<parentid>5</parentid>\n"
        f"<timestamp>{time}</timestamp>\n<contributor><username>A</username><id>77</id>"
        f"</contributor>\n<model>wikitext</model>\n<format>text/x-wiki</format>\n"
        f'<text xml:space="preserve">{escape(text)}</text>\n{digest}</revision>\n</page>\n'
    )


def head(dbname="enwiki", version="0.10", xmlns=True):
    name = f"http://www.mediawiki.org/xml/export-{version}/"
    xmlns = f'xmlns="{name}" ' if xmlns else ""
    spaces = "".join(f'<namespace key="{k}">{v}</namespace>' for k, v in NAMESPACES.items())
    return (
        f'<mediawiki {xmlns}version="{version}" xml:lang="en">\n<siteinfo><sitename>W</sitename>'
        f"<dbname>{dbname}</dbname><base>https://en.wikipedia.org/wiki/Main_Page</base>"
        f"<namespaces>{spaces}</namespaces></siteinfo>\n"
    )


def dump(pages, **options):
    return head(**options) + "".join(pages) + "</mediawiki>\n"


def write(path, text):
    """Writes text, compressed as the name of the file says."""
    data = text.encode()
    data = bz2.compress(data) if path.suffix == ".bz2" else data
    Path(path).write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_multistream(path, pages, per_stream=2, **options):
    """Writes a multistream file and its index, a stream for each `per_stream` (id, XML)."""
    out, lines = bytearray(bz2.compress(head(**options).encode())), []
    for i in range(0, len(pages), per_stream):
        part = pages[i : i + per_stream]
        lines += [f"{len(out)}:{number}:A title: {number}\n" for number, _ in part]
        out += bz2.compress("".join(xml for _, xml in part).encode())
    out += bz2.compress(b"</mediawiki>\n")
    Path(path).write_bytes(out)
    index = Path(str(path).replace(".xml.bz2", "-index.txt.bz2"))
    index.write_bytes(bz2.compress("".join(lines).encode()))
    return path
