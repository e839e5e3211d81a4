"""Text of wikitext templates that stand within sentences: measures, dates, names, currencies.

`inline_templates.json` has patterns by name: `{2}` is the second unnamed parameter, `{-1}` the
last, `{lt|1}` the first of these that is given; the part in brackets `[...]` is left out where a
parameter in it is missing. A pattern whose parameters outside brackets are missing gives nothing.
Templates whose text is computed are functions below, and in `measures`. A table of the user's
(`read_table`) comes first. Names under `silent` (with * at the end: all that begin so) show nothing
within a sentence, those under `sounds` how a word is pronounced.
"""

import functools
import os
import re
from collections.abc import Callable, Sequence

from ckl_jax.data.compressed import read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import require_file
from ckl_jax.papers.temporalwiki.data import measures
from ckl_jax.papers.temporalwiki.data.measures import TABLE as _TABLE
from ckl_jax.papers.temporalwiki.data.measures import Named, Unnamed

_PATTERNS, _SIGNS = _TABLE["patterns"], _TABLE["signs"]
_CURRENCIES, _LANGUAGES, _SHIPS = _TABLE["currencies"], _TABLE["languages"], _TABLE["ships"]
WIKI_LANGUAGES = frozenset(_TABLE["wikis"].split())  # how links to other languages' pages begin


