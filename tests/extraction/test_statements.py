"""What a user states is kept, what only keeps a talk going is not: in English and other languages.

The sentences of `bench.facts` are not here, but for its figures.
"""

import re

import pytest

from bench import facts as bench
from relayer.extraction import talk
from relayer.extraction.english import introduces_text, weigh
from relayer.extraction.english_words import Tense, Verb, verb_of
from relayer.extraction.facts import FACTS_MAX, Excerpt, Fact
from relayer.extraction.language import has_words, languages_of
from relayer.extraction.tables import sections
from tests.extraction.ruled import rules, texts

STATED = [
    "The north gate was given a new lock by the caretaker.",
    "Hedda took the archive over from Magnus.",
    "I'm a vegan.",
    "We write Elixir, not Ruby.",
    "Left-handed since birth, btw",
    "oh and our printer moved to the second floor",
    "deliveries arrive on Thursdays",
    "Two sugars in my tea.",
    "my aunt's called Philippa",
    "Shellfish makes me ill.",
    "I quit the choir in March.",
    "Ivo no longer sings with us.",
    "Nobody in the band reads music.",
    "No meetings before ten.",
    "The sauna opens at six.",
    "Ottilie used to manage the Graz branch.",
    "The canteen doesn't take cards.",
    "It's not Marseille, it's Marsala.",
    "You should know that the cellar floods every spring.",
    "The boat carries nine people.",
    "We keep the ladder behind the shed.",
    "I'm learning Icelandic.",
    "Parcels from Norway take a week.",
    "The council widened the towpath.",
    "I'd rather travel by night train.",
    "Never schedule anything on Ascension Day.",
    "Editor: Helix",
    "Host: nas.example.net",
    "I've opted for linoleum.",
    "was raised on a barge in Rotterdam",
    "I got engaged in Tromsø",
    "we got divorced after nine years",
    "My parents go to Ghana every year.",
    "Go is what I write most.",
    "You can reach me at 0171 2345678.",
    "You can reach me in the evenings.",
    "You can find me on GitHub as hedda-b.",
    "My tel. is 0351 5550142.",
    "My wife's number is (555) 123-4567.",
    "Du erreichst mich unter 0351/5550142.",
    "I will never eat meat again.",
    "I would never eat at Burger Queen.",
    "I won't eat meat.",
    "I shouldn't eat gluten.",
    "Ich sollte kein Gluten essen.",
    "I found a new job in Turku.",
    "I've found a new role in Turku.",
    "We got a puppy last week.",
    "I'm getting married in May.",
    "We're getting divorced.",
    "I'm back in Turku since May.",
    "If you need me, I work from home on Fridays.",
    "If it matters, I live in Turku.",
    "lol my wife hates cilantro",
    "omg my sister is pregnant",
    "works at Bosch",
    "Lives near Turku",
    "two kids",
]
TALK = [
    "hello again",
    "See you on Monday!",
    "Many thanks, that was quick.",
    "Sort these by colour.",
    "Could you shorten that a bit",
    "where does the bus stop",
    "whose turn is it",
    "anyone got a pen",
    "I'm on it.",
    "I'm so bored right now.",
    "I'm rewriting it now.",
    "I reran the job again.",
    "The second draft reads better.",
    "This looks off to me.",
    "Both tests are red.",
    "There's a typo in the heading.",
    "The loop never ends, it's maddening.",
    "I need a shell script for that.",
    "We could move the button.",
    "Maybe the cat did it.",
    "If I were a bird I'd fly south.",
    "Suppose the moon is made of cheese.",
    "What a lovely idea!",
    "Don't mind me.",
    "You've made my day.",
    "I like it.",
    "Which one sounds nicer",
    # Words of other languages as well, one by one.
    "go on",
    "on we go",
    "come in",
    "go ahead",
    "go deeper",
    "go to line ten",
    "Come over here.",
    "over and out",
    "I think it's fine.",
    "Just a moment.",
    "Let's call it a night.",
    "Status: done",
    "can owls swim",
    "is Pluto colder than Neptune",
    "The keys don't match.",
    "The train leaves in ten minutes.",
    "I need help with my letter.",
    "I spilled my cocoa.",
    "now in Danish please",
    "ta-da",
    "typing this from the sofa",
    "Best wishes to your team",
    "Locker 18, red door.",
    "You can reach me.",
    "You can call me in ten minutes.",
    "You can find me in the kitchen.",
    "You can contact me about the test.",
    "You have 12 34 56 errors.",
    "I will check it again.",
    "I will never understand this.",
    "I would never have guessed.",
    "I'd never do that to you.",
    "I shouldn't have done that.",
    "I shouldn't worry.",
    "I won't need it.",
    "I found a typo in line 3.",
    "I got a warning.",
    "I have found the error.",
    "I found a house style guide in the repo.",
    "I got an idea.",
    "I'm getting an error.",
    "I'm getting started.",
    "I'm getting lost.",
    "I'm back in a minute.",
    "If you need me, I'm here.",
    "lol nice one",
    "haha the build is broken again",
    "works at scale",
    "works as expected",
    "works on mobile",
    "lives in memory",
    "my friend",
    "If you want, I can send it.",
    "If we moved to Turku, I would be happy.",
    "You can reach the limit at 5000000.",
]


