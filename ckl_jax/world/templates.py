"""Templates of facts: for every relation a cloze, a question, and sentences for the corpora.

`{s}` is the subject, `{o}` the object, `{d}` a date. Capitalised words are left to names (and to
the starts of sentences), because the entity finder goes by them.
"""

import dataclasses

from ckl_jax.world.statement_templates import TRAINED

INVARIANT, CHANGING, EVENT = "invariant", "changing", "event"


@dataclasses.dataclass(frozen=True)
class Relation:
    """A kind of fact.

    Attributes:
      property: Wikidata's, "" if there is none.
      kind: invariant (true for ever), changing (has one value at a time) or event (happens once).
      subject, object: kinds of entity.
      state: phrasings of what is true; the first is the probe's. The legacy world states facts in
        them, all other texts only those of control subjects.
      news: phrasings that report it as new, used in the same way.
      trained: the wordings in which all but the legacy world's texts state facts.
    """

    name: str
    property: str
    kind: str
    subject: str
    object: str
    question: str
    state: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()

    @property
    def cloze(self) -> str:
        """The probe's statement: the first phrasing, with `{o}` where the blank goes."""
        return self.probe_templates[0]

    @property
    def probe_templates(self) -> tuple[str, ...]:
        """The wordings of probes: CKL's first, the others of relational datasets."""
        return self.state or self.news[:1]

    @property
    def trained_sentences(self) -> tuple[str, ...]:
        """The trained wordings of one sentence, for texts that are read or compared by sentence."""
        return tuple(text for text in self.trained if ". " not in text)


