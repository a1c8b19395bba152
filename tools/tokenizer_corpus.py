"""Writes texts that a tokenizer can get wrong, one JSON object {"text": ...} a line.

    python tools/tokenizer_corpus.py --lines 24000 --seed 1 > corpus.jsonl

Equal arguments give equal bytes. Every kind of text below has its share: many scripts, marks in
every order, Hangul parts, emoji sequences, code, random bytes read as UTF-8, runs of one character,
white space and line breaks of all kinds, contractions, special tokens inside and beside words.
"""

import argparse
import json
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

PHRASES = """
The quick brown fox doesn't jump; it'll wait until they've left, and I'd say we're fine.
It's 10:45 p.m. on 2024-03-17, and the total is $1,234,567.89 (about 12.5%).
Ein großer Bär überquert die Straße, während Fußgänger höflich grüßen.
L'été dernier, j'ai mangé une crêpe à l'œuf près de la forêt; c'était délicieux !
¿Dónde está el niño? ¡Mañana será otro día!
A manhã está fria, mas o coração está quente; não há dúvidas.
Città più bella perché c'è l'università.
Žluťoučký kůň úpěl ďábelské ódy, zatímco ježek číhal.
Zażółć gęślą jaźń, proszę państwa.
Árvíztűrő tükörfúrógép működik.
Băieții și fetele au învățat țara întreagă.
Þórður fór í ferðalag með æðarfugli.
Hän söi mämmiä ja käveli yöllä järvelle.
İstanbul'da ığdır'a giden yolcular çığlık attı.
Быстрая коричневая лиса прыгает через ленивую собаку, не так ли?
Щастя моє, ґанок їхній і єдиний шлях.
Γειά σου Κόσμε, πώς είσαι σήμερα; Ὦ ξεῖν᾽ ἀγγέλλειν.
שָׁלוֹם עוֹלָם, מה שלומך היום?
مُحَمَّد يقرأ الكتابَ في المكتبةِ ٢٠٢٤.
این یک جملهٔ فارسی است که می‌خواهم بنویسم.
یہ اردو کا ایک جملہ ہے۔
नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय ज्ञान श्री १२३४।
ক্ষুধার্ত বাঘ বাংলাদেশে ঘুরে বেড়ায়।
ਸਤ ਸ੍ਰੀ ਅਕਾਲ, ਤੁਸੀਂ ਕਿਵੇਂ ਹੋ?
આજે હવામાન ખૂબ સરસ છે.
வணக்கம் உலகம், நீங்கள் எப்படி இருக்கிறீர்கள்?
నమస్కారం ప్రపంచం, మీరు ఎలా ఉన్నారు?
ನಮಸ್ಕಾರ ಜಗತ್ತು, ನೀವು ಹೇಗಿದ್ದೀರಿ?
നമസ്കാരം ലോകം, സുഖമാണോ?
සිංහල භාෂාව ඉතා ලස්සනයි.
ก็กำลังไปที่ตลาดน้ำกับเพื่อนๆ วันนี้อากาศดีมาก
ສະບາຍດີຊາວໂລກ, ເຈົ້າເປັນແນວໃດ?
မင်္ဂလာပါ ကမ္ဘာလောက၊ နေကောင်းလား။
សួស្តីពិភពលោក តើអ្នកសុខសប្បាយទេ?
བོད་ཡིག་འདི་མཛེས་པོ་རེད།
გამარჯობა მსოფლიო, როგორ ხარ?
Բարեւ աշխարհ, ինչպե՞ս ես։
ሰላም ልዑል፣ እንዴት ነህ?
你好,世界!今天天气怎么样?我们去喝茶吧。
繁體中文與簡體中文有許多差異,「引號」也不同。
こんにちは世界。がぎぐげご、パピプペポ、東京都庁へ行きましょう!
ガギグゲゴ 半角カナと全角ABC123
안녕하세요 세계, 오늘 날씨가 참 좋네요. 한국어 띄어쓰기.
Xin chào thế giới, hôm nay trời đẹp quá, đúng không?
Selamat pagi dunia, apa kabar semuanya?
Habari dunia, hujambo rafiki yangu?
Mo ní ìfẹ́ sí ọ̀rọ̀ Yorùbá gan-an ni.
ᐃᓄᒃᑎᑐᑦ ᐅᖃᐅᓯᖅ ᐱᐅᔪᖅ.
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ.
ⴰⵣⵓⵍ ⴰⵎⴰⴹⴰⵍ.
𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂 𐌸𐌿 𐌹𐌽 𐌷𐌹𐌼𐌹𐌽𐌰𐌼.
𝒯𝒽ℯ 𝔮𝔲𝔦𝔠𝔨 𝕓𝕣𝕠𝕨𝕟 𝟙𝟚𝟛 ∑∫√≠≤≥ ½⅓¾ ①②③ Ⅳ ⅷ
"If x < y && y >= z || !(a != b)" → «x ≤ y» … – — ‘single’ “double”
"""