@pytest.mark.parametrize("said", STATED)
async def test_what_a_user_states_is_kept_word_for_word(said: str) -> None:
    assert await texts(f"1. user: {said}") == [said]


@pytest.mark.parametrize("said", TALK)
async def test_talk_questions_and_orders_are_not_kept(said: str) -> None:
    assert await texts(f"1. user: {said}") == []


@pytest.mark.parametrize(
    ("said", "order"),
    [
        ("Please never use emojis.", "Please check every test again."),
        ("Please always reply in French.", "Please never mind."),
        ("Please answer in German from now on.", "Please answer in German."),
        ("From now on answer in German.", "Is this from now on the default"),
        ("From now on, please use metric units.", "Use metric units, please."),
        ("Please don't ever use emojis.", "Please don't use this one."),
        ("Please call me Max.", "Please call me back later."),
        ("Bitte nenn mich Max.", "Bitte prüfe das noch einmal."),
        ("Appelle-moi Max s'il te plaît.", "Appelle-moi demain s'il te plaît."),
        ("Llámame Max.", "Llámame mañana por favor."),
        ("Me chame de Max.", "Me mostra o resto por favor."),
        ("Chiamami Max per favore.", "Chiamami domani per favore."),
        ("Mów mi Max.", "Mów dalej proszę."),
        ("Lütfen her zaman Türkçe cevap ver.", "Lütfen Türkçe cevap ver."),
        ("Пожалуйста, зови меня Макс.", "Пожалуйста, покажи остальное."),
        ("请总是用中文回答。", "请用中文回答。"),
        ("マックスと呼んでください。", "もう一度見せてください。"),
        ("막스라고 불러 주세요.", "다시 보여 주세요."),
        ("กรุณาเรียกผมว่าแม็กซ์", "กรุณาแสดงอีกครั้ง"),
        ("من فضلك نادني ماكس", "من فضلك أعد المحاولة"),
        ("कृपया हमेशा हिंदी में जवाब दें।", "कृपया हिंदी में जवाब दें।"),
        ("Vui lòng gọi tôi là Max.", "Vui lòng xem lại."),
        ("Tolong panggil saya Max.", "Tolong tunjukkan sisanya."),
    ],
)
async def test_an_order_that_stands_is_kept_however_politely(said: str, order: str) -> None:
    assert await texts(f"1. user: {said}") == [said]
    assert await texts(f"1. user: {order}") == []


