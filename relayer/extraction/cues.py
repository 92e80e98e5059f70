"""Cues that make a sentence worth remembering: a table of names with weights.

It does not own what becomes of them (`judge.py`), nor what must not be kept whatever its cues
(`injection_filter.py`).

- English and German words; dates, identifiers, addresses and amounts count in any language.
"""

import re
from dataclasses import dataclass
from typing import Final

from relayer.extraction.dates import FULL_DATE, MONTH


@dataclass(frozen=True)
class Cue:
    """A sign that a sentence lasts; `vital` marks what somebody asked to have remembered."""

    name: str
    kind: str
    weight: int
    pattern: re.Pattern[str]
    vital: bool = False


_DAY: Final = (
    "(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch"
)


_SEASON: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|spring|summer|autumn|fall|winter|christmas|easter|januar|februar|märz|mai|juni|juli|oktober"
    "|dezember|frühling|sommer|herbst|ostern|weihnachten"
)
_COUNT: Final = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty"
    "|hundred|thousand|dozen|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|hundert"
)
_KIN: Final = (
    "wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|ex|mum|mom|mother|dad|father|parent"
    "|sister|brother|twin|son|daughter|kid|child|children|baby|aunt|uncle|cousin|niece|nephew"
    "|grand(?:ma|pa|mother|father|son|daughter|child|children)|friend|mate|neighbou?r|flatmate"
    "|roommate|colleague|boss|manager|landlord|tenant|teacher|doctor|dentist|dog|cat|horse|rabbit"
    "|frau|mann|freund|freundin|mutter|vater|eltern|schwester|bruder|sohn|tochter|kinder|oma|opa"
    "|tante|onkel|nachbar|nachbarin|kollege|kollegin|chefin?|vermieter|lehrer|ärztin|arzt|hund|katze"
)


def phrases(lines: str, *, start: str = r"(?<!\w)") -> re.Pattern[str]:
    """Return a pattern of whole words and phrases, one or more alternatives a line."""
    alternatives = "|".join(line.strip() for line in lines.strip().splitlines())
    return re.compile(rf"{start}(?:{alternatives})(?!\w)", re.IGNORECASE)


def _cue(name: str, kind: str, weight: int, lines: str, *, vital: bool = False) -> Cue:
    return Cue(name, kind, weight, phrases(lines), vital)