CODE = [
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n-1) + fib(n-2)\n\n\nprint([fib(i) for i in range(10)])\n",
    "#include <stdio.h>\r\nint main(void) {\r\n\tprintf(\"%d\\n\", 0xDEADBEEF);\r\n\treturn 0;\r\n}\r\n",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.name LIKE '%O''Brien%' GROUP BY 1;",
    "const f = async (x) => { await fetch(`https://example.org/${x}?q=1&r=${encodeURIComponent(x)}`); };",
    '{"a":[1,2.5e-10,null,true],"b":{"c":"\\u00e9\\n"}}',
    "<html><body class='a b'>\n  <!-- it's --><p>&lt;tag&gt;</p>\n</body></html>",
    "\\begin{equation} \\int_{0}^{\\infty} e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}",
    "| a | b |\n|---|:-:|\n| 1 | **x** |\n\n```python\nx = {'k': [i**2 for i in range(3)]}\n```\n",
    "ls -la | grep -E '^d' && echo \"done\" > /dev/null 2>&1; rm -rf ./build/*",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n \t unchanged\n",
    "    \tmixed\t  indentation\n\t\t  here\n  \t",
]

EMOJI = ["😀", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵", "🇫🇷🇩🇪", "👍🏽", "❤️", "1️⃣", "🧂", "🌶", "☎︎", "🫠", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|fim_prefix|>", "<|repo_name|>",
    "<|audio_start|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_bos_single>", "<|audio_pad|>", "<|im_start", "im_end|>",
    "<|", "|>", "<think", "</think", "<<think>>", "<|im_end|><|im_end|>", "<THINK>", "< think >", "<tts_text_bos_sing",
]

SPACES = [" ", " ", " ", "\n", "\n", "\r\n", "\r", "\t", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029",
          "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\x1c", "\x1f", "\0", "\u180e"]

CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'vE", "'M", "'Ll", "'D", "'\u017f", "'\u017ft",
                "'l", "'r", "'v", "'lL", "'K", "'\u212a", "’s", "''s", "'s's", " 's", "'sx", "'\u0301s", "'\ufb05", "'ß"]

# First and last code point of stretches with letters, marks, digits and signs of many scripts.
BLOCKS = [
    (0x20, 0x7E), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x7C0, 0x7FF), (0x800, 0x85F),
    (0x860, 0x8FF), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F), (0xB80, 0xBFF),
    (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x139F), (0x13A0, 0x16FF), (0x1700, 0x17FF),
    (0x1800, 0x18FF), (0x1900, 0x1AFF), (0x1B00, 0x1CFF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F),
    (0x2070, 0x218F), (0x2190, 0x23FF), (0x2400, 0x27FF), (0x2900, 0x2BFF), (0x2C00, 0x2DFF), (0x2E00, 0x2FFF),
    (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA4D0, 0xA8FF),
    (0xA900, 0xABFF), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFE00, 0xFEFF), (0xFF00, 0xFFFF), (0x10000, 0x100FF), (0x10280, 0x103FF), (0x10400, 0x107FF), (0x10800, 0x10FFF),
    (0x11000, 0x113FF), (0x11400, 0x11FFF), (0x12000, 0x1254F), (0x13000, 0x143FF), (0x16000, 0x16FFF), (0x17000, 0x18FFF),
    (0x1B000, 0x1B2FF), (0x1BC00, 0x1BCFF), (0x1CC00, 0x1D0FF), (0x1D100, 0x1D7FF), (0x1D800, 0x1DFFF), (0x1E000, 0x1EFFF),
    (0x1F000, 0x1FAFF), (0x1FB00, 0x1FFFF), (0x20000, 0x2A6DF), (0x2EBF0, 0x2FA1F), (0x30000, 0x323AF), (0xE0000, 0xE01EF),
    (0x100000, 0x1000FF), (0x0, 0x10FFFF),
]

MARKS = [0x300, 0x301, 0x302, 0x303, 0x304, 0x307, 0x308, 0x30C, 0x323, 0x327, 0x328, 0x334, 0x338, 0x345, 0x35C, 0x360,
         0x591, 0x5B0, 0x5BC, 0x5C1, 0x64B, 0x651, 0x670, 0x653, 0x93C, 0x94D, 0x9BC, 0x9BE, 0xBBE, 0xE38, 0xE48, 0xEB8,
         0xF71, 0xF72, 0x1037, 0x3099, 0x309A, 0x20D0, 0x20DD, 0xFE20, 0x1D165, 0x1D16E, 0x110BA, 0x1133C, 0x16FF0, 0x1715,
         0x8CA, 0x1ABF, 0x7FD, 0x897, 0x1E5EE, 0x10EFC, 0x200D, 0xFE0F]

BASES = "aeiouAEIOUcnszyw1.-'\" \n<אבกകकਕがかハЕеΩωαᾳأو각가漢\u1100\u1161\u11a8\u0300\u212b\u2126\u0958\ufb1d\U0001d15e\U00011935\U00011930"