# language, what is kept, what is not
LANGUAGES = [
    ("german", "Meine Tante züchtet Bienen in Krems.", "Lies mir das noch mal vor."),
    ("german", "Antworte mir immer auf Englisch.", "Wann fährt der letzte Bus"),
    ("french", "Notre fils joue du hautbois.", "Relis le dernier paragraphe."),
    ("french", "Réponds toujours en anglais.", "Ça marche, merci."),
    ("spanish", "Trabajo de noche en el puerto.", "Bórralo todo."),
    ("spanish", "Mi tía cría abejas.", "Cuánto cuesta eso"),
    ("portuguese", "Trabalho à noite no porto.", "Apaga isso tudo."),
    ("portuguese", "Minha tia cria abelhas.", "Quanto custa"),
    ("italian", "Lavoro di notte al porto.", "Cancella tutto."),
    ("italian", "Mia zia alleva api.", "Quanto costa"),
    ("polish", "Pracuję nocami w porcie.", "Usuń to wszystko."),
    ("polish", "Ciocia hoduje pszczoły.", "Ile to kosztuje"),
    ("turkish", "Geceleri limanda çalışıyorum.", "Hepsini sil."),
    ("turkish", "Teyzem arı yetiştiriyor.", "Bu ne kadar"),
    ("russian", "Я работаю ночью в порту.", "Удали всё."),
    ("russian", "Я левша.", "Сколько это стоит"),
    ("chinese", "我在码头上夜班。", "全部删掉可以吗"),
    ("chinese", "测试环境在 Oslo，CI 用 Jenkins。", "帮我改一下标题。"),
    ("japanese", "港で夜勤をしています。", "全部消して。"),
    ("japanese", "おばは蜂を飼っています。", "いくらですか"),
    ("korean", "저는 항구에서 밤에 일해요.", "전부 지워 줘."),
    ("korean", "이모는 벌을 키워요.", "얼마예요"),
    ("thai", "ผมทำงานกะดึกที่ท่าเรือ", "ลบให้หมดเลย"),
    ("thai", "ป้าเลี้ยงผึ้งที่ลำพูน", "ราคาเท่าไหร่"),
    ("arabic", "أعمل ليلاً في الميناء.", "احذف كل شيء."),
    ("arabic", "أنا أعسر.", "كم السعر"),
    ("hindi", "मैं बंदरगाह पर रात में काम करता हूँ।", "सब कुछ हटाओ।"),
    ("hindi", "मेरी मौसी मधुमक्खियाँ पालती हैं।", "इसका दाम क्या है"),
    ("vietnamese", "Tôi làm ca đêm ở cảng.", "Xóa hết đi."),
    ("vietnamese", "Dì tôi nuôi ong.", "Giá bao nhiêu"),
    ("indonesian", "Saya bekerja malam di pelabuhan.", "Hapus semuanya."),
    ("indonesian", "Bibi saya beternak lebah.", "Berapa harganya"),
]


@pytest.mark.parametrize(("language", "stated", "said"), LANGUAGES)
async def test_other_languages_are_heard(language: str, stated: str, said: str) -> None:
    assert language in languages_of(stated)
    (fact,) = await rules.extract(Excerpt(f"1. user: {stated}\n\n2. user: {said}"))
    assert (fact.text, fact.importance) == (stated, "standard")
    assert fact.confidence == "medium" or language == "german"  # whose words are cues as well


@pytest.mark.parametrize(
    "said",
    [
        "Hallo, ich bin Jule aus Husum.",
        "Bonjour, on m'appelle Mimi.",
        "Hola, soy Nuria, de Lugo.",
        "Bom dia, sou o Rui.",
        "Ciao, mi chiamo Ada.",
        "Cześć, jestem Ola z Opola.",
        "Merhaba, adım Nil.",
        "Привет, меня зовут Глеб.",
        "你好，我叫小芳。",
        "こんにちは、健です。",
        "안녕하세요, 저는 하나예요.",
        "สวัสดีค่ะ หนูชื่อพลอย",
        "مرحبا، اسمي هدى.",
        "नमस्ते, मेरा नाम उमा है।",
        "Chào bạn, tôi tên Tú.",
        "Halo, saya Wati.",
    ],
)
async def test_a_greeting_does_not_cost_what_follows_it(said: str) -> None:
    assert await texts(f"1. user: {said}") == [said]
    greeting = re.split(r"[,，、،]| (?=หนู)", said)[0]
    assert await texts(f"1. user: {greeting}!") == []


@pytest.mark.parametrize(
    "said",
    [
        "Merke dir, dass die Pumpe links steht.",
        "N'oublie pas que la pompe est à gauche.",
        "Recuerda que la bomba está a la izquierda.",
        "Не забудь: насос слева.",
        "请记住，水泵在左边。",
        "ポンプは左です、覚えておいて。",
        "펌프는 왼쪽에 있어요, 기억해 주세요.",
        "تذكر أن المضخة على اليسار.",
        "याद रखना, पंप बाईं ओर है।",
    ],
)
async def test_what_somebody_asks_to_have_remembered_is_vital(said: str) -> None:
    (fact,) = await rules.extract(Excerpt(f"1. user: {said}"))
    assert (fact.text, fact.importance, fact.confidence) == (said, "vital", "high")


