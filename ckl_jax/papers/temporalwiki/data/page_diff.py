"""From the two versions of one page to its diffset records. Pure functions."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from ckl_jax.data.dump_writer import PLAIN_TEXT, WIKITEXT
from ckl_jax.data.text.sentences import Split, sentence_splitter
from ckl_jax.papers.temporalwiki.data import algorithm1 as d
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor, is_disambiguation

Pair = tuple[Page | None, Page | None]
Counts = dict[str, int]
OF_TEXT = "text: "  # how the names of counts of templates begin


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which pages count and how they are compared."""

    language: str = "en"  # of the sentences
    dropped_links: frozenset[str] | None = None  # `SiteInfo.dropped_links`
    namespaces: tuple[int, ...] = (0,)  # whose pages count
    disambiguation: bool = False  # whether pages that list the meanings of their title count
    legacy: bool = False  # the released function in place of Algorithm 1
    deletions: bool = False  # also say what is gone
    # (name, pattern), of the user's (`inline_templates.read_table`)
    templates: tuple[tuple[str, str], ...] = ()


@functools.lru_cache(maxsize=4)
def tools(rules: Rules) -> tuple[Extractor, Split]:
    """The extractor and the sentence splitter, loaded once in a process."""
    extractor = Extractor(rules.dropped_links, rules.language, dict(rules.templates))
    return extractor, sentence_splitter(rules.language)


def drop_reason(page: Page, rules: Rules) -> str:
    """Why a page does not count, without reading its text; "" if it does."""
    if page.namespace not in rules.namespaces:
        return f"namespace {page.namespace}"
    if page.redirect:
        return "redirect"
    return "" if page.model in (WIKITEXT, PLAIN_TEXT) else f"content model {page.model}"


def prose(
    page: Page | None, extractor: Extractor, cache: dict[str, list[str]] | None = None
) -> list[str]:
    """The paragraphs of a page's running text; each line of a page of plain text is one.

    Args:
      page: None has no text.
      extractor: of wikitext.
      cache: shared by versions of one page; see `Extractor.paragraphs`.
    """
    if page is None:
        return []
    if page.model == PLAIN_TEXT:
        return [" ".join(line.split()) for line in page.text.splitlines() if line.strip()]
    return extractor.paragraphs(page.text, cache)


def same_revision(old: Page, new: Page) -> str:
    """How two pages are known to be equal without parsing; "" if they may differ."""
    if old.revision and old.revision == new.revision:
        return "same revision"
    # Equal texts under another revision: an edit and its revert.
    if old.sha1 and new.sha1:
        return "same sha1" if old.sha1 == new.sha1 else ""
    return "same text" if old.text == new.text else ""


def triage(pair: Pair, rules: Rules) -> tuple[Pair | None, str]:
    """Decides without parsing: (the versions to compare, "") or (None, the reason for no
    comparison).

    A version that does not count is None in the pair that is returned.
    """
    old, new = pair
    dropped = drop_reason(new, rules) if new else "not in the new dump"
    # A version that does not count (a redirect, say) is as if it were not there.
    old = old if old and not drop_reason(old, rules) else None
    new = None if dropped else new
    if old and new and (same := same_revision(old, new)):
        return None, same
    # A page that is only in the old dump is of interest for deletions alone.
    if new or (old and rules.deletions):
        return (old, new), ""
    return None, f"article gone: {dropped}" if old else dropped


def compare(pair: Pair, rules: Rules) -> tuple[list[dict[str, Any]], Counts]:
    """Compares pages that `triage` cannot decide.

    Returns:
      The records (page_id, title, kind, text, and edits as in `algorithm1.Change`); the page's
      outcome, once, and what became of templates in both its versions, of equal sections once
      (names that begin with `OF_TEXT`).
    """
    # Disambiguation pages are recognised by their text, which `triage` does not read.
    old, new = (p if p and _counts(p, rules) else None for p in pair)
    if not old and not new:
        return [], {"disambiguation": 1}
    extractor, split = tools(rules)
    extractor.counts.clear()
    # Shared by both versions: equal sections are parsed once.
    cache: dict[str, list[str]] = {}
    before, after = (prose(version, extractor, cache) for version in (old, new))
    page = new or old
    # A page that was a redirect before has no old version here, and is new as a whole.
    changes = (_parts if old and new else _whole)(before, after, rules, split)
    records = [_record(page, change) for change in changes]
    counts = {OF_TEXT + what: n for what, n in extractor.counts.items() if n}
    return records, {_outcome(old, new, after, records): 1, **counts}


def _record(page: Page, change: d.Change) -> dict[str, Any]:
    record = {"page_id": page.id, "title": page.title, "kind": change.kind, "text": change.text}
    return record | ({"edits": change.edits} if change.edits else {})


def _counts(page: Page, rules: Rules) -> bool:
    return rules.disambiguation or not is_disambiguation(page.title, page.text)


def _whole(before: list[str], after: list[str], rules: Rules, split: Split) -> Iterator[d.Change]:
    """The record of an article that only one of the dumps has."""
    if after:
        # The released code joins paragraphs without a line break.
        yield d.Change(d.NEW, ("" if rules.legacy else "\n").join(after))
    elif before and rules.deletions:
        yield d.Change(d.DELETED_PAGE, "\n".join(before))


def _parts(before: list[str], after: list[str], rules: Rules, split: Split) -> Iterator[d.Change]:
    if not rules.legacy:
        yield from d.diff(before, after, split)
    elif text := d.legacy_diff("\n".join(before), "\n".join(after)):
        yield d.Change(d.LEGACY, text)
    if rules.deletions:
        yield from d.deletions(before, after, split)


def _outcome(old: Page | None, new: Page | None, after: list[str], records: list) -> str:
    if new is None:
        return "article gone"
    if not after:
        return "no prose"
    if old is None:
        return "new article"
    return "changed" if records else "no new text"
