"""The words of texts and queries."""

import os
import random
import subprocess
import sys
import unicodedata

import pytest

from relayer.settings import Limits
from relayer.words import languages
from relayer.words.languages import language_of
from relayer.words.spelling import fold
from relayer.words.tokens import TERM_CHARACTERS_MAX, words


def shared(text: str, query: str) -> set[str]:
    """What a query finds a text by."""
    return set(words(text)) & set(words(query))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Anna prefers tea.", ["anna", "prefer", "tea"]),
        ("TEA tea Tea", ["tea", "tea", "tea"]),
        ("ﬁle ２０３１", ["file", "2031"]),
        ("Straße", ["strass"]),
        ("x" * TERM_CHARACTERS_MAX, ["x" * TERM_CHARACTERS_MAX]),
        ("x" * (TERM_CHARACTERS_MAX + 1), []),
        ("7" * (TERM_CHARACTERS_MAX + 1), []),
        ("", []),
        ("!? …🙂", ["🙂"]),
        ("\u0000", []),
        ("- _ / . ' + #", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert words(text) == terms


def test_a_text_that_grows_counts_with_its_beginning() -> None:
    """One character can stand for eighteen: no text costs more than the longest that is said."""
    text = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * (Limits.text_bytes_max // 3)
    grown = unicodedata.normalize("NFKC", text)
    assert len(grown) > 5 * Limits.text_bytes_max
    assert words(text) == words(grown[: Limits.text_bytes_max])
    # What does not grow is looked through to its end.
    longest = "a " * (Limits.text_bytes_max // 2 - 2) + "tea"
    assert words(longest)[-1] == "tea"


class TestEnglish:
    @pytest.mark.parametrize(
        ("text", "terms"),
        [
            ("what is in the tea", ["tea"]),
            ("the of and", ["the", "of", "and"]),
            ("Anna's tea, Ben’s CUP'S lid", ["anna", "tea", "ben", "cup", "lid"]),
            ("I'm sure we'll win, they've said she'd've come", ["sure", "win", "say", "come"]),
            ("Don't go, it isn't and can’t be tea", ["go", "tea"]),
            ("O'Brien's", ["obrien", "brien"]),
        ],
    )
    def test_what_says_nothing_is_left_out(self, text: str, terms: list[str]) -> None:
        assert words(text) == terms

    @pytest.mark.parametrize("word", ["may", "like", "mine", "war", "die", "son", "comment"])
    def test_words_that_may_mean_something_are_kept(self, word: str) -> None:
        assert len(words(f"the {word} of it")) == 1

    @pytest.mark.parametrize(
        ("one", "other"),
        [("went", "going"), ("bought", "buy"), ("children", "child"), ("better", "good")],
    )
    def test_irregular_forms_meet(self, one: str, other: str) -> None:
        assert words(one) == words(other)

    @pytest.mark.parametrize("word", ["rose", "lives", "leaves", "ground"])
    def test_forms_that_are_words_of_their_own_stay(self, word: str) -> None:
        assert words(word)[0][:4] == word[:4]


class TestLanguages:
    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("Wir haben die Häuser in Kassel verkauft.", "Was ist mit dem Haus?"),
            ("Nous avons rangé les noix dans la boîte.", "Où est la noix ?"),
            ("Mis vecinos ponen canciones por la noche.", "¿Qué canción es la de mi vecino?"),
            ("Mio fratello ha due figli e vive con noi.", "Quale figlio è di mio fratello?"),
            ("As minhas irmãs moram em Coimbra.", "Onde mora a minha irmã?"),
            ("De boeken zijn in het huis van oma.", "Waar is het boek?"),
            ("Ключи от подвала лежат на кухне.", "ключ"),
            ("Τα βιβλία είναι στο σπίτι.", "σπίτια"),
            ("قرأت الكتاب", "كتاب"),
            ("किताबें मेज पर हैं", "किताब"),
        ],
    )
    def test_forms_of_a_word_meet(self, text: str, query: str) -> None:
        assert shared(text, query)

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("Der Termin ist bei den Bergers.", "Berger Termin"),
            ("Nous avons trois appartements à louer.", "appartement"),
            ("Las reuniones son en la sala azul.", "reunion"),
            ("Mis vecinos son de Bilbao.", "vecinos"),
        ],
    )
    def test_a_query_that_shows_no_language_meets_the_text_in_english(
        self, text: str, query: str
    ) -> None:
        assert language_of(text.casefold().split()) != language_of(query.casefold().split())
        assert shared(text, query)

    @pytest.mark.parametrize(
        ("text", "language"),
        [
            ("wo ist mein rotes fahrrad", "german"),
            ("où est la clé de la cave", "french"),
            ("dónde está la llave del garaje", "spanish"),
            ("dove sono le chiavi della cantina", "italian"),
            ("onde estão as chaves da minha casa", "portuguese"),
            ("waar is de sleutel van het huis", "dutch"),
            ("where is the key of the cellar", "english"),
            ("los angeles", "english"),
            ("die hard and war of the worlds", "english"),
            ("i was in an old hotel on a hill in rome", "english"),
            ("nginx.conf", "english"),
            ("", "english"),
        ],
    )
    def test_the_language_is_guessed_by_function_words(self, text: str, language: str) -> None:
        assert language_of(text.split()) == language

    def test_function_words_are_those_of_the_language(self) -> None:
        assert words("Wir wollen nur das Brot") == ["brot"]
        assert words("Где ключ и что это?") == ["ключ"]
        assert words("Das ist der Plan for the team") == ["plan", "team"]
        assert words("Did the war end? They die.") == ["war", "end", "die"]

    def test_english_has_one_stem_a_word(self) -> None:
        assert len(words("The painter was painting all of the mountains")) == 3

    @pytest.mark.parametrize(
        ("text", "term"),
        [
            ("cafe\u0301", "cafe"),
            ("Łódź", "lodz"),
            ("Ærø", "aero"),
            ("Ёлка", "елк"),
            ("ΤΌΝΟΣ", "τον"),
        ],
    )
    def test_accents_do_not_matter(self, text: str, term: str) -> None:
        assert words(text) == [term]

    @pytest.mark.parametrize("text", ["が", "й", "한"])
    def test_marks_that_make_another_letter_do(self, text: str) -> None:
        assert words(text + text)[0] == text + text

    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("مُحَمَّد", "محمد"),
            ("محـــمد", "محمد"),
            ("שָׁלוֹם", "שלום"),
            ("exam\u00adple", "example"),
            ("e\u2011mail", "e-mail"),
            ("ọ̀rẹ́", "ọrẹ"),
        ],
    )
    def test_what_most_leave_out_does_not_matter(self, text: str, written: str) -> None:
        assert words(text) == words(written) != []

    def test_elided_articles_are_taken_off(self) -> None:
        assert words("l'eau dell'acqua d’accord jusqu'ici") == ["eau", "acqua", "accord", "ici"]

    def test_vowel_signs_are_part_of_a_word_and_a_danda_is_not(self) -> None:
        assert words("हिन्दी।") == words("हिन्दी")
        assert len(words("हिन्दी")) == 1