@pytest.mark.parametrize(
    "said",
    [
        "Ich muss zweimal am Tag Tabletten nehmen.",
        "Je viens de Brest.",
        "Ya no vivo en Jaén.",
        "Ainda não tenho netos.",
        "A maggio andiamo in Puglia.",
        "Mąż nie może jeść glutenu.",
        "Henüz çocuğumuz yok.",
        "Собаки у нас нет.",
        "停车场在地下二层。",
        "와인 가게를 해요.",
        "Tu peux me joindre au 06 12 34 56 78.",
        "Puedes llamarme al 612 345 678.",
        "Puoi chiamarmi al 347 1234567.",
        "Falls du mich brauchst, freitags arbeite ich zu Hause.",
        "J'ai trouvé un nouveau travail à Brest.",
        "Je suis de retour à Brest depuis mai.",
        "Możesz do mnie zadzwonić pod 601 234 567.",
        "ปิดร้านทุกวันพุธ",
        "جدتي من طنجة.",
    ],
)
async def test_a_statement_may_begin_or_end_as_talk_does(said: str) -> None:
    assert await texts(f"1. user: {said}") == [said]


def test_every_language_with_a_table_is_tried() -> None:
    assert {language for language, _, _ in LANGUAGES} == talk.LANGUAGES


@pytest.mark.parametrize("language", sorted(talk.LANGUAGES))
def test_no_talk_is_found_in_nonsense(language: str) -> None:
    """An alternative left empty in the table would find talk everywhere."""
    assert not talk.is_talk("xyzzy plugh", language)


@pytest.mark.parametrize(
    "said",
    [
        "ຂ້ອຍແພ້ຖົ່ວດິນ ແລະ ຢູ່ວຽງຈັນ",  # Lao
        "ខ្ញុំរស់នៅបាត់ដំបង",  # Khmer
        "ကျွန်တော် မန္တလေးမှာ နေပါတယ်",  # Burmese
        "Jag spelar cello i en orkester.",
        "Я живу у Львові з родиною.",
    ],
)
async def test_languages_without_a_table_are_heard_with_low_confidence(said: str) -> None:
    (fact,) = await rules.extract(Excerpt(f"1. user: {said}"))
    assert (fact.text, fact.confidence) == (said, "low")


@pytest.mark.parametrize(
    ("said", "languages"),
    [
        ("We moved to Lyon.", {"english"}),
        ("The sign 猫 means cat.", {"english"}),
        ("本番は Kubernetes です。", {"japanese"}),
        ("后端用 Go。", {"chinese"}),
        ("Наш API написан на Go.", {"russian"}),
        ("Wir wohnen in Graz.", {"german"}),
        ("Çello çalıyorum.", {"turkish"}),
        ("Fine, ship it.", {"english"}),
    ],
)
def test_names_in_latin_letters_make_no_sentence_english(said: str, languages: set[str]) -> None:
    assert languages_of(said) == languages


def test_near_relatives_are_not_told_apart_by_a_word_of_both() -> None:
    assert languages_of("Il museo resta chiuso.") >= {"italian", "french"}


@pytest.mark.parametrize(
    ("text", "words_min", "enough"),
    [
        ("I'm vegan", 2, True),
        ("tea", 2, False),
        ("Я левша", 2, True),
        ("我吃素", 2, True),
        ("好", 2, False),
        ("ta x", 2, False),
        ("room 12", 2, True),
    ],
)
def test_what_is_said_counts_not_how_long_it_is(text: str, words_min: int, enough: bool) -> None:
    assert has_words(text, words_min=words_min) == enough


async def test_a_statement_counts_less_than_a_cue() -> None:
    stated = "\n\n".join(f"{n}. user: Hall {n} holds the looms of Hedda." for n in range(1, 40))
    cued = "Remember that the kiln is hot."
    found = await texts(f"{stated}\n\n40. user: {cued}")
    assert len(found) == FACTS_MAX
    assert found[-1] == cued