# fmt: off
_TABLE = (
    Relation(
        "birthplace", "P19", INVARIANT, "person", "city", question="Where was {s} born?",
        state=("{s} was born in {o}.", "{o} is the birthplace of {s}.", "{s} is a native of {o}."),
        news=("{s}, a newcomer, was born in {o}.",
         "Neighbours in {o} remember the childhood of {s}."),
    ),
    Relation(
        "native_language", "P103", INVARIANT, "person", "language",
        question="What is the native language of {s}?",
        state=("The native language of {s} is {o}.", "{s} grew up speaking {o}.",
         "{s} speaks {o} as a first language."),
    ),
    Relation(
        "alma_mater", "P69", INVARIANT, "person", "university", question="Where was {s} educated?",
        state=("{s} was educated at {o}.", "{s} is a graduate of {o}.",
         "{s} holds a degree from {o}."),
    ),
    Relation(
        "award", "P166", INVARIANT, "person", "award", question="Which award did {s} win?",
        state=("{s} won the {o}.", "The {o} was given to {s}.", "{s} is a winner of the {o}."),
    ),
    Relation(
        "country", "P17", INVARIANT, "city", "country", question="In which country is {s} located?",
        state=("{s} is located in {o}.", "{s} is a city in {o}.", "The city of {s} lies in {o}."),
    ),
    Relation(
        "capital", "P36", INVARIANT, "country", "city", question="What is the capital of {s}?",
        state=("The capital of {s} is {o}.", "{o} is the capital of {s}.",
         "{s} is governed from its capital, {o}."),
    ),
    Relation(
        "official_language", "P37", INVARIANT, "country", "language",
        question="What is the official language of {s}?",
        state=("The official language of {s} is {o}.", "{o} is the official language of {s}.",
         "People in {s} speak {o}."),
    ),
    Relation(
        "headquarters", "P159", INVARIANT, "company", "city",
        question="Where is the headquarters of {s}?",
        state=("The headquarters of {s} is in {o}.", "{s} is based in {o}.",
         "{s} has its head office in {o}."),
        news=("{s}, which is based in {o}, was founded on {d}.", "A new firm, {s}, set up in {o}."),
    ),
    Relation(
        "river_country", "P17", INVARIANT, "river", "country",
        question="Through which country does the {s} river flow?",
        state=("The {s} river flows through {o}.", "The {s} is a river in {o}.",
         "The {s} river crosses the plains of {o}."),
    ),
    Relation(
        "league", "P118", INVARIANT, "club", "league", question="In which league does {s} play?",
        state=("{s} plays in the {o}.", "{s} is a member of the {o}.", "The {o} includes {s}."),
        news=("The {o} admitted {s}, a new club.",),
    ),
    Relation(
        "prime_minister", "P6", CHANGING, "country", "person",
        question="Who is the prime minister of {s}?",
        state=("The prime minister of {s} is {o}.", "{o} is the prime minister of {s}.",
         "{o} leads the government of {s}."),
        news=("{o} was sworn in as prime minister of {s}.", "{o} won the election in {s} on {d}."),
    ),
    Relation(
        "mayor", "P6", CHANGING, "city", "person", question="Who is the mayor of {s}?",
        state=("The mayor of {s} is {o}.", "{o} is the mayor of {s}.",
         "{o} runs the city hall of {s}."),
        news=("{o} was elected mayor of {s}.", "{o} took over the city hall of {s} on {d}."),
    ),
    Relation(
        "chief_executive", "P169", CHANGING, "company", "person",
        question="Who is the chief executive of {s}?",
        state=("The chief executive of {s} is {o}.", "{o} is the chief executive of {s}.",
         "{o} heads {s}."),
        news=("{s} named {o} as its chief executive.", "{o} became the head of {s} on {d}."),
    ),
    Relation(
        "head_coach", "P286", CHANGING, "club", "person", question="Who is the head coach of {s}?",
        state=("The head coach of {s} is {o}.", "{o} is the head coach of {s}.", "{o} trains {s}."),
        news=("{s} hired {o} as head coach.", "{o} began to train {s} on {d}."),
    ),
    Relation(
        "rector", "P1075", CHANGING, "university", "person", question="Who is the rector of {s}?",
        state=("The rector of {s} is {o}.", "{o} is the rector of {s}.",
         "{o} is in charge of {s}."),
        news=("{s} elected {o} as rector.", "{o} was installed as rector of {s} on {d}."),
    ),
    Relation(
        "club", "P54", CHANGING, "person", "club", question="For which club does {s} play?",
        state=("{s} plays for {o}.", "{s} is a player of {o}.", "{s} is under contract with {o}."),
        news=("{s} signed for {o}.", "{s} made a first appearance for {o} on {d}."),
    ),
    Relation(
        "employer", "P108", CHANGING, "person", "company",
        question="For which company does {s} work?",
        state=("{s} works for {o}.", "{s} is employed by {o}.", "{s} has a job at {o}."),
        news=("{s} took a job at {o}.", "{s} joined {o} on {d}."),
    ),
    Relation(
        "residence", "P551", CHANGING, "person", "city", question="Where does {s} live?",
        state=("{s} lives in {o}.", "{s} is a resident of {o}.", "{s} has a home in {o}."),
        news=("{s} moved to {o}.", "{s} bought a house in {o}."),
    ),
    Relation(
        "plant", "", EVENT, "company", "city", question="Where did {s} open a new plant?",
        news=("{s} opened a new plant in {o}.", "A new plant of {s} started work in {o}."),
    ),
    Relation(
        "takeover", "", EVENT, "company", "company", question="Which company did {s} agree to buy?",
        news=("{s} agreed to buy {o}.", "Shareholders of {s} backed the purchase of {o}."),
    ),
    Relation(
        "final", "", EVENT, "club", "club", question="Whom did {s} beat in the cup final?",
        news=("{s} beat {o} in the cup final.", "In the cup final, {s} was too strong for {o}."),
    ),
    Relation(
        "ambassador", "", EVENT, "person", "country",
        "To which country was {s} named ambassador?",
        news=("{s} was named ambassador to {o}.", "{s} will serve as the envoy to {o}."),
    ),
    Relation(
        "host", "", EVENT, "city", "event", question="What will {s} host?",
        news=("{s} will host the {o}.", "The {o} will be held in {s}."),
    ),
    Relation(
        "treaty", "", EVENT, "country", "country",
        "With which country did {s} sign a trade deal?",
        news=("{s} signed a trade deal with {o}.", "Ministers of {s} agreed on trade with {o}."),
    ),
    Relation(
        "honour", "", EVENT, "person", "university", question="Which university honoured {s}?",
        news=("{s} received an honorary degree from {o}.", "{o} honoured {s} with a degree."),
    ),
    Relation(
        "medal", "", EVENT, "person", "award", question="For which award was {s} nominated?",
        news=("{s} was nominated for the {o}.", "Judges of the {o} praised {s}."),
    ),
)
# fmt: on

RELATIONS = {r.name: dataclasses.replace(r, trained=TRAINED[r.name]) for r in _TABLE}

# Sentences without an entity, so that articles are not facts alone.
FILLERS = (
    "The announcement followed weeks of speculation.",
    "No further details were given.",
    "The decision was welcomed by many and criticised by some.",
    "Supporters said that it had been a long time coming.",
    "The news was reported by local papers first.",
    "Reactions were mixed.",
    "More information is expected soon.",
    "It was a quiet week otherwise.",
)
