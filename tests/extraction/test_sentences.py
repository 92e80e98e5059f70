"""Sentences, lists with what heads them, and quotations with who said them."""

import pytest

from relayer.extraction.lists import Statement
from relayer.extraction.material import own_words
from relayer.extraction.sentences import sentences, statements
from tests.extraction.ruled import texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It is v3.2.1. Good.", ["It is v3.2.1.", "Good."]),
        ("See relayer/app.py. Then go.", ["See relayer/app.py.", "Then go."]),
        ("We meet at 5 p.m. tomorrow.", ["We meet at 5 p.m. tomorrow."]),
        ("Dr. Smith knows, e.g. this. Yes.", ["Dr. Smith knows, e.g. this.", "Yes."]),
        ("See no. 5 and fig. 3 first.", ["See no. 5 and fig. 3 first."]),
        ("I said no. Then we left.", ["I said no.", "Then we left."]),
        ("Am 3. Mai, z. B. um 9.30 Uhr. Gut.", ["Am 3. Mai, z. B. um 9.30 Uhr.", "Gut."]),
        ("Das dauert ca. 4 Jahre. Ende.", ["Das dauert ca. 4 Jahre.", "Ende."]),
        ("私は緑茶が好きです。東京です！", ["私は緑茶が好きです。", "東京です！"]),
        ("- one\n- two\n3) three", ["one", "two", "three"]),
        ("a line that is\nwrapped here", ["a line that is wrapped here"]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("So... we wait", ["So...", "we wait"]),
        ("price is 1.5 euros", ["price is 1.5 euros"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "said",
    [
        "My new address is Lindenstr. 12, 53111 Bonn.",
        "Meine Telefonnr. ist 0171 2345678.",
        "Mein Termin ist vom 12.06. auf den 14.06. verschoben.",
        "Die Taufe ist am 12.06. Beginn um zehn Uhr.",
        "Lea geht in die 3. Klasse der Goetheschule.",
        "Unser Sohn ist im 2. Lehrjahr.",
        "Wir wohnen in der 4. Etage.",
        "My doctor is Prof. Dr. med. Anna Weiß, his Dr. med. dent. Rot.",
        "My appt. is on Tue. at nine.",
        "I live at 12 Main St. Apt. 4, Springfield.",
        "It is in Bldg. 7, near 5th Ave. 301 and Mt. Vernon.",
        "The wedding is on Sat. 5 December, the party on Sun. at six.",
        "I work for Acme Co. in Leeds, she for Weiß GmbH & Co. KG.",
        "My PhD. is in physics.",
        "J'habite 5 bd. Voltaire, chez Mme. Dubois.",
        "Vivo en la Av. Libertad 45, Lima.",
        "Mi médica es la Dra. Ruiz.",
        "Mieszkam na ul. Długiej 5.",
        "Я живу на ул. Ленина, д. 5.",
        "Evim Atatürk Cad. No. 5.",
        "Rumah saya di Jl. Sudirman No. 5.",
    ],
)
def test_no_sentence_ends_at_an_abbreviation_or_a_short_date(said: str) -> None:
    assert sentences(f"{said} I like tea.") == [said, "I like tea."]


@pytest.mark.parametrize(
    "said",
    [
        "I live in Main St.",
        "I work at Acme Co.",
        "Ich wohne in der Lindenstr.",
        "I have a PhD.",
        "We meet on Sat.",
        "Then we sat.",
        "The party was on 12.06.",
        "We were 3.",
        "Ich habe 3.",
        "It costs 12.50.",
        "I use Go, Rust etc.",
    ],
)
def test_a_sentence_may_end_as_an_abbreviation_does(said: str) -> None:
    for other in ("I like tea.", "My wife is vegan.", "Das reicht.", "Mi casa es azul."):
        assert sentences(f"{said} {other}") == [said, other]


LISTS = {
    "bullets": ("My box:\n- Debian 12\n- MikroTik", ["My box: Debian 12; MikroTik"]),
    "other bullets": ("My box:\n* Debian 12\n• MikroTik", ["My box: Debian 12; MikroTik"]),
    "a blank line between": ("My box:\n\n- Debian\n\n- MikroTik", ["My box: Debian; MikroTik"]),
    "no colon": ("Things I need\n- milk\n- eggs", ["Things I need: milk; eggs"]),
    "a title": ("## My box\n\n- Debian\n- MikroTik", ["My box: Debian; MikroTik"]),
    "a bold heading": ("**My box:**\n- Debian\n- MikroTik", ["**My box:** Debian; MikroTik"]),
    "a sentence before": ("I moved. My box:\n- a b\n- c d", ["I moved.", "My box: a b; c d"]),
    "words that only present": ("Here are my servers:\n- a\n- b", ["My servers: a; b"]),
    "text behind": ("My box:\n- Debian\n- MikroTik\nI like it.",
                    ["My box: Debian; MikroTik", "I like it."]),
    "a wrapped item": ("My box:\n- Debian on a\n  Dell R730\n- MikroTik",
                       ["My box: Debian on a Dell R730; MikroTik"]),
    "boxes to tick": ("My plan:\n- [ ] fly\n- [x] pack", ["My plan: fly; [x] pack"]),
    "steps": ("To deploy:\n1. Run make.\n2. Push it.", ["To deploy: 1. Run make. 2. Push it."]),
    "sentences": ("What I like:\n- I prefer tea.\n- I hate rum.",
                  ["What I like: I prefer tea.", "What I like: I hate rum."]),
    "dates": ("My dates:\n[2026-12-03 14:00] dentist\n[2026-12-04 09:30] car",
              ["My dates: [2026-12-03 14:00] dentist", "My dates: [2026-12-04 09:30] car"]),
    "dates without brackets": ("My dates:\n2026-12-03 14:00:00 dentist\n2026-12-04 car",
                               ["My dates: 2026-12-03 14:00:00 dentist",
                                "My dates: 2026-12-04 car"]),
    "dates in bullets": ("My dates:\n- dentist on 2026-12-03\n- car on 2026-12-04",
                         ["My dates: dentist on 2026-12-03", "My dates: car on 2026-12-04"]),
    "a date behind its heading": ("Releases: [2026-12-03 14:00] beta\n[2026-12-10 14:00] final",
                                  ["Releases: [2026-12-03 14:00] beta",
                                   "Releases: [2026-12-10 14:00] final"]),
    "fields": ("The host:\nHost: ares\nPort: 22\nUser: deploy",
               ["The host: Host: ares; Port: 22; User: deploy"]),
    "one field": ("The host:\nHost: ares", ["The host: Host: ares"]),
    "what people said": ("Uma: we meet\nMe: I do not", ["Uma: we meet", "Me: I do not"]),
    "fields alone": ("Host: ares\nPort: 22", ["Host: ares; Port: 22"]),
    "bold fields": ("The host:\n- **Host**: ares\n- **Port**: 22",
                    ["The host: **Host**: ares; **Port**: 22"]),
    "fields below a field": ("The host:\nhost: ares\nusers:\n  - uma\n  - ugo",
                             ["The host: host: ares", "The host: users: uma; ugo"]),
    "lines without bullets": ("My servers:\nares 10.0.0.5\nzeus 10.0.0.6",
                              ["My servers: ares 10.0.0.5; zeus 10.0.0.6"]),
    "a list below an item": ("My servers:\n- ares\n  - Debian\n  - 64 GB\n- zeus\n  - Arch",
                             ["My servers: ares: Debian; 64 GB", "My servers: zeus: Arch"]),
    "a list below an item with a colon": ("- ares:\n  - Debian\n- zeus", ["ares: Debian", "zeus"]),
    "a table": ("My servers:\n| Host | Port |\n|------|-----:|\n| ares | 22 |\n| zeus | |",
                ["My servers: Host: ares; Port: 22", "My servers: Host: zeus"]),
    "a table alone": ("| Host | Port |\n|---|---|\n| ares | 22 |", ["Host: ares; Port: 22"]),
    "prose": ("Remember this:\nThe host is ares. It runs.", ["Remember this: The host is ares.",
                                                            "It runs."]),
    "a heading alone": ("I like tea. My dates:", ["I like tea."]),
    "a heading above a gap": ("My dates:\n\n\nI like tea.", ["I like tea."]),
    "a blank line before prose": ("Remember this:\n\nIt runs.", ["Remember this: It runs."]),
    "a rule": ("I like tea.\n- - -\nI hate rum.", ["I like tea.", "I hate rum."]),
    "a question with answers": ("Which one:\n- tea\n- rum?", ["Which one: tea", "Which one: rum?"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LISTS.values(), ids=LISTS)
def test_lists_are_kept_with_what_heads_them(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected
    assert sentences(text.replace("\n", "\n\u00a0 ")) == expected  # as a gateway sends it


@pytest.mark.parametrize(
    "cut",
    ["```\na\n```", "> a", "<file>a</file>", "$ make", '{"a": 1}', "INFO  [main] a"],
)
@pytest.mark.parametrize("said", ["I like tea.", "- I like tea.", "I like:\n- tea\n- rum"])
def test_a_heading_of_what_was_cut_out_heads_nothing_else(cut: str, said: str) -> None:
    for gap in ("\n", "\n\n"):
        text = f"This is it:{gap}{cut}{gap}{said}"
        assert sentences(own_words(text)) == sentences(said)


def test_a_long_list_has_its_heading_before_each_item() -> None:
    items = [f"server {n} is a Dell R{n}30 with a label" for n in range(20)]
    text = "My servers:\n" + "\n".join(f"- {item}" for item in items)
    assert statements(text) == [Statement(f"My servers: {item}", "My servers:") for item in items]


def test_a_heading_is_said_again_a_bounded_number_of_times() -> None:
    text = f"{'My very long heading ' * 9}:\n" + "- a\n" * 5000
    assert sum(map(len, sentences(text))) < 3 * len(text)


def test_lists_below_lists_below_lists_come_to_an_end() -> None:
    text = "a:\n" + "".join(f"{' ' * depth}- b{depth}\n" for depth in range(300))
    found = sentences(text)
    assert "b299" in found[-1]
    assert max(map(len, found)) < 400


QUOTATIONS = {
    "two sentences": 'Bob said: "I prefer rum. I hate gin."',
    "typographic": "Bob said: “I prefer rum. I hate gin.”",
    "German": "Bob sagte: „I prefer rum. I hate gin.“",
    "French": "Bob a dit : « I prefer rum. I hate gin. »",
    "Chinese": "鲍勃说：「我喜欢朗姆酒。我讨厌金酒。」",
    "apostrophes": "Bob said: 'I don't like gin. I prefer rum.'",
    "who said it behind": '"I prefer rum! I hate gin!" said Bob.',
    "a name behind": '"I prefer rum." Bob Okoro said.',
    "in the middle": 'My boss wrote "I prefer rum. I hate gin." to me yesterday.',
    "a sentence before": 'Bob told me something. "I prefer rum."',
}


@pytest.mark.parametrize("said", QUOTATIONS.values(), ids=QUOTATIONS)
def test_a_quotation_stays_with_who_said_it(said: str) -> None:
    assert sentences(f"{said} I like tea.") == [said, "I like tea."]
    assert sentences(f"I moved. {said} I like tea.") == ["I moved.", said, "I like tea."]


def test_a_quotation_over_lines_is_one() -> None:
    text = 'Bob said:\n"I prefer rum.\nI hate gin."\nI like tea.'
    assert sentences(text) == ['Bob said: "I prefer rum. I hate gin."', "I like tea."]


@pytest.mark.parametrize("name", ["Bob", "[10:00] Bob", "Bob said", "Assistant"])
def test_each_sentence_of_a_line_with_a_name_has_it(name: str) -> None:
    assert sentences(f"hey\n{name}: I prefer rum. I hate gin.") == [
        "hey",
        f"{name}: I prefer rum.",
        f"{name}: I hate gin.",
    ]


@pytest.mark.parametrize(
    "word",
    [
        *("Correction", "Clarification", "Background", "Context", "Update", "Fun Fact", "My Job"),
        *("Korrektur", "Nachtrag", "Hintergrund", "Mein Beruf", "Précision", "Corrección"),
        *("Correção", "Correzione", "Sprostowanie", "Düzeltme", "Поправка", "Koreksi"),
    ],
)
def test_a_word_in_front_of_what_is_put_right_is_no_name(word: str) -> None:
    assert sentences(f"{word}: I am 4, not 3. I hate gin.") == [
        f"{word}: I am 4, not 3.",
        "I hate gin.",
    ]


@pytest.mark.parametrize(
    "said",
    [
        'My screen is 27" wide. I like tea. The other is 24" wide.',
        'I prefer the "dark. mode" theme. I like tea.',
        "It's Bob's. I don't eat fish. I like my sister's cat.",
        'Bob said "I prefer rum. I like tea.',
    ],
)
def test_marks_that_quote_nobody_join_nothing(said: str) -> None:
    assert any(sentence.startswith("I ") for sentence in sentences(said)[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My homelab runs on this:\n- Debian on a Dell R730\n- MikroTik",
         ["My homelab runs on this: Debian on a Dell R730; MikroTik"]),
        ("Remember the host:\nHost: ares.example.org\nPort: 2222\nUser: deploy",
         ["Remember the host: Host: ares.example.org; Port: 2222; User: deploy"]),
        ("Remember my servers:\n| Host | IP |\n|---|---|\n| ares | 10.0.0.5 |",
         ["Remember my servers: Host: ares; IP: 10.0.0.5"]),
        ("My servers, remember them:\n| Host | IP |\n|---|---|\n| ares | 10.0.0.5 |",
         ["My servers, remember them: Host: ares; IP: 10.0.0.5"]),
        ("My appointments, remember them:", []),
    ],
)  # fmt: skip
async def test_lists_become_facts(text: str, expected: list[str]) -> None:
    for label in ("user: ", "User: ", "1. user: "):
        assert await texts(label + text) == expected


async def test_a_heading_without_a_verb_says_what_its_items_are() -> None:
    assert await texts("user: My servers:\n- ares\n- zeus") == ["My servers: ares; zeus"]