@pytest.mark.parametrize(
    ("said", "importance", "confidence"),
    [
        ("Hedda runs the archive in Turku.", "standard", "medium"),
        ("The kiosk sells stamps.", "trivial", "medium"),
        ("I think Hedda runs the archive in Turku.", "standard", "low"),
    ],
)
async def test_a_statement_is_doubted_where_it_is_hedged(
    said: str, importance: str, confidence: str
) -> None:
    """Whoever has doubted facts wait for review would wait for all that is said otherwise."""
    assert await rules.extract(Excerpt(f"1. user: {said}")) == [
        Fact(said, "fact", importance, confidence)
    ]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("I have never been to Japan.", "fact"),
        ("I never learned to swim.", "fact"),
        ("We don't have kids.", "fact"),
        ("Wir haben nie geheiratet.", "fact"),
        ("Our flight got cancelled.", "event"),
        ("Unser Flug wurde abgesagt.", "event"),
        ("I cancelled my gym membership.", "decision"),
        ("I never eat meat.", "procedural"),
        ("We don't deploy on Fridays.", "procedural"),
        ("Never exceed ten kilos.", "procedural"),
        ("Wir deployen nie am Freitag.", "procedural"),
    ],
)
async def test_what_never_was_or_falls_through_is_no_rule(said: str, kind: str) -> None:
    (fact,) = await rules.extract(Excerpt(f"1. user: {said}"))
    assert (fact.text, fact.kind) == (said, kind)


@pytest.mark.parametrize(
    "said",
    [
        "Could be that I'm moving to Turku.",
        "It may be that I'm moving to Turku.",
        "We could be moving to Turku in May.",
        "Chances are I'm moving to Turku.",
        "Possibly I'm moving to Turku.",
        "I'm possibly allergic to nuts.",
        "As far as I know, my boss prefers tea.",
        "Kann sein, dass ich nicht mehr in Turku wohne.",
        "Möglicherweise ist mein Hund allergisch.",
    ],
)
async def test_what_may_be_has_low_confidence(said: str) -> None:
    (fact,) = await rules.extract(Excerpt(f"1. user: {said}"))
    assert (fact.text, fact.confidence) == (said, "low")


async def test_notes_about_oneself_are_kept() -> None:
    assert await texts("user: - lives in Turku\n- works at Bosch\n- two kids") == [
        "lives in Turku",
        "works at Bosch",
        "two kids",
    ]


async def test_an_assistants_statements_need_cues() -> None:
    said = "Hedda runs the archive in Turku."
    assert await texts(f"1. user: hi\n\n2. assistant: {said}") == []
    assert await texts(f"1. ok\n\n2. {said}") == []


async def test_what_is_pasted_in_to_be_worked_on_is_nobodys_statement() -> None:
    pasted = "The harbour faces west. My name is Hedda."
    assert len(await texts(f"1. user: {pasted}")) == 2
    for order in ("Proofread this:", "Please translate the following text.", "Can you reword this"):
        assert await texts(f"1. user: I'm a vegan. {order}\n{pasted}") == ["I'm a vegan."]
        assert await texts(f"1. user: {order}\n\n{pasted}") == []
    assert await texts(f"1. user: Can you reword this mail? {pasted}") == ["My name is Hedda."]
    assert not introduces_text("This text is by Hedda.", with_colon=False)


