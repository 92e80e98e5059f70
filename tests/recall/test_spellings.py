"""Words that are written in several ways, and numbers in groups: each finds the others."""

import pytest

from relayer.query.terms import FORM_WEIGHT, PARTICLE_WEIGHT, query_terms
from relayer.settings import Limits
from relayer.words.spelling import fold
from relayer.words.tokens import words
from tests.generate_variants import VARIANTS, text


def found_by(query: str, memory: str) -> set[int]:
    """Which words of a query a memory has, in any form."""
    own = set(words(memory))
    asked = query_terms(query)
    return {term.ordinal for term in asked.terms if term.index == "w" and term.text in own}


def is_found(query: str, memory: str) -> bool:
    """Tell whether a memory has every word of a query that its absence would count against."""
    return found_by(query, memory) >= set(range(query_terms(query).query_words))


def assert_each_finds_the_other(one: str, other: str) -> None:
    assert is_found(one, other), (words(other), query_terms(one))
    assert is_found(other, one), (words(one), query_terms(other))


def test_the_file_of_variants_is_what_is_made_of_opencc() -> None:
    assert VARIANTS.read_text("utf-8") == text()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("我們的貓叫橘子", "我们的猫叫橘子"),
        ("會議在臺北車站", "会议在台北车站"),
        ("裡面", "裏面"),
        ("為什麼頭髮", "为什么头发"),
        ("爲", "為"),
        ("渡邊", "渡辺"),
        ("渡邉", "渡辺"),
        ("齋藤", "斎藤"),
        ("廣島の驛", "広島の駅"),
        ("髙橋と山﨑", "高橋と山崎"),
        ("櫻", "桜"),
        ("ﾃﾞｰﾀｾﾝﾀｰ", "データセンター"),
    ],
)
def test_han_characters_and_kana(one: str, other: str) -> None:
    assert_each_finds_the_other(one, other)


@pytest.mark.parametrize(("one", "other"), [("大", "太"), ("土", "士"), ("未", "末"), ("力", "カ")])
def test_other_characters_stay_apart(one: str, other: str) -> None:
    assert not found_by(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("दफ़्तर", "दफ्तर"),
        ("ज़रूरत", "जरूरत"),
        ("फ़ोन", "फोन"),
        ("बड़ा", "बडा"),
        ("हिन्दी", "हिंदी"),
        ("मुम्बई", "मुंबई"),
        ("चाँद", "चांद"),
        ("क्\u200dया कमरा १२३", "क्या कमरा 123"),
        ("বড়", "বড়"),
    ],
)
def test_indic_scripts(one: str, other: str) -> None:
    assert_each_finds_the_other(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("أحمد", "احمد"),
        ("مدرسة", "مدرسه"),
        ("المدرسة", "مدرسة"),
        ("والمدرسة", "مدرسة"),
        ("فالمدرسة", "المدرسة"),
        ("مستشفى", "مستشفي"),
        ("غرفة ٤٢١", "غرفة 421"),
        ("کتابی", "كتابي"),
        ("می‌روم", "میروم"),
        ("لاہور", "لاهور"),
        ("خانۀ", "خانه"),
    ],
)
def test_arabic_script(one: str, other: str) -> None:
    assert_each_finds_the_other(one, other)


def test_short_arabic_words_that_differ_in_their_last_letter_stay_apart() -> None:
    """The name Ali, and a preposition."""
    assert words("علي") != words("على")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("הכלב", "כלב"),
        ("והכלב", "הכלב"),
        ("כשהכלב", "כלב"),
        ("בבית", "הבית"),
        ("לבית", "מהבית"),
        ("ובבית", "שבבית"),
        ("בירושלים", "ירושלים"),
        ("הים", "ים"),
        ("ג׳ירפה", "ג'ירפה"),
        ("צה״ל", 'צה"ל'),
    ],
)
def test_hebrew_with_and_without_the_small_words_before(one: str, other: str) -> None:
    assert_each_finds_the_other(one, other)


@pytest.mark.parametrize(("one", "other"), [("כלב", "לב"), ("שמש", "מש"), ("בית", "ית")])
def test_a_hebrew_root_keeps_its_letters(one: str, other: str) -> None:
    assert not found_by(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Müller", "Mueller"),
        ("müller", "MUELLER"),
        ("Jörg", "Joerg"),
        ("Straße", "STRASSE"),
        ("Bjørn", "Bjoern"),
        ("Åse", "Aase"),
        ("Guðrún Þórsdóttir", "Gudrun Thorsdottir"),
        ("Çiğdem IŞIK", "cigdem ısık"),
        ("hoà", "hòa"),
        ("Семён", "Семен"),
        ("за\u0301мок", "замок"),
        ("ґанок", "ганок"),
        ("обʼєкт", "об'єкт"),
        ("ΔΡΌΜΟΣ", "δρομος"),
        ("น้ำ", "นํ้า"),
        ("เเม่น้ำ ๑๒", "แม่น้ำ 12"),
        ("½", "1/2"),
    ],
)
def test_other_scripts(one: str, other: str) -> None:
    assert_each_finds_the_other(one, other)


def test_what_a_query_alone_may_be_spelt_like_is_in_no_memory() -> None:
    assert words("Müller") == ["muller"]
    assert words("blue shoes") == ["blue", "shoe"]


TELEPHONES = [
    "+351220000321",
    "+351 220 000 321",
    "+351 22 000 0321",
    "+351-220-000-321",
    "+351.220.000.321",
    "(+351) 220 000 321",
    "00351 220 000 321",
    "00351220000321",
    "220 000 321",
    "220000321",
    "tel:+351-220-000-321",
    "Phone:220 000 321",
]
OTHERS = ["+351 220 000 123", "+351 220 000 322", "+351 210 000 321", "220 321 000"]


