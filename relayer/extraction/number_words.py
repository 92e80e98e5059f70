"""Numbers as words, in the languages that conversations are in, and in the cases they stand in."""

from typing import Final

_FROM_ONE: Final = """
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
first second third fourth fifth sixth seventh eighth ninth tenth
ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
eins zweite dritte vierte fünfte sechste siebte achte neunte zehnte
un deux trois quatre cinq six sept huit neuf dix onze douze
uno dos tres cuatro cinco seis siete ocho nueve diez once doce
uno due tre quattro cinque sei sette otto nove dieci undici dodici
um dois três quatro cinco seis sete oito nove dez onze doze
een twee drie vier vijf zes zeven acht negen tien
jeden dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć
jednego dwóch trzech czterech pięciu sześciu siedmiu ośmiu dziewięciu dziesięciu
один два три четыре пять шесть семь восемь девять десять
одного двух трёх четырёх пяти шести семи восьми девяти десяти
bir iki üç dört beş altı yedi sekiz dokuz on
satu dua tiga empat lima enam tujuh delapan sembilan sepuluh
một hai ba bốn năm sáu bảy tám chín mười
एक दो तीन चार पाँच छह सात आठ नौ दस
واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة
واحدة اثنتان ثلاث أربع خمس ست سبع ثمان تسع عشر
一 二 三 四 五 六 七 八 九 十
하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열
"""  # noqa: E501
_OTHERS: Final = """
0 midnight mitternacht minuit medianoche mezzanotte полночь
2 both couple pair twins zwo dwie две 两 兩
3 трех
4 четырех
12 dozen noon midday mittag midi mediodía mezzogiorno południe полдень
15 quarter viertel
20 zwanzig vingt veinte venti vinte
30 half halb thirty dreißig trente treinta trenta trinta
40 forty vierzig
50 fifty fünfzig
100 hundred hundert cent cien cento
1000 thousand tausend mille mil
"""

NUMBER_WORDS: Final = {
    word: n for line in _FROM_ONE.strip().splitlines() for n, word in enumerate(line.split(), 1)
} | {
    word: int(line.split()[0]) for line in _OTHERS.strip().splitlines() for word in line.split()[1:]
}