# An order, and the text behind it.
ORDERS = [
    ("Translate to German:", "I live in Turku. I love dogs."),
    ("Could you please fix the grammar of this:", "My name are Hedda. I am pilot."),
    ("Expand:", "I live in Turku. I love dogs."),
    ("Give me a translation of this:", "I live in Turku. I love dogs."),
    ("summarise:", "I moved to Turku and I hate cats. My wife is a pilot."),
    ("Reply to this email:", "Hi, I moved to Turku. I hate cats."),
    ("I need you to proofread these lines:", "I live in Turku. I love dogs."),
    ("Korrigiere bitte:", "Ich heiße Hedda. Ich bin Pilotin."),
    ("Kannst du das ins Englische übersetzen:", "Ich wohne in Turku. Ich liebe Hunde."),
    ("Traduis en anglais :", "J'habite à Turku. J'adore les chiens."),
    ("Traduce al inglés:", "Vivo en Turku. Trabajo en Correos."),
    ("Traduz para inglês:", "Moro em Turku. Amo cachorros."),
    ("Traduci in inglese:", "Vivo a Turku. Amo i cani."),
    ("Przetłumacz na angielski:", "Mieszkam w Turku. Lubię psy."),
    ("İngilizceye çevir:", "Turku'da yaşıyorum. Köpekleri seviyorum."),
    ("Переведи на английский:", "Я живу в Турку. Я люблю собак."),
    ("把这段翻译成英文：", "我住在图尔库。我喜欢狗。"),
    ("英語に翻訳して：", "私はトゥルクに住んでいます。犬が好きです。"),
    ("영어로 번역해 줘:", "저는 투르쿠에 살아요. 개를 좋아해요."),
    ("แปลเป็นภาษาอังกฤษ:", "ผมอยู่ที่ตุรกุ ผมชอบหมา"),
    ("ترجم إلى الإنجليزية:", "أعيش في توركو. أحب الكلاب."),
    ("अंग्रेज़ी में अनुवाद करो:", "मैं तुर्कू में रहता हूँ। मुझे कुत्ते पसंद हैं।"),
    ("Dịch sang tiếng Anh:", "Tôi sống ở Turku. Tôi thích chó."),
    ("Terjemahkan ke bahasa Inggris:", "Saya tinggal di Turku. Saya suka anjing."),
]
# Words about what somebody else wrote, and that.
LETTERS = [
    ("Here's a mail from Tom:", "Hi,\nI moved to Turku and I hate cats.\nMy wife is a pilot."),
    ("Message from my boss:", "I moved to Turku. I hate cats."),
    ("I got this letter from my landlord:", "Dear tenant,\n\nmy name is Bob. I hate cats."),
    ("Forwarded from Tom:", "I moved to Turku. I hate cats."),
    ("Tom's email:", "I moved to Turku. I hate cats."),
    ("My sister sent me this:", "I moved to Turku.\n\nI hate cats."),
    ("Mein Chef schrieb mir:", "Ich ziehe nach Turku.\n\nIch hasse Katzen."),
    ("Mi jefe me escribió:", "Vivo en Turku.\n\nTrabajo en Correos."),
    ("Das ist eine Mail von Tom:", "Ich wohne in Turku und hasse Katzen."),
    ("Voici un message de Tom :", "J'habite à Turku. J'adore les chiens."),
    ("Correo de Tom:", "Vivo en Turku. Trabajo en Correos."),
    ("Wiadomość od Tomka:", "Mieszkam w Turku. Lubię psy."),
    ("Письмо от Тома:", "Я живу в Турку. Я люблю собак."),
    ("Tom发来的邮件：", "我住在图尔库。我喜欢狗。"),
    ("Tomからのメール：", "私はトゥルクに住んでいます。"),
]


@pytest.mark.parametrize(("head", "pasted"), [*ORDERS, *LETTERS])
async def test_a_text_behind_a_colon_is_nobodys_statement(head: str, pasted: str) -> None:
    for gap in ("\n\n", "\n") + ((" ",) if (head, pasted) not in LETTERS[2:8] else ()):
        assert await texts(f"1. user: I'm a vegan.\n{head}{gap}{pasted}") == ["I'm a vegan."]


@pytest.mark.parametrize("label", ["", "user: ", "1. user: ", "[10:00] Ida: "])
@pytest.mark.parametrize("order", ["Proofread", "Translate to German", "Summarize", "Corrige"])
async def test_an_order_is_nobodys_name(label: str, order: str) -> None:
    assert await texts(f"{label}{order}: My name is Hans. I am a pilot.") == []


async def test_marks_and_a_signature_end_a_text_of_somebody_else() -> None:
    assert await texts('user: Translate: "I live in Turku. I love dogs." My wife is vegan.') == [
        "My wife is vegan."
    ]
    mail = "Here's a mail from Tom:\n\nHi,\nI hate cats.\n- Tom\n\nI'm a vegan."
    assert await texts(f"user: {mail}") == ["I'm a vegan."]


