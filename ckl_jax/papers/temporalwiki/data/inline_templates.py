"""Text of wikitext templates that stand within sentences: measures, dates, names, currencies.

`inline_templates.json` has patterns by name: `{2}` is the second unnamed parameter, `{-1}` the
last, `{lt|1}` the first of these that is given; the part in brackets `[...]` is left out where a
parameter in it is missing. A pattern whose parameters outside brackets are missing gives nothing.
Templates whose text is computed are functions below. A table of the user's (`read_table`) comes
first. Names under `silent` (with * at the end: all that begin so) show nothing within a sentence,
those under `sounds` how a word is pronounced.
"""

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ckl_jax.data.compressed import read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, require_file

_TABLE = read_json(Path(__file__).with_suffix(".json"))
_PATTERNS, _SIGNS, _UNITS = _TABLE["patterns"], _TABLE["signs"], _TABLE["units"]
_CURRENCIES, _LANGUAGES, _SHIPS = _TABLE["currencies"], _TABLE["languages"], _TABLE["ships"]
UNITS_BY_NAME = {name.lower(): unit[0] for unit in _UNITS.values() for name in unit}


def _names(key: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the table, and what all names that end with * begin with."""
    whole = frozenset(name for name in _TABLE[key] if not name.endswith("*"))
    return whole, tuple(name[:-1] for name in _TABLE[key] if name.endswith("*"))


_SILENT, _SILENT_STARTS = _names("silent")
_SOUNDS, _SOUND_STARTS = _names("sounds")
_PATTERN = re.compile(r"(?:[^{}\[\]]|\{[^{}\[\]]+\}|\[(?:[^{}\[\]]|\{[^{}\[\]]+\})*\])*")
_FIELD = re.compile(r"\{([^{}]+)\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(
    r"[-−+]?(?:[\d.,]*\d(?:[ +⁄/]+\d+[/⁄]+\d+)?|\d+[/⁄]+\d+)(?:e[-−+]?\d+)?", re.IGNORECASE
)
PLUS = "\u2064"  # invisible, before a fraction: what comes before it may be a whole number
POWER = "\u2063"  # invisible, before an exponent, if what comes before it is a number
_SUM = re.compile(r"\S\s*[-+−±×·/]\s*\S")  # a term of several parts
_WHOLE_NUMBER = re.compile(r"([-−+]?)(\d*)((?:\.\d+)?)")
_EXPONENT = re.compile(r"(?i:e)\+?([-−]?\d+)$")
_ONE = re.compile(r"[-−]?1(\.0+)?")
_FRACTION = re.compile(r"(\d+)[/⁄]+(\d+)")
_LONGEST = 40  # characters of a number
_RANGES = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "to(-)": " to ",
    "and": " and ",
    "and(-)": " and ",
    "or": " or ",
    "by": " by ",
    "by(x)": " by ",
    "x": " by ",
    "xx": " by ",
    "×": " by ",
    "*": " by ",
    "+/-": " ± ",
    "±": " ± ",
    "+": " + ",
    ",": ", ",
    ", and": ", and ",
    ", or": ", or ",
    "or(-)": " or ",
    "to about": " to about ",
}
_PREFIXES = frozenset("mpgtyz")  # of units, whose case tells them apart
_THOUSANDS = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
_THOUSANDS |= {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}
_MANY = re.compile(r"(e3|e6|e9|e12|[kMGT](?=oilbbl|cuft|USgal|impgal))(.+)")
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
_HIDES_INPUT = re.compile("out|num|unit|table")  # of `disp`: the converted number, or cells, alone
_AMERICAN = (("metre", "meter"), ("litre", "liter"))
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_MONTH_NUMBERS = {name[:3].lower(): number for number, name in enumerate(_MONTHS, 1)}

Unnamed = Sequence[str]
Named = Mapping[str, str]


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
        elif re.search(r"[\[\]{}|<>#]", name):
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
    """The form in which a template's name is looked up."""
    return text.strip().lower().replace("_", " ").removeprefix("template:").lstrip()


def is_silent(name: str) -> bool:
    """Whether a template, such as a reference or a request, shows no word within a sentence."""
    return name in _SILENT or name.startswith(_SILENT_STARTS)


def is_sound(name: str) -> bool:
    """Whether a template says how a word is pronounced."""
    return name in _SOUNDS or name.startswith(_SOUND_STARTS)


def sign(name: str) -> str | None:
    """The text of a template without parameters; None if it is not known."""
    if name.startswith("formatnum:"):
        return _grouped(name.removeprefix("formatnum:").strip()) or None
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


# --- measures


def _is_number(text: str) -> bool:
    return len(text) <= _LONGEST and bool(_NUMBER.fullmatch(text))


def _grouped(number: str) -> str:
    """1234.5 as "1,234.5", .5 as "0.5"; other numbers as they are."""
    match = _WHOLE_NUMBER.fullmatch(number)
    if not match or len(number) > _LONGEST or not number.strip("-−+"):
        return number
    return f"{match[1]}{int(match[2] or 0):,}{match[3]}"


def _convert(unnamed: Unnamed, named: Named, abbreviated: bool = False) -> str:
    """{{convert|10|to|20|km|mi}}: "10 to 20 kilometres"; without what it is converted to."""
    unnamed = [value.replace(PLUS, " ").replace("//", "/").strip() for value in unnamed]
    words, i = [unnamed[0]] if unnamed else [], 1
    while i + 1 < len(unnamed) and unnamed[i] in _RANGES and _is_number(unnamed[i + 1]):
        words += [_RANGES[unnamed[i]], unnamed[i + 1]]
        i += 2
    if _HIDES_INPUT.match(named.get("disp", "")):
        return ""
    if i >= len(unnamed) or not _is_number(words[0]) or unnamed[i] in _RANGES:
        return ""
    words = [_grouped(word) for word in words]
    if named.get("abbr") == "values":  # the unit is written behind the template
        return "".join(words)
    style = named | {"abbr": "on"} if abbreviated else named
    if (adjective := named.get("adj")) in ("mid", "pre") and len(unnamed) > i + 1:
        style = style | {adjective: unnamed[-1]}
    if not _unit(unnamed[i]):
        return ""
    text = _measure("".join(words), unnamed[i], style)
    # Feet and inches, stones and pounds. (A last number alone says how many digits are shown.)
    while i + 2 < len(unnamed) and _is_number(unnamed[i + 1]):
        if not _unit(unnamed[i + 2]):
            return ""  # a range or a unit that is not known
        text += f" {_measure(unnamed[i + 1], unnamed[i + 2], style)}"
        i += 2
    return text


def _unit(code: str) -> Sequence[str] | None:
    """(one, many, symbol) of a unit. Codes tell mW from MW; others, such as KM, are one unit's."""
    if code in _UNITS:
        return _UNITS[code]
    if (many := _MANY.fullmatch(code)) and (unit := _unit(many[2])):
        return [f"{_THOUSANDS[many[1]]} {name}" for name in unit]
    alike = [key for key in _UNITS if key.lower() == code.lower()]
    if len(alike) != 1 or (alike[0][:1] != code[:1] and code[:1].lower() in _PREFIXES):
        british = code.replace("meter", "metre").replace("liter", "litre")
        alike = [key for key, unit in _UNITS.items() if british in unit[:2]]
    return _UNITS[alike[0]] if alike else None


def _measure(value: str, unit: str, named: Named) -> str:
    one, many, symbol = _unit(unit) or ("", "", "")
    if named.get("sp") == "us":
        for ours, theirs in _AMERICAN:
            one, many = one.replace(ours, theirs), many.replace(ours, theirs)
    adjective = named.get("adj") in ("on", "mid") or named.get("sing") == "on"
    if adjective and named.get("abbr") != "on" and not symbol.startswith("°"):
        middle = named.get("mid", "")
        blank = " " * middle[:1].isalnum()
        return f"{value}-{one.replace(' ', '-')}{blank}{middle}"
    match = _FRACTION.fullmatch(value)
    is_one = _ONE.fullmatch(value) or (match and int(match[1]) <= int(match[2]))
    name = one if is_one and not _MANY.fullmatch(unit) else many  # 1 million acres
    if named.get("pre"):
        return f"{value} {named['pre']} {name}"
    if named.get("abbr") in ("on", "in", "~") or symbol.startswith("°"):
        blank = "" if symbol.startswith(("/", "°")) else " "
        return f"{value}{blank or ' ' * symbol.startswith('°')}{symbol}"
    return f"{value} {name}"


def _val(unnamed: Unnamed, named: Named) -> str:
    """{{val|1.2|0.3|e=5|u=km}}: "1.2±0.3×10^5 km"."""
    if not unnamed or not _is_number(unnamed[0]):
        return ""
    match list(unnamed[1:]):
        case []:
            text = _EXPONENT.sub(r"×10^\1", unnamed[0])
        case [error] if error.startswith("("):
            text = unnamed[0] + error
        case [error]:
            text = f"{unnamed[0]}±{error}"
        case [sign, other] if sign in _RANGES and _is_number(other):
            text = unnamed[0] + _RANGES[sign] + other
        case [above, below] if _is_number(above) and _is_number(below):
            text = f"{unnamed[0]}+{above.lstrip('+')}−{below.lstrip('-−')}"
        case _:
            return ""
    if named.get("e"):
        single = len(unnamed) == 1 or unnamed[1].startswith("(")
        text = f"{text if single else f'({text})'}×10^{named['e']}"
    unit, per = (named.get(name) or named.get(f"{name}l") or "" for name in ("u", "up"))
    unit += f"/{per}" if per else ""
    end = named.get("s") or named.get("end", "")
    return f"{named.get('p', '')}{text}{' ' + unit if unit else ''}{end}"


def _plus_minus(unnamed: Unnamed, named: Named) -> str:
    """{{±|0.3}}: "±0.3"; {{±|0.3|0.1}}: "+0.3−0.1"."""
    match list(unnamed):
        case [error]:
            return f"±{error}"
        case [above, below]:
            return f"+{above.lstrip('+')}−{below.lstrip('-−')}"
    return ""


def _chem(unnamed: Unnamed, named: Named) -> str:
    """{{chem|H|2|O}}: "H2O"."""
    return "".join(unnamed)


def _height(unnamed: Unnamed, named: Named) -> str:
    """{{height|ft=6|in=2}}: "6 ft 2 in"."""
    units = ("m", "cm") if named.get("m") or named.get("cm") else ("ft", "in")
    return " ".join(f"{named[unit]} {unit}" for unit in units if named.get(unit))


def _fraction(unnamed: Unnamed, named: Named) -> str:
    """{{frac|2|1|3}}: "2 1/3"."""
    match [f"({value})" if _SUM.search(value) else value for value in unnamed]:
        case [below]:
            return f"{PLUS}1/{below}"
        case [above, below]:
            return f"{PLUS}{above}/{below}"
        case [whole, above, below]:
            return f"{whole} {above}/{below}"
    return ""


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
    if language := "" if named.get("label") == "none" else _LANGUAGES.get(code, ""):
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
    if not unnamed or not unnamed[0].isdigit():
        return unnamed[0] if unnamed else ""
    year, month, day = [*unnamed[:3], "", ""][:3]
    month = str(_MONTH_NUMBERS.get(month[:3].lower(), month))
    if not (month.isdigit() and 1 <= int(month) <= 12):
        return year
    name = _MONTHS[int(month) - 1]
    if not day.isdigit():
        return f"{name} {year}"
    if named.get("df", "").lower() in ("y", "yes", "t", "true", "1"):
        return f"{int(day)} {name} {year}"
    return f"{name} {int(day)}, {year}"


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
    """{{hms|5|6|7}}: "5h 6m 7s"; but {{HMS|Hood}}: "HMS Hood"."""
    if unnamed and _is_number(unnamed[0]):
        return " ".join(f"{value}{unit}" for value, unit in zip(unnamed, "hms", strict=False))
    return _ship(_SHIPS["hms"], unnamed, named)


def _after_first(read: Callable[[str, Unnamed, Named], str]) -> Callable[[Unnamed, Named], str]:
    """{{ship|HMS|Hood}} as {{HMS|Hood}}, {{langx|fr|mot}} as {{lang-fr|mot}}."""
    return lambda unnamed, named: read(unnamed[0], unnamed[1:], named) if unnamed else ""


_FUNCTIONS: dict[str, Callable[[Unnamed, Named], str]] = {
    **dict.fromkeys(("convert", "conv", "convert/2"), _convert),
    "cvt": functools.partial(_convert, abbreviated=True),
    "val": _val,
    **dict.fromkeys(("±", "pm", "+-"), _plus_minus),
    "chem": _chem,
    "height": _height,
    "age": _age,
    **{name: functools.partial(_ship, prefix) for name, prefix in _SHIPS.items()},
    "ship": _after_first(_ship),
    **dict.fromkeys(("sclass", "sclass-", "sclass2", "sclass2-"), _ship_class),
    "langx": _after_first(_translation),
    "nihongo": functools.partial(_japanese, (0, 1, 2)),
    "nihongo3": functools.partial(_japanese, (2, 1, 0)),
    "nihongo krt": functools.partial(_japanese, (1, 2, 0)),
    "zh": _chinese,
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
    **dict.fromkeys(("currency", "fxconvert"), _currency),
    "inrconvert": functools.partial(_lakhs, "₹"),
    "jpyconvert": functools.partial(_lakhs, "¥"),
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