class TestScriptsWithoutBlanks:
    @pytest.mark.parametrize(
        ("text", "terms"),
        [
            ("火车站", ["火车", "车站", "火", "车", "站"]),
            ("火", ["火"]),
            ("用iPhone拍照", ["用", "iphon", "phone", "拍照", "拍", "照"]),
            ("版本2发布", ["版本", "版", "本", "2", "发布", "发", "布"]),
            ("窓のそばで寝る", ["窓", "のそ", "そば", "ばで", "寝"]),
            ("カレー・パン", ["カレ", "レー", "パン"]),
            ("佐々木", ["佐々", "々木", "佐", "々", "木"]),
            ("물을", ["물을", "물", "을"]),
            ("물火", ["물", "火"]),
            ("บ้าน", ["บ้", "้า", "าน"]),
            ("ရေ", ["ရေ"]),
            ("ភ្នំ", ["ភ្", "្ន", "នំ"]),
        ],
    )
    def test_runs_are_cut_where_the_script_changes(self, text: str, terms: list[str]) -> None:
        """capability 4.23: scripts without blanks are cut into words, too."""
        assert words(text) == terms

    def test_a_memory_has_every_word_of_a_query_that_quotes_it(self) -> None:
        text = "猫は窓のそばで寝ています Anna's OPS-4127 火"
        runs = text.split()
        for quote in [*runs, *(runs[0][a:b] for b in range(1, 13) for a in range(b))]:
            assert set(words(quote)) <= set(words(text)), quote


