"""Texts that say nothing, in every language and script that the lists know."""

import pytest

from memrelay.gateway.trivial import is_command, is_filler, is_question, is_trivial

FILLER = {
    "English": ["ok", "Thanks!", "sure", "OK, thank you very much!", "Good morning", "What's up?"],
    "German": ["Vielen Dank, alles klar!", "Guten Morgen", "ja, passt", "Na, wie geht's?"],
    "French": ["Merci beaucoup !", "C'est bon, merci", "d'accord", "Bonne nuit", "Ça va ?"],
    "Spanish": ["¡Muchas gracias!", "Buenos días", "vale, perfecto", "por favor", "¿Qué tal?"],
    "Portuguese": ["Muito obrigado!", "Bom dia", "tá bom", "Tudo bem?", "beleza, valeu"],
    "Italian": ["Grazie mille", "Buongiorno!", "va bene, perfetto", "Come stai?", "prego"],
    "Polish": ["Dzięki wielkie!", "Dzień dobry", "tak, jasne", "Co słychać?", "dobranoc"],
    "Turkish": ["Teşekkür ederim", "Günaydın", "tamam, harika", "İyi geceler", "Nasılsın?"],
    "Russian": ["Спасибо большое!", "Доброе утро", "да, хорошо", "Как дела?", "ещё раз"],
    "Chinese": ["谢谢！", "你好", "好的，明白了", "嗯嗯", "哈哈哈哈", "早上好，你好吗？", "謝謝你"],
    "Japanese": [
        "ありがとうございます！",
        "おはよう",
        "はい、了解です",
        "なるほどね",
        "お元気ですか？",
    ],
    "Korean": ["감사합니다", "안녕하세요!", "네, 알겠습니다", "ㅋㅋㅋㅋ", "잘 지내요?"],
    "Thai": ["ขอบคุณครับ", "สวัสดีค่ะ", "โอเคครับ", "เข้าใจแล้ว", "สบายดีไหมครับ"],
    "Arabic": ["شكرًا جزيلًا", "السلام عليكم", "نعم، تمام", "صباح الخير", "كيف حالك؟"],
    "Hindi": ["धन्यवाद!", "नमस्ते", "हाँ, ठीक है", "बहुत बढ़िया", "आप कैसे हैं?"],
    "Vietnamese": ["Cảm ơn bạn nhiều nhé", "Xin chào!", "vâng, được rồi", "tuyệt vời"],
    "Indonesian": ["Terima kasih banyak!", "Selamat pagi", "ya, oke", "Apa kabar?", "sip"],
    "all": ["👍", "…!?", "", "ok 谢谢", "okay danke thanks", "hahaha", "jajaja", "hmmmm", "yesss"],
}
SAYING = [
    "ok, use Postgres",
    "yes, on Friday",
    "danke Anna",
    "Good Morning America",
    "no 5",
    "Oslo",
    "UK",
    "42",
    "I do",
    "merci à Luis",
    "vale, en Madrid",
    "bom restaurante",
    "grazie a Sara",
    "tak, w piątek",
    "tamam, yarın",
    "да, в пятницу",
    "好吃",
    "我是老师",
    "我吃素",
    "不好吃",
    "好的，周五",
    "猫",
    "はい、金曜日",
    "元気な犬",
    "네, 금요일",
    "개 이름?",
    "ฉันแพ้ถั่ว",
    "ไม่กินเผ็ด",
    "نعم، يوم الجمعة",
    "हाँ, शुक्रवार",
    "vâng, thứ sáu",
    "ya, hari Jumat",
]


@pytest.mark.parametrize("text", [text for texts in FILLER.values() for text in texts])
def test_greetings_thanks_and_assent_are_filler(text: str) -> None:
    assert is_filler(text)
    assert is_filler(f"  {text.upper()} 🎉\n")
    assert is_trivial(text)


@pytest.mark.parametrize("text", SAYING)
def test_words_that_say_something_are_no_filler(text: str) -> None:
    assert not is_filler(text)
    assert not is_trivial(text)


@pytest.mark.parametrize("text", ["/new", "/status", " /compact \n", "/new\n/status", "/x@bot"])
def test_a_command_alone_is_trivial(text: str) -> None:
    assert is_command(text)
    assert is_trivial(text)


@pytest.mark.parametrize(
    "text", ["/new I moved to Oslo", "/remember vegan", "/etc/nginx", "a /new", "", "/new\nTea!"]
)
def test_a_command_with_words_is_none(text: str) -> None:
    assert not is_command(text)


@pytest.mark.parametrize("text", ["y", "1", "?", "é", "ก", "(a)"])
def test_less_than_two_columns_say_nothing(text: str) -> None:
    assert is_trivial(text)


@pytest.mark.parametrize("text", ["Al", "猫", "개", "Я я", "กา", "ab", "10"])
def test_two_columns_may_say_something(text: str) -> None:
    assert not is_trivial(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Where is staging?", True),
        ("Hi! Where is it? And who runs it?", True),
        ("谁负责数据库迁移？", True),
        ("أين المفتاح؟", True),
        ("Thanks. How much? (Really?)", True),
        ("Where is it? I moved to Oslo.", False),
        ("I moved to Oslo; where is it?", False),
        ("犬の名前はポチです。猫は？", False),
        ("ok", False),
        ("", False),
    ],
)
def test_a_question_alone_is_told_from_one_beside_a_statement(text: str, asks: bool) -> None:
    assert is_question(text) == asks


@pytest.mark.parametrize(
    "seed", ["ok ", "好", "ha", "é", "\u0300", "ㅋ", "/n\n", "? ", "...", "\n"]
)
def test_a_megabyte_made_to_slow_it_down_is_read_through(seed: str) -> None:
    text = seed * (1_000_000 // len(seed)) + "I moved to Oslo."
    assert not is_trivial(text)
    assert not is_question(text)