def character(rng, block=None):
    first, last = block or rng.choice(BLOCKS)
    while True:
        c = rng.randint(first, last)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def of_a_script(rng):
    block = rng.choice(BLOCKS)
    return "".join(
        rng.choice([" ", " ", "\n", "1", ".", "a"]) if rng.random() < 0.2 else character(rng, block) for _ in range(rng.randint(1, 40))
    )


def of_all_scripts(rng):
    return "".join(character(rng) for _ in range(rng.randint(1, 30)))


def marked(rng):
    return "".join(
        rng.choice(BASES) + "".join(chr(rng.choice(MARKS)) for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 5])))
        for _ in range(rng.randint(1, 12))
    )


def hangul(rng):
    parts = [(0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2), (0xAC00, 0xD7A3), (0x1100, 0x11FF), (0x20, 0x20)]
    return "".join(character(rng, rng.choice(parts)) for _ in range(rng.randint(1, 20)))


def random_bytes(rng):
    return rng.randbytes(rng.randint(1, 40)).decode("utf-8", "replace")


def spaces(rng):
    words = ["a", "Hello", "1", "12", ".", "!?", "é", "中", "=", "'s", "\u0301"]
    return "".join(
        rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 7]) if rng.random() < 0.6 else rng.choice(words)
        for _ in range(rng.randint(1, 20))
    )


def contractions(rng):
    words = ["I", "they", "we", "Don", "it", " ", "1", "é", "'", "x"]
    return "".join(rng.choice(words) + rng.choice(CONTRACTIONS) for _ in range(rng.randint(1, 6)))


def specials(rng, others):
    return "".join(rng.choice(SPECIAL) if rng.random() < 0.5 else rng.choice(others)(rng)[:12] for _ in range(rng.randint(1, 6)))


def runs(rng):
    unit = rng.choice(["a", "A", "=", "-", " ", "\n", "\r\n", "\t", " \n", "0", "ab", "中", "é", "e\u0301", "\u0301", "א\u05b0", "<",
                       "<|", "😀", "的", "!", "'s", "\u3000", "xyz", "\0", "\u200d", ".\n", " a"])
    return rng.choice(["", "start", " "]) + unit * rng.choice([2, 3, 7, 31, 32, 33, 64, 100, 255, 1000]) + rng.choice(["", "end", " "])


def phrase(rng):
    lines = PHRASES.strip().splitlines()
    return rng.choice([" ", "\n", "", "\n\n"]).join(rng.choice(lines) for _ in range(rng.randint(1, 3)))


def words_of_phrases(rng):
    words = PHRASES.split()
    return rng.choice([" ", " ", "  ", "", "\n"]).join(rng.choice(words) for _ in range(rng.randint(1, 12)))


def cut_up(rng):
    text = phrase(rng)
    begin = rng.randrange(len(text))
    return text[begin : begin + rng.randint(1, 40)]


def emoji(rng):
    return "".join(rng.choice(EMOJI) + rng.choice(["", "", " ", "\u200d", "ok", "\ufe0f"]) for _ in range(rng.randint(1, 8)))


def numbers(rng):
    return "".join(
        rng.choice(["٠١٢٣٤", "१२३", "①②", "½¾", "Ⅳ", ".", ",", "-", "e+", " ", ""]) + str(rng.randint(0, 10**6))
        for _ in range(rng.randint(1, 5))
    )


def letters(rng):
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.choice([5, 20, 31, 32, 33, 60, 300])))


def sources():
    """Pieces of this repository's own files: code and prose."""
    files = sorted(p for p in [*ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cc")] if "text/tokenizer" in p.as_posix())
    return [p.read_text(encoding="utf-8") for p in files]


def lines(count, seed):
    rng = random.Random(seed)
    texts = sources() + CODE

    def code(r):
        text = r.choice(texts)
        begin = r.randrange(len(text))
        return text[begin : begin + r.randint(10, 300)]

    kinds = [of_a_script, of_a_script, of_a_script, of_all_scripts, marked, marked, hangul, random_bytes, spaces, spaces, contractions,
             runs, phrase, words_of_phrases, cut_up, emoji, numbers, letters, code]
    fixed = PHRASES.strip().splitlines() + CODE + SPECIAL + CONTRACTIONS + EMOJI + ["", " ", "\n"]
    fixed += ["".join(SPECIAL), "x\u20dd!", "\u0301start", "a\u0301b\u0300", "start" + "\n" * 5000 + "end"]
    fixed += [" \n" * 5000, "\r\n" * 5000, "\t" * 5000, "A" * 43000 + " say ok"]
    for i in range(count):
        if i < len(fixed):
            yield fixed[i]
        elif i % 10 == 0:
            yield specials(rng, kinds)
        else:
            yield kinds[i % len(kinds)](rng)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--lines", type=int, default=24000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    for text in lines(options.lines, options.seed):
        sys.stdout.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    main()