class TestIdentifiers:
    @pytest.mark.parametrize(
        ("text", "terms"),
        [
            ("OPS-4127", ["ops4127", "op", "4127"]),
            ("anna.k@x.org", ["anna.k@x.org", "anna.k", "anna", "x.org", "org"]),
            ("/etc/ng/ng.conf", ["etc/ng/ng.conf", "etc", "ng", "ng.conf", "conf"]),
            (r"D:\tools\scan.exe", ["d", r"tools\scan.exe", "tool", "scan.exe", "scan", "exe"]),
            ("foo_bar.baz()", ["foobar.baz", "foobar", "foo", "bar", "baz"]),
            ("parseHTTPDate", ["parsehttpd", "pars", "http", "date"]),
            ("v2.14.1", ["2.14.1", "2.14", "2"]),
            ("1.0.9-rc2", ["1.0.9rc2", "1.0.9", "1.0", "1", "rc2"]),
            ("E_QUOTA_17", ["equota17", "quota", "17"]),
            ("e-mail", ["email", "mail"]),
            ("C++ and C# or C", ["c++", "c#", "c"]),
            ("Notepad++", ["notepad++", "notepad"]),
            ("two GPUs, three APIs", ["two", "gpu", "three", "api"]),
        ],
    )  # fmt: skip
    def test_whole_and_in_parts(self, text: str, terms: list[str]) -> None:
        """capability 3.12: identifiers are keywords whole and in parts."""
        assert words(text) == terms

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("OPS-4127", "ops4127"),
            ("OPS4127", "4127"),
            ("getHttpCode", "get_HTTP_code"),
            ("MAX_SIZE", "maxSize"),
            ("v1.2.3", "1.2.3"),
            ("DE44 5001 0517 5407 3249 31", "DE44500105175407324931"),
            ("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "0a1b2c3"),
            ("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "0a1b2c3d4e"),
            ("PostgreSQL 16.4", "16"),
            ("AT&T", "at&t"),
            ("R&D", "RD"),
            ("bread&butter", "butter"),
            ("U.S.A.", "USA"),
            ("10.20.30.5", "10.20.30"),
        ],
    )
    def test_ways_to_write_the_same_meet(self, one: str, other: str) -> None:
        assert shared(one, other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("4821", "4812"),
            ("10.20.30.5", "10.20.31.5"),
            ("0a1b2c3d", "0a1b2d4e"),
            ("2.7.13", "2.7.3"),
            ("C++", "C#"),
        ],
    )
    def test_what_differs_in_a_digit_stays_apart(self, one: str, other: str) -> None:
        assert words(one)[0] != words(other)[0]
        assert words(one)[0] not in words(other)

    def test_a_single_letter_is_a_word_only_by_itself(self) -> None:
        assert words("x-ray q/b/z a_1") == ["xray", "ray", "q/b/z", "a1", "1"]
        assert words("plan b") == ["plan", "b"]

    def test_identifiers_and_numbers_have_no_stem(self) -> None:
        assert words("4127s rc2s") == ["4127s", "rc2s"]


class TestNumbersAndDates:
    @pytest.mark.parametrize(
        ("text", "terms"),
        [
            ("2,000 people", ["2000", "person"]),
            ("2,345,678.90", ["2345678.9", "2345678"]),
            ("1.980,00 Euro", ["1980", "euro"]),
            ("3,5", ["3.5", "3"]),
            ("2.000", ["2000", "2.000", "2"]),
            ("1,2,3", ["1", "2", "3"]),
            ("the 2nd, 21st and 5th", ["2", "21", "5"]),
            ("192.168.7.114", ["192.168.7.114", "192.168.7", "192.168", "192"]),
        ],
    )
    def test_numbers_have_one_form(self, text: str, terms: list[str]) -> None:
        assert words(text) == terms

    @pytest.mark.parametrize(
        "text",
        ["2031-05-08", "2031/5/8", "08.05.2031", "2031年5月8日", "8 May 2031", "May 8th, 2031",
         "2031-05-08T09:30", "Das ist am 8. Mai 2031", "C'est pour le 8 mai 2031",
         "Es el 8 de mayo de 2031", "8 мая 2031"],
    )  # fmt: skip
    def test_a_date_is_the_same_words_in_every_form(self, text: str) -> None:
        assert {"8", "may", "2031"} <= set(words(text))

    def test_a_date_in_figures_is_a_term_of_its_own(self) -> None:
        assert shared("2031-05-08", "8.5.2031") >= {"20310508"}
        assert words("5月8日") == ["8", "may"]
        assert shared("2031-05-08T09:30", "at 09:30") >= {"09:30"}

    def test_months_are_english_words_in_every_language(self) -> None:
        assert shared("Das war am 8. Januar.", "January") == {"januari"}
        assert shared("C'est pour le mois de juillet.", "July")

    @pytest.mark.parametrize("text", ["2031-13-08", "2031-05-32", "0.5.2031", "2031-05/08"])
    def test_what_is_no_date_stays_what_it_is(self, text: str) -> None:
        assert "may" not in words(text)