@pytest.mark.parametrize("query", TELEPHONES[:-2])
@pytest.mark.parametrize("stored", TELEPHONES)
def test_a_telephone_number_is_found_however_it_is_grouped(query: str, stored: str) -> None:
    assert is_found(query, f"Li's number is {stored}.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(030) 1234567", "+49 30 1234567"),
        ("+49 (0)30 1234567", "030 / 12 34 567"),
        ("+49 (0)30 1234567", "+49301234567"),
        ("030-1234567", "0049 30 1234567"),
        ("+1 (555) 123-4567", "555.123.4567"),
        ("(555) 123-4567", "5551234567"),
        ("06 12 34 56 78", "+33 6 12 34 56 78"),
        ("+45 12 34 56 78", "12345678"),
        ("０９０-１２３４-５６７８", "090 1234 5678"),
        ("+٣٥١ ٢٢٠ ٠٠٠ ٣٢١", "+351220000321"),
        ("4711-0815", "4711 0815"),
        ("4711-0815", "47110815"),
        ("DE44 5001 0517 5407 3249 31", "DE44-5001-0517-5407-3249-31"),
        ("de44 5001 0517 5407 3249 31", "DE44500105175407324931"),
        ("GB29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819"),
        ("1Z 999 AA1 01 2345 6784", "1Z999AA10123456784"),
        ("SW1A 1AA", "SW1A1AA"),
        ("1 000 000", "1,000,000"),
        ("12\u202f345", "12.345"),
    ],
)
def test_numbers_and_codes_in_groups(one: str, other: str) -> None:
    for query, stored in ((one, other), (other, one)):
        assert found_by(query, stored) & set(range(query_terms(query).query_words))


@pytest.mark.parametrize("query", TELEPHONES[:-2])
@pytest.mark.parametrize("other", OTHERS)
def test_no_other_number_has_as_much_of_it(query: str, other: str) -> None:
    """What of a number is at its end is rarer the more of it there is."""
    own, shared = set(words(TELEPHONES[0])), set(words(other))
    asked = query_terms(query)
    terms = [term for term in asked.terms if term.ordinal < asked.query_words]
    assert any(term.text in own - shared for term in terms)
    assert not any(term.text in shared and term.weight > FORM_WEIGHT for term in terms)


def test_groups_of_a_number_only_add() -> None:
    """Other numbers have them, too; who lists numbers of rooms still finds each."""
    asked = query_terms("rooms 101 102 103")
    assert list(asked.words[: asked.query_words]) == ["101102103", "room"]
    groups = [term for term in asked.terms if term.text in {"101", "102", "103"}]
    assert [term.weight for term in groups] == [PARTICLE_WEIGHT] * 3
    assert found_by("rooms 101 102 103", "Anna sleeps in 102.")


@pytest.mark.parametrize(
    ("said", "term"),
    [
        ("2031-05-08 2031-05-09", "20310508"),
        ("08.05.2031", "20310508"),
        ("192.168.70.114", "192.168.70.114"),
        ("release 1.0.9-rc2", "1.0.9rc2"),
        ("52.520008 13.404954", "52.520008"),
        ("12.345.678", "12345678"),
        ("the seasons 2023/2024", "2023/2024"),
        ("2019-2021", "2019"),
        ("9 10 11 12 13 14 15 16 17 18", "18"),
        ("5 8", "8"),
    ],
)
def test_what_is_no_number_in_groups_stays_as_it_was(said: str, term: str) -> None:
    assert term in words(said)
    joined = {"2031050820310509", "19216870114", "525200081340495", "20232024", "58"}
    assert not joined & set(words(said))


@pytest.mark.parametrize("emoji", ["🐢", "❤", "✅", "⭐", "🇵🇹", "☕"])
def test_an_emoji_is_a_word(emoji: str) -> None:
    assert is_found(emoji, f"{emoji} is the codename of release 8.")
    assert not found_by(emoji, "🦆 is the codename of release 9.")


def test_how_an_emoji_is_drawn_does_not_matter() -> None:
    assert_each_finds_the_other("👍🏽", "👍")
    assert_each_finds_the_other("❤\ufe0f", "❤")
    assert words("👩\u200d💻") == ["👩", "💻"]
    assert words("⚠️⚠️") == ["⚠", "⚠"]


def test_beside_words_an_emoji_only_adds() -> None:
    asked = query_terms("Which release is the turtle? 🐢")
    assert "🐢" not in asked.words[: asked.query_words]
    assert "🐢" in asked.words


def test_what_draws_lines_and_boxes_is_no_word() -> None:
    assert words("── ■ │ tea ░") == ["tea"]


def test_plain_texts_are_spelled_as_they_are() -> None:
    plain = "Anna's tea, OPS-4127 / Łódź, naïve, 'quoted' ångström がぎ 한국 Київ"
    assert fold(plain) == plain


def test_what_a_query_is_looked_up_by_is_bounded() -> None:
    """Each word has at most four other forms, and groups of numbers are bounded apart."""
    for unit in ("{0} {0:06}, ", "ושבה{0} ", "{0:011} ", "Müe{0} "):
        text = "".join(unit.format(n) for n in range(10_000, 12_000))
        asked = query_terms(text, goal=text)
        assert asked.query_words <= Limits.query_words_max
        words_of_it = [term for term in asked.terms if term.index == "w"]
        assert len(words_of_it) <= 6 * Limits.query_words_max
