"""Text of a simulated stream that states no facts: sentences by topic, and new words.

In a pattern `[a|b|c]` is a choice. `{c}` is a city, `{n}` a country, `{k}` a company, `{p}` the
person of the paragraph, `{w}` the new word, `{x}` a number whose size grows with the years, `{y}`
the year.
"""

import dataclasses
import random
import re

_CHOICE = re.compile(r"\[([^\]]*)\]")
_STOP = re.compile(r"(?<=\w)([.,?])(?= |$)")


@dataclasses.dataclass(frozen=True)
class Topic:
    """A topic of a stream."""

    fraction: tuple[float, float]  # of the documents, at the start and at the end of the stream
    relations: tuple[str, ...]  # that its documents report
    facts: float  # how many paragraphs of a document are about facts, on average
    trends: int  # new words, in a world of eight countries
    patterns: tuple[str, ...]  # sentences of the topic
    quotes: tuple[str, ...]  # what a person says or does
    news: tuple[str, ...]  # sentences with a new word
    ends: tuple[str, ...]  # of its new words
    # nouns, verbs and adjectives, of which the first are the most frequent
    words: tuple[str, str, str]


# fmt: off
TOPICS = {
    "politics": Topic(
        fraction=(0.24, 0.30),
        relations=("prime_minister", "mayor", "treaty", "ambassador", "capital"),
        facts=1.3, trends=5,
        patterns=(
         "The [parliament|council|cabinet|senate] of {n} [debated|passed|rejected|delayed] the "
           "[budget|tax|border|energy|housing] [bill|law|plan].",
         "[Voters|Farmers|Teachers|Judges] in {c} [protested against|welcomed|asked about] the "
           "[reform|tax|decree|vote].",
         "The [opposition|government|coalition] wants to [cut|raise|keep] the "
           "[spending|tax|pension] by {x} million.",
         "A [poll|survey] of {x} people in {n} gave the [government|opposition] [a small|a "
           "large|no] lead.",
         "The [treaty|border|election] was [discussed|agreed on|put off] in {y}."),
        quotes=("{p} [promised|refused|agreed] to [sign|change|withdraw] the [bill|law|plan].",
         "{p} told [reporters|voters|ministers] in {c} that the [budget|reform|vote] was "
           "[fair|late|wrong]."),
        news=("The {w} movement [held|planned|called off] a march in {c}.",
         "Supporters of {w} [won|lost] {x} seats in {n}.",
         "The government [banned|debated|feared] {w} after the vote in {c}.",
         "In {c} the word {w} was on every [wall|poster|banner]."),
        ends=("ism", "ista", "ova"),
        words=("minister law party vote council border tax budget court treaty speech crisis "
         "leader debate office campaign reform union decree rally senator scandal veto "
         "ballot envoy mandate cabinet petition quota summit charter deputy hearing "
         "motion clause lobby pension region prison flag",
         "backed opposed signed blocked praised feared changed drafted attacked accepted "
         "questioned delayed repealed defended ignored",
         "new public national secret foreign strict narrow costly liberal modest "
         "unpopular radical formal divided legal"),
    ),
    "sports": Topic(
        fraction=(0.24, 0.20), relations=("head_coach", "club", "final", "league"), facts=1.3,
        trends=4,
        patterns=(
         "The [keeper|striker|captain|referee] was [injured|praised|sent off] in the "
           "[first|second] half.",
         "[Fans|Players] in {c} [sang|waited|cheered] until the [end|whistle|goal].",
         "The match in {c} ended [one|two|three] to [nil|one|two] before {x} fans.",
         "The [season|cup|league] of {y} [opens|ends|goes on] in {c}.",
         "[Tickets|Seats] for the [match|final] cost {x} crowns."),
        quotes=("{p} [scored|rested|trained] [before|after] the [match|break|final].",
         "{p} said that the [team|defence|attack] had [played well|been slow|made mistakes]."),
        news=("A {w} [team|club|school] was founded in {c}.",
         "Players of {w} need a [ball|net|board] and {x} minutes.",
         "The first {w} [cup|match|season] was played in {n}.",
         "In {c} more [children|fans|people] now play {w} than [football|tennis|chess]."),
        ends=("ball", "oto", "ing"),
        words=("team player goal coach match season ball fan club race title field medal "
         "runner keeper league final record pass whistle stadium penalty rival track "
         "injury trophy captain corner kick jersey bench trainer referee net sprint "
         "swimmer podium crowd relay lap",
         "beat chased lost won blocked carried cheered trained missed kicked passed "
         "injured followed booed replaced",
         "fast young local strong tired late proud muddy brave narrow injured champion "
         "lucky noisy old"),
    ),
    "business": Topic(
        fraction=(0.20, 0.20),
        relations=("chief_executive", "headquarters", "employer", "plant", "takeover"),
        facts=1.2, trends=4,
        patterns=(
         "[Shares|Sales|Profits|Wages] in {n} [rose|fell] to {x} [crowns|points|million].",
         "The [bank|firm|market] [expects|fears|plans] [growth|losses|a merger] in {y}.",
         "[Investors|Workers|Customers] of {k} [left|waited|complained] [last week|on "
           "Monday|again].",
         "The price of [oil|bread|steel|rent] was {x} crowns in {y}.",
         "{k} [hired|dismissed|trained] {x} [workers|drivers|clerks] in {c}."),
        quotes=("{p} [bought|sold|kept] shares for {x} crowns.",
         "{p} told [investors|the board|staff] that [sales|costs|debts] would [rise|fall]."),
        news=("{k} [sells|makes|repairs] a {w} for {x} crowns.",
         "Every [shop|home|office] in {c} wants a {w}.",
         "[Sales|Imports|Makers] of the {w} [doubled|fell|grew] in {n}.",
         "The {w} of {k} [works|charges|breaks] faster than [others|expected|before]."),
        ends=("ex", "ino", "ora"),
        words=("market price bank company worker share profit loan factory product debt "
         "customer deal trade plant investor wage invoice warehouse contract bond merger "
         "supplier retailer auditor dividend tariff boss shipment patent forecast store "
         "brand credit rent insurer startup budget payroll cargo",
         "bought sold cut raised closed hired shipped financed audited rented doubled "
         "owed opened priced leased",
         "cheap large private global weak risky foreign annual steady costly digital "
         "small profitable idle rival"),
    ),
    "science": Topic(
        fraction=(0.10, 0.22), relations=("rector", "alma_mater", "award", "honour", "medal"),
        facts=1.0, trends=5,
        patterns=(
         "[Doctors|Students|Chemists|Engineers] in {c} [tested|measured|published] a new "
           "[method|drug|sensor].",
         "A [study|trial|paper] of {x} [patients|stars|plants] [found|showed] [no effect|a "
           "small effect|an error].",
         "The [laboratory|journal|hospital] [opened|closed|moved] in {y}.",
         "[Funding|Equipment] for the [project|clinic|telescope] cost {x} million."),
        quotes=("{p} [gave|read|wrote] a [lecture|paper|report] on [cells|light|water|heat].",
         "{p} thanked the [students|nurses|staff] of the [laboratory|hospital|faculty]."),
        news=("Doctors in {c} treated {x} [patients|children|nurses] with {w}.",
         "The {w} [spread|slowed|returned] in {n} this [week|month|spring].",
         "A [vaccine|cure|test] against {w} is [ready|late|promised].",
         "[Schools|Hospitals|Trains] in {c} closed because of {w}."),
        ends=("itis", "ella", "osis"),
        words=("study doctor cell test patient theory drug star planet sample sensor virus "
         "nurse signal method laser atom fossil gene telescope orbit tissue magnet "
         "enzyme particle crystal laboratory infection protein dose scan comet satellite "
         "glacier battery reactor robot formula microbe lens",
         "measured tested found published cooled observed treated copied described "
         "detected modelled confirmed heated weighed mapped",
         "small rare distant clinical early exact frozen toxic hidden complex bright "
         "useful molecular random warm"),
    ),
    "lifestyle": Topic(
        fraction=(0.22, 0.08),
        relations=("residence", "birthplace", "country", "river_country"),
        facts=0.6, trends=1,
        patterns=(
         "[Stir|Warm|Mix] the [butter|milk|flour|honey] and add [salt|sugar|two eggs|a lemon].",
         "[Roses|Beans|Apples|Tulips] need [sun|shade|water] in [spring|summer|autumn].",
         "It was [cold|warm|dry|wet] by the river and the [wind|rain|sun] was [weak|strong].",
         "[Children|Guests|Visitors] [liked|painted|carried] the [red|blue|green] "
           "[kites|boats|hats].",
         "The [cake|soup|bread] should [rest|cook|cool] for [an hour|ten minutes|a night].",
         "[Walk|Cycle] along the [lake|forest|hill] and [rest|eat] at the [inn|bridge|mill].",
         "The [choir|band|theatre] [sang|played] [old|quiet|merry] [songs|tunes]."),
        quotes=("{p} [bakes|paints|gardens|sings] on [Sundays|holidays|rainy days].",
         "{p} keeps [two dogs|a cat|bees|hens] [at home|by the river]."),
        news=("[Cook|Serve|Fry] the {w} with [butter|onions|herbs].",
         "A plate of {w} costs {x} crowns in {c}.",
         "[Guests|Children] asked for more {w}."),
        ends=("etta", "uli"),
        words=("garden kitchen house dog bread river song cake dress child guest forest "
         "holiday recipe chair cat soup flower beach lamp poem basket window horse tea "
         "pillow violin blanket orchard picnic kettle carpet bicycle candle balcony "
         "sweater pond mirror parade cottage",
         "painted baked washed carried watched loved mended found planted borrowed "
         "cleaned folded warmed sang kept",
         "old sweet quiet little green soft sunny lovely wooden empty merry pale sleepy "
         "round tidy"),
    ),
}
# fmt: on

