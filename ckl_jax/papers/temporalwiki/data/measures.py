"""Measures, numbers and chemistry's formulae in wikitext templates: {{convert}}, {{val}}, {{frac}}.

`inline_templates.json` has the `units` of {{convert}}, (one, many, symbol) by code. {{val}} has
more: `symbols` by code, `plain` codes that are shown as they are, and those of `prefixed`, alone
or behind one of the `prefixes`.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ckl_jax.data.text.sentences import NUMBER_WORDS
from ckl_jax.files import read_json

TABLE = read_json(Path(__file__).with_name("inline_templates.json"))
_UNITS = TABLE["units"]
UNITS_BY_NAME = {name.lower(): unit[0] for unit in _UNITS.values() for name in unit}
_UNIT_NAMES = frozenset(name for unit in _UNITS.values() for name in unit[:2])
_SYMBOLS, _PREFIXED = TABLE["symbols"], frozenset(TABLE["prefixed"].split())
_PLAIN_UNITS = _PREFIXED.difference(_SYMBOLS).union(TABLE["plain"].split())

# Invisible characters, for `wikitext._tidy`.
PLUS = "\u2064"  # before a fraction: what comes before it may be a whole number
POWER = "\u2063"  # before an exponent, if what comes before it is a number
INDEX, AFTER = "\u2062", "\u2061"  # before a subscript; after one, or after a power
NO_SCRIPTS = str.maketrans("", "", POWER + INDEX + AFTER)

Unnamed = Sequence[str]
Named = Mapping[str, str]
_NUMBER = re.compile(
    r"[-−+]?(?:[\d.,]*\d(?:[ +⁄/]+\d+[/⁄]+\d+)?|\d+[/⁄]+\d+)(?:e[-−+]?\d+)?", re.IGNORECASE
)
_UNIT_NAME = re.compile(r"[^\d\s./⋅·*−-]+")
_SUM = re.compile(r"\S\s*[-+−±×·/]\s*\S")  # a term of several parts
_WHOLE_NUMBER = re.compile(r"([-−+]?)(\d*)((?:\.\d+)?)")
_EXPONENT = re.compile(r"(?i:e)\+?([-−]?\d+)$")
_ONE = re.compile(r"[-−]?1(\.0+)?|[Oo]ne")
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
# The converted number, or cells, alone; words before the unit; a number that is given is rounded.
_HIDES_INPUT = re.compile("disp=(?:out|num|unit|table|preunit)|adj=ri")
_AMERICAN = (("metre", "meter"), ("litre", "liter"))
_MIXED = re.compile(r"(?<=\d)\+(?=\d+[/⁄])")  # in 2+1/2
_SPELT = {str(number): word for number, word in enumerate(("zero", *NUMBER_WORDS[:12]))}
_CHARGE = re.compile(r"\d*[-−+]")
_CHEM2 = re.compile(rf"\(({_CHARGE.pattern})\)|\^\{{([^{{}}]*)\}}|_\{{([^{{}}]*)\}}")


def is_number(text: str) -> bool:
    return len(text) <= _LONGEST and bool(_NUMBER.fullmatch(text))


def grouped(number: str) -> str:
    """1234.5 as "1,234.5", .5 as "0.5"; other numbers as they are."""
    match = _WHOLE_NUMBER.fullmatch(number)
    if not match or len(number) > _LONGEST or not number.strip("-−+"):
        return number
    return f"{match[1]}{int(match[2] or 0):,}{match[3]}"


def _shown(number: str, named: Named) -> str:
    """A number as {{convert}} shows it: "2 1/2" of 2+1/2, "5×10^3" of 5e3, or spelt."""
    if named.get("spell") and number in _SPELT:
        word = _SPELT[number]
        return word.capitalize() if named["spell"][0].isupper() else word
    number = number if named.get("comma") == "off" else grouped(number)
    return _EXPONENT.sub(r"×10^\1", _MIXED.sub(" ", number))


def _convert(unnamed: Unnamed, named: Named, abbreviated: bool = False) -> str:
    """{{convert|10|to|20|km|mi}}: "10 to 20 kilometres"; without what it is converted to."""
    unnamed = [value.replace(PLUS, " ").replace("//", "/").strip() for value in unnamed]
    if named.get("disp") == "x":  # the last two go round what it is converted to
        unnamed = unnamed[:-2]
    words, i = [unnamed[0]] if unnamed else [], 1
    while i + 1 < len(unnamed) and unnamed[i] in _RANGES and is_number(unnamed[i + 1]):
        words += [_RANGES[unnamed[i]], unnamed[i + 1]]
        i += 2
    if _hides_input(named):
        return ""
    if i >= len(unnamed) or not is_number(words[0]) or unnamed[i] in _RANGES:
        return ""
    words = [_shown(word, named) for word in words]
    if named.get("abbr") == "values":  # the unit is written behind the template
        return "".join(words)
    style = named | {"abbr": "on"} if abbreviated else named
    if (adjective := named.get("adj")) in ("mid", "pre") and len(unnamed) > i + 1:
        style = style | {adjective: unnamed[-1]}
    if not _unit(unnamed[i]):
        return ""
    text = _measure("".join(words), unnamed[i], style)
    # Feet and inches, stones and pounds. (A last number alone says how many digits are shown.)
    while i + 2 < len(unnamed) and is_number(unnamed[i + 1]):
        if not _unit(unnamed[i + 2]):
            return ""  # a range or a unit that is not known
        text += f" {_measure(_shown(unnamed[i + 1], named), unnamed[i + 2], style)}"
        i += 2
    return text


def _hides_input(named: Named) -> bool:
    return any(_HIDES_INPUT.match(f"{name}={value}") for name, value in named.items())


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
    is_one = (
        _ONE.fullmatch(value)
        or value.lower() == "one"
        or (match and int(match[1]) <= int(match[2]))
    )
    name = one if is_one and not _MANY.fullmatch(unit) else many  # 1 million acres
    if named.get("pre"):
        return f"{value} {named['pre']} {name}"
    if named.get("abbr") in ("on", "in", "~") or (
        symbol.startswith("°") and named.get("abbr") != "off"
    ):
        blank = "" if symbol.startswith(("/", "°")) else " "
        return f"{value}{blank or ' ' * symbol.startswith('°')}{symbol}"
    return f"{value} {name}"


def _val(unnamed: Unnamed, named: Named) -> str:
    """{{val|1.2|0.3|e=5|u=km}}: "1.2±0.3×10^5 km"."""
    if not unnamed or not is_number(unnamed[0]):
        return ""
    match list(unnamed[1:]):
        case []:
            text = _EXPONENT.sub(r"×10^\1", unnamed[0])
        case [error] if error.startswith("("):
            text = unnamed[0] + error
        case [error]:
            text = f"{unnamed[0]}±{error}"
        case [sign, other] if sign in _RANGES and is_number(other):
            text = unnamed[0] + _RANGES[sign] + other
        case [above, below] if is_number(above) and is_number(below):
            text = f"{unnamed[0]}{_plus_minus((above, below), named)}"
        case _:
            return ""
    if named.get("e"):
        single = len(unnamed) == 1 or unnamed[1].startswith("(")
        text = f"{text if single else f'({text})'}×10^{named['e']}"
    if (unit := _unit_of(named)) is None:
        return ""
    end = named.get("s") or named.get("end", "")
    return f"{named.get('p', '')}{text}{' ' * bool(unit.strip('°′″%‰'))}{unit}{end}"


def _unit_of(named: Named) -> str | None:
    """The unit of {{val}}, perhaps ""; None if it is not known."""
    codes = [named.get(name) or named.get(f"{name}l") or "" for name in ("u", "up")]
    unit, per = (_symbols(code) if code else "" for code in codes)
    if [bool(unit), bool(per)] != list(map(bool, codes)):
        return None
    return f"{unit}/{per}" if per else unit


def _symbols(code: str) -> str:
    """A unit of {{val}}: "m⋅s−2" of m.s-2; "" where a part of it is not known."""
    code = code.translate(NO_SCRIPTS)
    if whole := _symbol(code):
        return whole
    names = _UNIT_NAME.findall(code)
    if not (names and all(map(_symbol, names))):
        return ""
    text = _UNIT_NAME.sub(lambda name: _symbol(name[0]), code)
    return text.replace(".", "⋅").replace("-", "−")


def _symbol(code: str) -> str:
    if code in _SYMBOLS or code in _PLAIN_UNITS:
        return _SYMBOLS.get(code, code)
    if code in _UNITS:
        return _UNITS[code][2]
    if code[:1] in TABLE["prefixes"] and code[1:] in _PREFIXED:
        return code[:1].replace("u", "μ") + _symbol(code[1:])
    return code if code in _UNIT_NAMES else ""


def _plus_minus(unnamed: Unnamed, named: Named) -> str:
    """{{±|0.3}}: "±0.3"; {{±|0.3|0.1}}: "+0.3−0.1"."""
    match list(unnamed):
        case [error]:
            return f"±{error}"
        case [above, below]:
            if above.startswith(("-", "−")):
                above, below = below, above
            return f"+{above.lstrip('+')}−{below.lstrip('-−')}"
    return ""


def _chem(unnamed: Unnamed, named: Named) -> str:
    """{{chem|H|2|O}}: "H2O"; {{chem|SO|4|2-}}: "SO4^2-"; {{chem|235|92|U}}: "235_92U"."""
    text, marks = "", (POWER, INDEX)  # a mass number comes first, then an atomic one
    for place, part in enumerate(unnamed):
        if place < 2 and not text.translate(NO_SCRIPTS).strip("0123456789") and part.isdecimal():
            part = f"{marks[place]}{part}{AFTER}"
        elif _CHARGE.fullmatch(part):
            part = f"{POWER}{part}{AFTER}"
        text += part
    return text


def _chem2(unnamed: Unnamed, named: Named) -> str:
    """{{chem2|SO4(2-)}}: "SO4^2-"; {{chem2|^{235}U}}: "235U"."""

    def script(match: re.Match) -> str:
        mark = POWER if match[3] is None else INDEX
        return f"{mark}{match[1] or match[2] or match[3] or ''}{AFTER}"

    return _CHEM2.sub(script, unnamed[0]) if unnamed else ""


def _height(unnamed: Unnamed, named: Named) -> str:
    """{{height|ft=6|in=2}}: "6 ft 2 in"."""
    units = ("m", "cm") if named.get("m") or named.get("cm") else ("ft", "in")
    return " ".join(f"{_shown(named[unit], {})} {unit}" for unit in units if named.get(unit))


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


FUNCTIONS: dict[str, Callable[[Unnamed, Named], str]] = {
    **dict.fromkeys(("convert", "conv", "convert/2"), _convert),
    "cvt": functools.partial(_convert, abbreviated=True),
    "val": _val,
    **dict.fromkeys(("±", "pm", "+-"), _plus_minus),
    "chem": _chem,
    "chem2": _chem2,
    "height": _height,
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
}
