"""Sentences and questions by number, each another one: the suite's texts, the same in every run.

Not here: vectors of them (`filling.py`).
"""

from typing import Final

PEOPLE: Final = """
    Maria Johann Priya Kenji Aoife Tomás Leila Bogdan Ingrid Samuel Yusuf Clara Dmitri Esther
    Farah Gustav Hana Ivo Jasmin Kofi Lotte Mateo Nadia Oskar Petra Quentin Rosa Stefan Tuva
    Ursula Viktor Wanda Xavier Yara Zoltán Amara Bruno Celine Dario Elif
    """.split()
PLACES: Final = """
    Lisbon Kyoto Bergen Valparaíso Gdańsk Nairobi Trieste Hobart Tallinn Cusco Antwerp Busan
    Cork Dakar Essaouira Freiburg Ghent Havana Izmir Jaipur Kraków Leeds Malmö Nantes Oaxaca
    Porto Quito Riga Seville Tromsø Utrecht Varna Windhoek Yerevan Zadar Aarhus Bilbao Chania
    Delft Esbjerg
    """.split()
THINGS: Final = """
    violin kayak greenhouse invoice passport allergy garden podcast marathon mortgage telescope
    bakery thesis motorbike piano vaccine beehive sailboat camera novel database dentist choir
    pottery bicycle wedding visa chess kitchen archive puppy loom dashboard recipe train orchard
    radio insurance tunnel carpet
    """.split()
STATEMENTS: Final = (
    "{person} keeps a {thing} in {place} and looks after it every {day}.",
    "The {thing} that {person} ordered from {place} should arrive on {day} the {date}.",
    "{person} would rather talk about the {thing} by phone than by mail, mostly from {place}.",
    "Since the move to {place}, {person} has had trouble with the {thing}; it costs {date} euros.",
    "On {day} {person} decided to sell the {thing} and to travel to {place} for {date} days.",
    "{person} asked us to remind them of the {thing} before the flight to {place} on the {date}.",
    "We agreed with {person} that the {thing} in {place} is not urgent before {day} the {date}.",
    "{person} learned in {place} how to repair a {thing}, and teaches it to {date} people.",
)
QUESTIONS: Final = (
    "What does {person} do with the {thing} in {place}?",
    "When is the {thing} of {person} supposed to arrive from {place}?",
    "How does {person} like to talk about the {thing}, and from where, {place}?",
    "Why did {person} have trouble with a {thing} since {place}?",
    "Who wanted to sell the {thing} before {place}, was it {person}?",
    "What did we promise {person} about the {thing} and {place} on the {date}?",
)
DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_STEP: Final = 2_654_435_761  # prime, so that numbers beside each other make other sentences


def sentence(number: int) -> str:
    """One thing to remember."""
    return _filled(STATEMENTS, number)


def question(number: int) -> str:
    """One thing to ask; no two numbers below ten million ask the same."""
    return _filled(QUESTIONS, number)


class Questions:
    """One question after the other, none twice: what was asked before is in a cache."""

    def __init__(self) -> None:
        self._asked = 0

    def __next__(self) -> str:
        self._asked += 1
        return question(self._asked)


def _filled(forms: tuple[str, ...], number: int) -> str:
    rest, words = number * _STEP, {}
    named = {"person": PEOPLE, "place": PLACES, "thing": THINGS, "day": DAYS, "date": range(1, 300)}
    rest, form = divmod(rest % _ALL, len(forms))
    for name, choices in named.items():
        rest, at = divmod(rest, len(choices))
        words[name] = choices[at]
    return forms[form].format(**words)


_ALL: Final = len(STATEMENTS) * len(PEOPLE) * len(PLACES) * len(THINGS) * len(DAYS) * 299