# The strongest cue names the kind; among equals the first one.
CUES: Final = (
    _cue("remember", "fact", 4, r"""
        remember(?: ?:| that| this| to| my| our| the| we| I)|(?:don't|do not) forget
        remember (?:them|these|those|it|all of (?:them|it))(?= ?:)
        keep in mind|note that|for the record|make a note|important(?= ?:)
        merke? dir|vergiss nicht|denke? daran|zur erinnerung|wichtig(?= ?:)
        """, vital=True),
    _cue("health", "preference", 4, r"""
        (?:am|is|are|\w+'(?:m|s|re)) (?:\w+ )?(?:allergic|diabetic)|(?:\w+ )?allerg(?:y|ies)
        (?:bin|ist) (?:\w+ )?(?:allergisch|diabetiker(?:in)?)|\w*allergie
        """, vital=True),
    _cue("prefer", "preference", 3, r"""
        prefer(?:s|red)?|favou?rites?|can(?:'t|not) stand
        (?:is|are|am|\w+'[smre]+) (?:really |more )?into|(?:would|\w+'d) rather|vegetarian|vegan
        (?:I|we|he|she|they) (?:really |also |don't |do not )?(?:like|love|hate|dislike|enjoy)s?
        bevorzug(?:e|t|en)|am liebsten|lieber|lieblings\w+|(?:vegetarier|veganer)(?:in)?
        (?:ich|wir|er|sie) (?:mag|mögen|liebe?n?|hasse?n?)
        """),
    _cue("off", "event", 3, r"""
        (?:is|are|was|were|got|gets|been|being) (?:\w+ )?(?:postponed|rescheduled|cancell?ed)
        (?:ist|sind|wurden?|wird|werden) (?:[^.,;]{1,60} )?(?:verschoben|abgesagt|gestrichen)
        """),
    _cue("decide", "decision", 3, r"""
        decided|decision (?:is|was)|settled on|agreed (?:to|on|that|with)|went with
        (?:we|I) (?:will )?go with|(?:we're|we are|I'm|I am) going with
        let's (?:use|go with|keep|stick (?:to|with))
        (?:we|I|they|he|she)(?:'ve|'s| have| has)? (?:chose|picked|rejected|ruled out|approved)
        (?:we|I|they|he|she)(?:'ve|'s| have| has)? (?:chosen|opted)
        (?:switch(?:ed|ing)?|migrat(?:ed|ing|e)|moved|moving) (?:\w+ ){0,3}(?:to|from)
        beschlossen|entschieden|geeinigt|vereinbart|festgelegt|ausgeschlossen|wir nehmen
        nehmen wir|(?:wechseln|umgestiegen|steigen) (?:\w+ ){0,3}(?:zu|auf|um)
        """),
    _cue("change", "decision", 3, r"""
        changed (?:my|our|his|her|their) minds?|no longer|from (?:now|here) on|used to
        (?:not|\w+n't) (?:[^.,;]{1,60} )?any ?more|postponed|rescheduled|cancell?ed
        (?:(?:we|they)'re|(?:we|they) are) (?:dropping|removing|replacing|deprecating)
        nicht mehr|(?:ab|von) (?:jetzt|sofort|nun)(?: an)?|doch (?:lieber|nicht)|umentschieden
        früher|verschoben|abgesagt
        """),
    _cue("done", "event", 2, r"""
        (?:we|I|he|she|they)(?: have| has|'ve|'s)? (?:booked|signed|renewed|hired|bought|ordered)
        (?:hat|haben|habe) (?:[^.,;]{1,80} )?(?:gebucht|bestellt|gekauft|unterschrieben|verlängert)
        """),
    _cue("correct", "decision", 1, r"""
        actually|instead|eigentlich|statt(?:dessen)?
        """),
    # What never was, or is not, is no rule.
    _cue("absent", "fact", 2, r"""
        (?:have|has|had|was|were|did|\w+'(?:ve|s)) never|never (?:been|had|met|saw|got|learnt)
        never (?!exceed|proceed|succeed)\w{3,}ed
        we (?:don't|do not) (?:have|own|live|need|know|want|speak|eat|drink|smoke|drive|believe)
        (?:war|waren|habe|haben|hat|bin|ist|sind|hatten?) (?:[^.,;]{1,40} )?(?:nie|niemals)
        """),
    _cue("rule", "procedural", 2, r"""
        always|never|must(?: not|n't)?|make sure|(?:every|each) time|(?:not )?allowed to|in future
        we (?:don't|do not)|(?:don't|do not) (?:ever|use|send|call)
        forbidden|verboten|nur noch
        immer|nie(?:mals)?|muss|müssen|darf|dürfen|jedes mal|grundsätzlich
        """),
    _cue("practice", "procedural", 2, r"""
        (?:we|they) (?:follow|deploy|release|review|test|back up|rotate)
        (?:is|are) (?:only )?(?:calibrated|deployed|released|reviewed|tested|rotated)
        runs? (?:every|each|daily|nightly|weekly|at)|(?:goes|belongs?) (?:at|in|into|to)
        (?:kommt|gehört) (?:ans?|ins?|nach|zum|zur)
        (?:läuft|laufen) (?:jede\w*|täglich|nachts)
        """),
    _cue("person", "fact", 3, r"""
        my (?:full )?name is|call me|I (?:work|live|grew up|studied)
        I(?:'m| am) (?:a|an|the|from|based|responsible|on call)
        (?:is|are|I'm) (?:responsible for|in charge of|on call)
        (?:is|are) (?:our|my|the|your) (?:\w+ ){0,2}contact|our contact (?:\w+ ){0,3}is
        my (?:wife|husband|partner|son|daughter|dog|cat|boss|birthday|team|job|hometown)
        ich heiße|mein name ist|ich (?:arbeite|wohne|lebe|komme aus)|vertritt
        ich bin (?!sicher|mir|gespannt|froh|dabei|fertig|da)\w+|(?:zuständig|verantwortlich) für
        meine? (?:frau|mann|partner|partnerin|sohn|tochter|hund|katze|chef|chefin|geburtstag)
        """),
    _cue("own", "fact", 2, r"""
        (?:my|our) (?:[\w-]+ ){1,5}(?:is|are|was|were|has|have|runs?|lives?|uses?|stands?|sits?)
        (?:her|his|their) (?:[\w-]+ ){1,3}(?:is|are)
        (?:mein|unser)(?:e[rsmn]?)? (?:[\w-]+ ){1,5}(?:ist|sind|war|hat|haben|läuft|steht|liegt)
        """),
    _cue("named", "fact", 2, r"""
        the (?:[\w-]+ ){1,6}(?:is|are|was|were) (?-i:[A-Z0-9])[\w.-]*
        (?:is|are|\w+'s) (?:called|named)|(?:a|an|the) (?:[\w-]+ ){1,3}(?:called|named)
        (?:der|die|das) (?:[\w-]+ ){1,6}hei(?:ß|ss)t
        """),
    _cue("use", "fact", 2, r"""
        (?:we|I|they) (?:currently |now |only )?(?:use|run|store|keep|host|work on|work with)
        (?:is|are|was) (?:stored|located|hosted|deployed|written|built|tracked|kept|based)
        (?:runs?|lives?|listens?|sits|stands|depends|relies) (?:on|in|at|under|behind)
        (?:wir|ich) (?:verwenden?|nutzen?|benutzen?|setzen|speichern|betreiben)
        (?:läuft|liegt|steht|hängt|sitzt) (?:auf|in|im|unter|hinter|bei|an|am)
        """),
    _cue("deadline", "event", 2, r"""
        deadline|runs? out (?:in|on|at)|expires?|valid until|(?:is|are) due|due (?:on|by)
        go(?:es|ing)? live|launch(?:es|ed)?|birthday
        (?:starts?|begins?|ends?|opens?|happens?) (?:on|at|in)|appointment|vacation
        (?:arrives?|leaves?|returns?) (?:on|at|in|next|tomorrow)|on (?:leave|holiday)
        (?:im|in) urlaub|frist|termin|abgabe(?:termin)?|geburtstag
        (?:beginnt|startet|endet) (?:am|um|im)
        """),
    _cue("worth", "fact", 1, r"""
        because|the reason|(?:goal|plan|budget|contract|price) is|plan(?:s|ned|ning)? to
        (?:want|need|intend)s? to|looking for|costs?|offers?|sells?
        weil|der grund|ziel ist|wollen|möchten|planen|kostet|kosten
        """),
)  # fmt: skip