# Sentences of any topic: `{N}`, `{V}` and `{A}` are nouns, verbs and adjectives.
PLAIN = (
    "The {A} {N} {V} the {N}.",
    "A {N} {V} the {N} of the {A} {N}.",
    "The {N} {V} a {A} {N} near {c}.",
    "In {c}, the {N} and the {N} {V} the {A} {N}.",
    "No {N} {V} the {N} before the {A} {N}.",
    "Every {A} {N} {V} a {N}, and the {N} {V} the {N}.",
    "The {N} of {n} {V} each {N} without a {A} {N}.",
)
_WORD = re.compile(r"\{([NVA])\}")


def plain(topic: Topic, rng: random.Random) -> str:
    """A pattern of `PLAIN` with words in it: of the topic, now and then of another."""

    def word(match: re.Match) -> str:
        source = topic if rng.random() < 0.8 else rng.choice(list(TOPICS.values()))
        words = source.words["NVA".index(match[1])].split()
        return words[int(len(words) * rng.random() ** 1.8)]

    return _WORD.sub(word, rng.choice(PLAIN))


def choose(pattern: str, rng: random.Random) -> str:
    """Settles the choices of a pattern."""
    return _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), pattern)


def tokenised(sentence: str) -> str:
    """Puts blanks around stops, as Moses' tokenizer does; the patterns have no harder cases."""
    return _STOP.sub(r" \1", sentence)