def test_any_text_has_fewer_different_words_than_an_archive_may_bring_at_once() -> None:
    """Of what takes three bytes, every pair and every character can be another."""
    drawn = random.Random(1)
    han = [chr(c) for c in (*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000))]
    text = "".join(drawn.choices(han, k=Limits.text_bytes_max // 3))
    assert 350_000 < len(set(words(text))) < Limits.import_postings_max


@pytest.mark.parametrize(
    ("alphabet", "form"),
    [
        ("0123456789", "{:.5} {:.6}\n"),  # a number in groups: whole, two ends of it, its groups
        ("0123456789", "{:.11} "),
        ("אדזחטיםנסעפצקרתאדזחטיםנסעפצקרת", "ושבה{:.5} "),
        ("אדזחטיםנסעפצקרתאדזחטיםנסעפצקרת", "בה{:.4} "),
    ],
    ids=["groups", "numbers", "four-clitics", "two-clitics"],
)
def test_other_forms_do_not_bring_more(alphabet: str, form: str) -> None:
    drawn = random.Random(1)
    text = "".join(
        form.format("".join(drawn.choices(alphabet, k=11)), "".join(drawn.choices(alphabet, k=6)))
        for _ in range(Limits.text_bytes_max // 12)  # no word is shorter
    )
    plain = text.encode()[: Limits.text_bytes_max].decode(errors="ignore")
    assert len(set(words(plain))) < Limits.import_postings_max


def test_no_stemmer_changes_what_none_is_asked_about() -> None:
    """Else texts would be known by other words than those that are stored."""
    unstemmed = [c for c in map(chr, range(sys.maxunicode)) if languages._UNSTEMMED.fullmatch(c)]
    assert len(unstemmed) > 90_000
    stemmed = languages._stems.__wrapped__
    for language in languages._STEMMERS:
        for at in range(0, len(unstemmed), 61):
            several = unstemmed[at : at + 61]
            whole, pair = "".join(several), several[0] + several[-1]
            assert stemmed(whole, language) == (whole,)
            assert stemmed(pair, language) == (pair,)


def test_pairs_of_characters_are_not_stemmed() -> None:
    """A long text has some hundred thousand."""
    text = fold("".join(chr(0x4E00 + n * 7 % 9_973) for n in range(2_000)))
    before = languages._stems.cache_info()
    assert len(words(text)) == 3_999
    assert languages._stems.cache_info() == before


def test_a_stemmer_keeps_no_words() -> None:
    assert {stemmer.maxCacheSize for stemmer in languages._STEMMERS.values()} == {0}


@pytest.mark.parametrize(
    "unit",
    ["a-", "a.", "猫", "1,", "A", "aB", "'s", "2026-", "1.", "x/", "Ab1-", "a'", "0", "1,000",
     "a++", "é", "AB12 ABCD ", "l'", "न"],
)  # fmt: skip
def test_a_long_text_has_no_more_words_than_linear(unit: str) -> None:
    """A quadratic step would take minutes here."""
    assert len(words(unit * 100_000)) <= 500_000


def test_hostile_runs_of_apostrophes_end() -> None:
    """A pattern that tried every start of them would run for hours."""
    assert len(words("a" + "'s" * 500_000 + "'x")) < 10


TIED = "unter wenn cette avons Häuser maisons"


def test_a_text_of_two_languages_has_the_same_words_in_every_process() -> None:
    """A set of texts has another order in each."""
    program = "import sys; from relayer.words.tokens import words; print(words(sys.argv[1]))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program, TIED],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in range(6)
    }
    assert said == {f"{words(TIED)}\n"}