@pytest.mark.parametrize(
    "said",
    [
        "Remember: I live in Turku and I love dogs.",
        "Always translate my notes to Danish: I live in Odense.",
        "Edit: I moved to Turku.",
        "Correct: I live in Turku and I love dogs.",
        "I translate for a living: mostly Danish novels.",
        "My mail from work: hedda@example.org",
        "I got a letter from the landlord: the rent rises in May.",
        "Notes from my doctor: no gluten; two pills a day",
        "Tom said: I live in Turku.",
        "Ich übersetze: vor allem Romane von Rilke.",
        "Mi correo de trabajo: hedda@example.org",
        "Korrektur: Ich wohne in Turku.",
        "Düzeltme: Turku'da yaşıyorum.",
        "Koreksi: Saya tinggal di Turku.",
        "Poprawka: mieszkam w Turku.",
    ],
)
async def test_a_colon_alone_introduces_no_text_of_somebody_else(said: str) -> None:
    assert await texts(f"1. user: {said}") == [said]


async def test_a_long_text_is_no_statement() -> None:
    lines = [f"The mill on river {n} grinds rye." for n in range(FACTS_MAX + 1)]
    assert len(await texts("1. user: " + " ".join(lines[:-1]))) == FACTS_MAX
    assert await texts("1. user: " + " ".join(lines)) == []


async def test_it_stands_for_what_was_stated_before() -> None:
    assert await texts("1. user: Our boat lies in Bergen. It leaks.") == [
        "Our boat lies in Bergen. It leaks."
    ]
    assert await texts("1. user: Try again. It leaks.") == []
    assert await texts("1. user: Hi there! She works at the mill.") == ["She works at the mill."]


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("carries", Verb("carry", Tense.PRESENT)),
        ("carried", Verb("carry", Tense.PAST)),
        ("planned", Verb("plan", Tense.PAST)),
        ("travelling", Verb("travel", Tense.PROGRESS)),
        ("lying", Verb("lie", Tense.PROGRESS)),
        ("agreed", Verb("agree", Tense.PAST)),
        ("wrote", Verb("write", Tense.PAST)),
        ("put", Verb("put", Tense.BASE)),
        ("watches", Verb("watch", Tense.PRESENT)),
        ("kettle", Verb()),
        ("writed", Verb()),
    ],
)
def test_forms_of_verbs(word: str, verb: Verb) -> None:
    assert verb_of(word) == verb


@pytest.mark.parametrize("name", ["talk.txt", "english_words.txt"])
def test_no_section_is_empty_or_twice(name: str) -> None:
    found = sections(name)
    assert all(any(line.strip() for line in lines) for lines in found.values())
    assert len(found) > 15


@pytest.mark.parametrize(
    "piece", ["a ", "not ", "'s ", "i ", "the a ", "again ", "可", "de ", "? "]
)
def test_the_time_it_takes_grows_as_a_sentence_does(piece: str) -> None:
    """A quadratic step would take minutes for each of these."""
    said = (piece * 65536)[:65536]
    weigh(said)
    for language in languages_of(said):
        talk.is_talk(said, language)


async def test_figures_of_the_half_that_shaped_no_rule() -> None:
    """`bench.facts` on sentences that were dealt out before a rule was written."""
    sentences = bench.read_sentences(bench.HALVES["held-out"])
    tallies = bench.tally(
        await bench.judge_all(sentences), [sentence.language for sentence in sentences]
    )
    english = tallies.pop(bench.ENGLISH)
    assert english.kept_share >= 0.85, english.missed
    assert english.junk_share <= 0.05, english.junk_kept
    assert set(tallies) == talk.LANGUAGES
    for language, found in tallies.items():
        assert found.kept_share >= 0.75, (language, found.missed)
        assert found.junk_share <= 0.25, (language, found.junk_kept)


def test_both_halves_of_the_benchmark_are_as_large_and_share_nothing() -> None:
    halves = [bench.read_sentences(path) for path in bench.HALVES.values()]
    said = [{re.sub(r"\W", "", sentence.text).casefold() for sentence in half} for half in halves]
    assert said[0].isdisjoint(said[1])
    for half in halves:
        english = [sentence for sentence in half if sentence.language == bench.ENGLISH]
        assert sum(sentence.is_fact for sentence in english) == 120
        assert len({sentence.kind for sentence in english if sentence.is_fact}) == 12
        assert sum(not sentence.is_fact for sentence in english) == 96