def _names(key: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the table, and what all names that end with * begin with."""
    whole = frozenset(name for name in _TABLE[key] if not name.endswith("*"))
    return whole, tuple(name[:-1] for name in _TABLE[key] if name.endswith("*"))


_SILENT, _SILENT_STARTS = _names("silent")
_SOUNDS, _SOUND_STARTS = _names("sounds")
_PATTERN = re.compile(r"(?:[^{}\[\]]|\{[^{}\[\]]+\}|\[(?:[^{}\[\]]|\{[^{}\[\]]+\})*\])*")
_FIELD = re.compile(r"\{([^{}]+)\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_INDIAN = {"": "", "k": "thousand", "l": "lakh", "c": "crore", "lc": "lakh crore"}
_INDIAN |= {"m": "million", "b": "billion", "t": "trillion"}
_CHINESE = {"c": "Chinese", "s": "simplified Chinese", "t": "traditional Chinese"}
_CHINESE |= {"p": "pinyin", "w": "Wade–Giles", "j": "Jyutping"}
_ACCIDENTALS = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}
_LISTEN = ("listen", "pronunciation", "pronounced", "audio", "help", "info")  # not the text's
_CODE = re.compile("[A-Z]{2,3}")  # of a country
# The named parameters of numbers, of which others may say more of the number than is read.
_NAMED = {
    "val": frozenset("u ul up upl e p s end fmt".split()),
    "gaps": frozenset("lhs e u".split()),
    "nts": frozenset("prefix suffix format".split()),
}
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_MONTH_NUMBERS = {name[:3].lower(): number for number, name in enumerate(_MONTHS, 1)}


def read_table(path: str | os.PathLike) -> dict[str, str]:
    """Reads a table of templates: lines `name = pattern`; an empty pattern shows nothing.

    Patterns are as in `inline_templates.json`, with \\n for a line break. Lines that begin with #
    are comments.

    Raises:
      UserError: there is no such file, or a line is not of this form or repeats a name.
    """
    require_file(path, f"There is no table of templates {os.fspath(path)}; check --templates.")
    table: dict[str, str] = {}
    for number, _, line in read_lines(path):
        try:
            text = line.decode("utf-8-sig").strip()
        except UnicodeDecodeError as e:
            raise UserError(f"{os.fspath(path)}, line {number}: not UTF-8 ({e.reason}).") from e
        if not text or text.startswith("#"):
            continue
        name, equals, pattern = (part.strip() for part in text.partition("="))
        name, wrong = template_name(name), ""
        if not (name and equals):
            wrong = "give NAME = PATTERN"
        elif name in table:
            wrong = f"the template {name!r} was there before"
        elif re.search(r"[\[\]{}|<>#*]", name):
            wrong = f"{name!r} is no name of a template"
        elif not _PATTERN.fullmatch(pattern):
            wrong = "a brace or bracket of the pattern is empty, nested or not closed"
        elif "0" in (name for field in _FIELD.findall(pattern) for name in field.split("|")):
            wrong = "the first parameter is {1}, not {0}"
        if wrong:
            raise UserError(f"{os.fspath(path)}, line {number}: {wrong}.")
        table[name] = pattern.replace("\\n", "\n")
    return table


def template_name(text: str) -> str:
    """The form in which a name is looked up: in lower case, but {{INS}}, a ship, is no {{ins}}."""
    name = text.strip().replace("_", " ")
    if name[:9].lower() == "template:":
        name = name[9:].lstrip()
    return name if name in _SHIPS else name.lower()


def is_silent(name: str) -> bool:
    """Whether a template, such as a reference or a request, shows no word within a sentence."""
    return name in _SILENT or name.startswith(_SILENT_STARTS)


def is_sound(name: str) -> bool:
    """Whether a template says how a word is pronounced."""
    return name in _SOUNDS or name.startswith(_SOUND_STARTS)


def sign(name: str) -> str | None:
    """The text of a template without parameters; None if it is not known."""
    if name.startswith("formatnum:"):
        return measures.grouped(name.removeprefix("formatnum:").strip()) or None
    return _SIGNS.get(name)


def of_pattern(pattern: str) -> Callable[[Unnamed, Named], str]:
    """The function from parameters to text of a pattern."""
    return functools.partial(_fill, pattern)


@functools.lru_cache(maxsize=4096)
def reader(name: str) -> Callable[[Unnamed, Named], str] | None:
    """The function from parameters to text of the template `name` (lower case), or None."""
    if known := _NAMED.get(name):
        read = _FUNCTIONS.get(name) or of_pattern(_PATTERNS[name])
        return lambda unnamed, named: read(unnamed, named) if named.keys() <= known else ""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name.startswith("lang-"):
        return functools.partial(_translation, name.removeprefix("lang-"))
    for key in (name, *(f"{name.partition(sign)[0]}{sign}*" for sign in "-/" if sign in name)):
        if key in _PATTERNS:
            return of_pattern(_PATTERNS[key])
    return None


def _fill(pattern: str, unnamed: Unnamed, named: Named) -> str:
    def value(field: re.Match) -> str:
        for name in field[1].split("|"):
            if text := _parameter(name, unnamed, named):
                return text
        raise KeyError(field[1])

    def optional(group: re.Match) -> str:
        try:
            return _FIELD.sub(value, group[1])
        except KeyError:
            return ""

    try:
        return _FIELD.sub(value, _OPTIONAL.sub(optional, pattern))
    except KeyError:
        return ""


def _parameter(name: str, unnamed: Unnamed, named: Named) -> str:
    if name in named:
        return named[name]
    if name == "*":
        return "".join(unnamed)
    if not name.lstrip("-").isdigit():
        return ""
    place = int(name)
    index = place - 1 if place > 0 else len(unnamed) + place
    return unnamed[index] if 0 <= index < len(unnamed) else ""


# --- sums and words


def _currency(unnamed: Unnamed, named: Named) -> str:
    """{{currency|9 million|GBP}}: "£9 million"."""
    amount = unnamed[0] if unnamed else named.get("amount", "")
    code = unnamed[1] if len(unnamed) > 1 else named.get("code") or named.get("type", "")
    symbol = _CURRENCIES.get(code.lower())
    return f"{symbol}{amount}" if symbol and amount else ""


def _music(unnamed: Unnamed, named: Named) -> str:
    """{{music|flat}}: "♭"."""
    return _ACCIDENTALS.get(unnamed[0].lower(), "") if unnamed else ""


def _lakhs(currency: str, unnamed: Unnamed, named: Named) -> str:
    """{{INRConvert|5|c}}: "₹5 crore"; without what it is converted to."""
    amount, code = [*unnamed[:2], "", ""][:2]
    if not amount or code not in _INDIAN:
        return ""
    return f"{currency}{amount}{_INDIAN[code] and ' '}{_INDIAN[code]}"


def _translation(code: str, unnamed: Unnamed, named: Named) -> str:
    """{{lang-fr|mot}}: "French: mot"."""
    text, latin, meaning = [*unnamed[:3], "", "", ""][:3]
    if not (text := named.get("text") or text):
        return ""
    code = code.lower()
    known = _LANGUAGES.get(code) or _LANGUAGES.get(code.partition("-")[0], "")
    if language := "" if named.get("label") == "none" else known:
        text = f"{language}: {text}"
    latin, meaning = named.get("translit") or latin, named.get("lit") or meaning
    text += f", romanized: {latin}" if latin else ""
    return text + (f", lit. '{meaning}'" if meaning else "")


def _japanese(order: Sequence[int], unnamed: Unnamed, named: Named) -> str:
    """{{nihongo|Tokyo|東京|Tōkyō}}: "Tokyo (東京, Tōkyō)"; others of its kind in another order."""
    parts = [*unnamed[:5], "", "", "", "", ""][:5]
    name, *others = (parts[place] for place in order)
    more, after = named.get("extra") or parts[3], named.get("extra2") or parts[4]
    if not name or named.get("lead"):
        return ""
    inside = ", ".join(filter(None, [*others, more]))
    text = f"{name} ({inside})" if inside else name
    return f"{text} {after}" if after else text


def _chinese(unnamed: Unnamed, named: Named) -> str:
    """{{zh|c=北京|p=Běijīng}}: "Chinese: 北京; pinyin: Běijīng"."""
    labels = {} if named.get("labels") == "no" else _CHINESE
    found = [f"{labels[k]}: {named[k]}" if labels else named[k] for k in _CHINESE if named.get(k)]
    found += [f"lit. '{named['l']}'"] if named.get("l") else []
    return "" if named.keys() - _CHINESE.keys() - {"l", "labels", "links"} else "; ".join(found)


# --- ships


def _ship(prefix: str, unnamed: Unnamed, named: Named) -> str:
    """{{USS|Hornet|CV-12}}: "USS Hornet (CV-12)"; 1, 2 or 6 behind it shows a part of that."""
    name, hull, part = [*unnamed[:3], "", "", ""][:3]
    both = f"{prefix} {name}".strip()
    shown = {"": f"{both} ({hull})" if hull else both, "1": hull, "2": name, "6": both}
    return shown.get(part, "") if name else ""


def _ship_class(unnamed: Unnamed, named: Named) -> str:
    """{{sclass|Nimitz|carrier}}: "Nimitz-class carrier"; 4 or 5 behind it: without the type."""
    name, kind, part = [*unnamed[:3], "", "", ""][:3]
    whole = f"{name}-class {kind}"
    shown = {
        **dict.fromkeys(("", "0", "1", "2"), whole),
        "4": f"{name} class",
        "5": f"{name}-class",
    }
    return shown.get(part, "") if name else ""


def _interlanguage(unnamed: Unnamed, named: Named) -> str:
    """{{ill|Jan Piet|de}}, or as it was {{ill|de|Jan Piet}}: "Jan Piet"."""
    first, second = [*unnamed[:2], "", ""][:2]
    is_code = _LANGUAGE.fullmatch(first) and second and not _LANGUAGE.fullmatch(second)
    return named.get("lt") or (second if is_code else first)


# --- dates


def _date(unnamed: Unnamed, named: Named) -> str:
    """{{start date|2021|12|5}}: "December 5, 2021", or "5 December 2021" with df=y."""
    if unnamed and _ISO_DATE.fullmatch(unnamed[0]):
        unnamed = unnamed[0].split("-")
    if not unnamed or not unnamed[0].lstrip("-−").isdigit():
        return unnamed[0] if unnamed else ""
    year, month, day = [*unnamed[:3], "", ""][:3]
    if year[0] in "-−":
        year = f"{year[1:].lstrip('0')} BC"
    month = str(_MONTH_NUMBERS.get(month[:3].lower(), month))
    if not (month.isdigit() and 1 <= int(month) <= 12):
        return year
    name = _MONTHS[int(month) - 1]
    if not day.isdigit():
        return f"{name} {year}"
    df = named.get("df", "").lower()
    if df in ("y", "yes", "t", "true", "1") or named.get("format") == "dmy":
        return f"{int(day)} {name} {year}"
    return f"{name} {int(day)}, {year}"


def _iso_date(unnamed: Unnamed, named: Named) -> str:
    """{{date|2010-05-03}}: "3 May 2010", with mdy behind it "May 3, 2010"; others as they are."""
    date, form = [*unnamed[:2], "", ""][:2]
    if form.lower() not in ("", "dmy", "mdy"):
        return date
    return _date([date], {"df": "" if form.lower() == "mdy" else "y"})


def _age(unnamed: Unnamed, named: Named) -> str:
    """{{age|1950|1|1|2000|3|2}}: "50"; "" with one date, to which each day adds."""
    if len(unnamed) != 6 or not all(value.isdecimal() for value in unnamed):
        return ""
    born, then = tuple(map(int, unnamed[:3])), tuple(map(int, unnamed[3:]))
    return str(then[0] - born[0] - (then[1:] < born[1:]))


def _as_of(unnamed: Unnamed, named: Named) -> str:
    """{{as of|2021|12}}: "As of December 2021"."""
    if named.get("alt"):
        return named["alt"]
    if not unnamed or not unnamed[0][-4:].isdigit() and not _ISO_DATE.fullmatch(unnamed[0]):
        return ""
    if not (when := _date(unnamed, {"df": "" if named.get("df", "").lower() == "us" else "y"})):
        return ""
    if named.get("bare"):
        return f"{when}{named.get('post', '')}"
    when = f"{named['pre']} {when}" if named.get("pre") else when
    before = "since" if named.get("since") else "as of"
    return f"{before if named.get('lc') else before.capitalize()} {when}{named.get('post', '')}"


def _flag(unnamed: Unnamed, named: Named) -> str:
    """{{flag|France}}: "France"; "" for {{flag|FRA}}, which shows the name too."""
    name = named.get("name") or (unnamed[0] if unnamed else "")
    return "" if _CODE.fullmatch(name) else name.partition(" (")[0]


def _label(unnamed: Unnamed, named: Named) -> str:
    """{{audio|De-Aachen.ogg|Aachen}}: "Aachen"; "" for {{audio|De-Aachen.ogg|listen}}."""
    label = unnamed[1] if len(unnamed) > 1 else ""
    return "" if label.lower() in _LISTEN else label


def _ipa(unnamed: Unnamed, named: Named) -> str:
    """{{IPA|pa}}: "pa"; "" for {{IPA|fr|pa}}, which says how a word is pronounced."""
    return unnamed[0] if len(unnamed) == 1 else ""


def _hours(unnamed: Unnamed, named: Named) -> str:
    """{{hms|5|6|7}}: "5h 6m 7s"."""
    return " ".join(f"{value}{unit}" for value, unit in zip(unnamed, "hms", strict=False))


def _after_first(read: Callable[[str, Unnamed, Named], str]) -> Callable[[Unnamed, Named], str]:
    """{{ship|HMS|Hood}} as {{HMS|Hood}}, {{langx|fr|mot}} as {{lang-fr|mot}}."""
    return lambda unnamed, named: read(unnamed[0], unnamed[1:], named) if unnamed else ""


_FUNCTIONS: dict[str, Callable[[Unnamed, Named], str]] = {
    **measures.FUNCTIONS,
    "age": _age,
    **{name: functools.partial(_ship, prefix) for name, prefix in _SHIPS.items()},
    "ship": _after_first(_ship),
    **dict.fromkeys(("sclass", "sclass-", "sclass2", "sclass2-"), _ship_class),
    "langx": _after_first(_translation),
    "nihongo": functools.partial(_japanese, (0, 1, 2)),
    "nihongo3": functools.partial(_japanese, (2, 1, 0)),
    "nihongo krt": functools.partial(_japanese, (1, 2, 0)),
    "zh": _chinese,
    **dict.fromkeys(("currency", "fxconvert"), _currency),
    "inrconvert": functools.partial(_lakhs, "₹"),
    "jpyconvert": functools.partial(_lakhs, "¥"),
    "date": _iso_date,
    "music": _music,
    "hms": _hours,
    "audio": _label,
    "ipa": _ipa,
    **dict.fromkeys(("flag", "flagu", "flagcountry", "flaglist"), _flag),
    **dict.fromkeys(("ill", "interlanguage link"), _interlanguage),
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(
        "start date;start-date;end date;birth date;birth date and age;death date;"
        "death date and age;dts;bda;dob;film date;start date and age".split(";"),
        _date,
    ),
}
