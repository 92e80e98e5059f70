"""Sentences to compare embeddings with: short and long ones, prose, code, several scripts."""

import itertools

_SHORT = [
    "Yes.",
    "ok thanks",
    "a",
    "1234567890",
    "😀😀😀",
    "2031-04-17T08:30:00Z",
    "def area(r): return 3.14159 * r ** 2",
    "SELECT name FROM harbours WHERE depth_m > 12;",
    "https://example.org/reports/2031?page=4#notes",
    "ERROR: disk /dev/sdb1 is 97% full",
    "naïve façade, Ærøskøbing, Łódź",
    "C++ vs. Rust: ownership!",
]
_WHO = [
    "Anna",
    "The night-shift engineer",
    "My neighbour's youngest daughter",
    "Dr. Okonkwo",
    "Our supplier in Rotterdam",
    "Grandfather",
]
_DOES = [
    "prefers tea without sugar",
    "moved to Bergen last spring",
    "restarts the database every Sunday",
    "is allergic to hazelnuts",
    "learns to play the cello",
    "forgot the password of the router",
    "sold two bicycles and a canoe",
]
_WHY = [
    "because the doctor said so",
    "although nobody asked",
    "and wrote a long letter about it to the mayor, who never answered",
]
_ELSEWHERE = [
    "Le chat dort sur le canapé depuis ce matin.",
    "Die Besprechung wurde auf nächsten Donnerstag verschoben.",
    "El perro de mi vecino ladra toda la noche.",
    "Il treno per Torino parte dal binario sette.",
    "Пользователь живёт у моря и любит оперу.",
    "猫は窓のそばで寝ています。",
    "我们明天坐火车去海边。",
    "أمي تحب القهوة بدون سكر.",
    "나는 매일 아침 공원에서 달린다.",
    "Η γιαγιά μου φτιάχνει το καλύτερο ψωμί.",
    "मेरे भाई को क्रिकेट पसंद है।",
    "Kardeşim İzmir'de mühendis olarak çalışıyor.",
]


def sentences() -> list[str]:
    """Return 200 different texts, from one letter to several hundred words."""
    plain = [f"{who} {does}." for who, does in itertools.product(_WHO, _DOES)]
    longer = [f"{one[:-1]} {why}." for one, why in itertools.product(plain, _WHY)]
    pages = [" ".join(longer[at : at + 4 + at // 4]) for at in range(0, 64, 8)]
    texts = [*_SHORT, *_ELSEWHERE, *pages, *plain, *longer]
    return texts[:200]


# A question and the sentence it should find among all the others here.
PARAPHRASES = [
    ("What does Anna like to drink?", "Anna has a preference for tea over coffee."),
    ("Where did my sister go to live?", "My sister relocated to Lisbon in March."),
    ("food she must not eat", "Marie cannot have peanuts, they make her ill."),
    ("how often are backups made", "A copy of all data is written to tape each night."),
    ("What is Tom's profession?", "Tom earns his living as a carpenter."),
    ("name of the pet", "The family dog is called Biscuit."),
    ("favourite music", "He listens to Baroque organ works most evenings."),
    ("When is the deadline?", "The report has to be handed in by the fifth of June."),
    ("Which programming language do they use?", "The whole service is written in Python."),
    ("problems with the vehicle", "The engine of the old van refuses to start in winter."),
]