def _shape(name: str, kind: str, weight: int, pattern: str) -> Cue:
    return Cue(name, kind, weight, re.compile(pattern))


# Shapes that mean the same in every language.
SHAPES: Final = (
    _shape("contact", "fact", 3, r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,}"),
    _shape("phone", "fact", 3, "|".join((
        r"(?<![\w.])\+\d{1,3}[ /-]?\(?\d[\d ()/-]{6,18}\d",
        # Without a country: with a zero in front, or as in North America.
        r"(?<![\w.,:/+-])(?:\(0\d{1,4}\) ?|0[1-9]\d{1,4}[ /-]{1,3})\d[\d -]{4,12}\d(?![\w.,]*\w)",
        r"(?<![\w.,:/+-])0[1-9](?:\d{8,10}|(?:[ .-]\d\d){4})(?![\w.,]*\w)",
        r"(?<![\w.,:/+-])(?:\(\d{3}\) ?|\d{3}-)\d{3}-\d{4}(?![\w.,-]*\w)",
    ))),
    _shape("ticket", "fact", 2, r"\b[A-Z][A-Z0-9]{1,9}-\d[\d-]{0,18}\b"),
    _shape("version", "fact", 2, r"\bv\d+\.\d+[\w.-]*|\b[A-Z]\w+ \d+\.\d+[\d.]*\b"),
    _shape("path", "fact", 2, r"(?<![\w/:.-])(?:[\w.-]{0,64}/){1,20}[\w-]{1,64}\.[a-z]\w{0,7}\b"),
    _shape("folder", "fact", 2, r"(?<![\w/:.-])[~.]?/(?:[\w.-]{1,64}/){1,20}[\w.-]*"),
    _shape("address", "fact", 2, r"\b(?:https?|ssh|git|postgres)://[^\s<>\"']{4,}"),
    Cue("date", "event", 2, FULL_DATE),
    Cue("day", "event", 1, phrases(rf"""
        \d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{MONTH})|(?:{MONTH}) \d{{1,2}}|{_DAY}
        \d{{1,2}}:\d\d|tomorrow|yesterday|morgen|gestern
        (?:next|nächste[nrs]?) (?:week|month|year|woche|monat|jahr)
        """)),
    # Bounded: else each figure of "1.1.1." would look for a unit behind all the others.
    Cue("amount", "fact", 1, phrases(r"""
        \d[\d.,]{0,20} ?(?:[€%]|euros?|dollars?|usd|eur|gb|mb|ms|kg|km|degrees|grad)
        [€$£¥] ?\d[\d.,]{0,20}
        \d[\d.,]{0,20} ?(?:hours?|days?|weeks?|months?|years?)
        \d[\d.,]{0,20} ?(?:stunden?|tage?n?|wochen?|monate?n?|jahre?n?)
        """)),
    Cue("number", "fact", 1, phrases(r"""
        (?:number|nummer|port|room|raum|revision|version|no\.|nr\.) [\d.]+
        """)),
)  # fmt: skip

# What makes any statement one about somebody's own world. They say little each, and count only for
# people: whoever explains something uses these words as well.
GENERAL: Final = (
    _cue("self", "fact", 1, r"(?:I|we|ich|wir)"),
    _cue("kin", "fact", 1, rf"(?:{_KIN})s?"),
    _cue("whose", "fact", 1, rf"""
        (?:my|our|his|her|their) (?:[\w-]+ ){{0,2}}(?:{_KIN})s?
        (?:mein|unser|sein|ihr)(?:e[rsmn]?)? (?:[\w-]+ ){{0,2}}(?:{_KIN})\w{{0,3}}
        """),
    _cue("illness", "fact", 2, r"""
        asthma(?:tic)?|co?eliac|diabet\w+|epilep\w+|migraines?|intoleran\w+|pregnan\w+|insulin
        inhalers?|medication|prescri\w+|diagnos\w+|rash|hives|surgery|vaccinat\w+
        zöliakie|unverträglich\w*|schwanger\w*|medikamente?|rezept|operation|geimpft
        """),
    _cue("course", "event", 1, r"""
        swapped|replaced|switched|moved|sold|bought|got|quit|left|joined|retired|divorced|married
        split|born|died|started|stopped|changed|lost|promoted|enrolled|adopted
        verkauft|gekauft|bekommen|gekündigt|geheiratet|geboren|gestorben|umgezogen|aufgehört
        """),
    _cue("not", "fact", 1, r"""
        (?:ca|do|does|did|wo|is|are|was|have|has)n't|cannot|no more|none of|nothing
        (?:can|do|does|did|will|is|are|was|have|has) not
        nicht|kein\w*|nichts
        """),
    _cue("why", "fact", 1, r"""
        so that|since|cause|thanks to|due to|which is why|deshalb|darum|wegen|damit
        """),
    _cue("often", "procedural", 1, r"""
        (?:every|each) (?:other |second |single )?(?:\w*day|night|morning|evening|week(?:end)?|year)
        (?:every|each) (?:month|summer|winter)|usually|generally|most (?:days|weeks|evenings)
        (?:morning|night|daytime|evening|weekend|(?:mon|tues|wednes|thurs|fri|satur|sun)day)s
        jede[nrs]? (?:zweite[nrs]? )?(?:tag|abend|morgen|woche|wochenende|monat|jahr)|meistens
        """),
    _cue("time", "event", 1, rf"""
        (?:in|by|since|until|till|from|before|after|around|late|early) (?:{_SEASON}|(?:19|20)\d\d)
        (?:mon|tues?|wed|thurs?|fri|sat|sun) (?:to|till|-) (?:mon|tues?|wed|thurs?|fri|sat|sun)
        (?:next|last|this) (?:{_SEASON}|week|month|year|{_DAY})
        \d{{1,2}} ?(?:am|pm|o'clock|uhr)|half (?:past )?\d{{1,2}}|at (?:{_COUNT})
        """),
    _cue("count", "fact", 1, rf"\d[\d.,]*|(?:{_COUNT})"),
)  # fmt: skip
