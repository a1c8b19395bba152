"""Conversations that the bundled model is trained and scored on, made from a seed.

Every task is a function (rng, texts) -> Turn. A turn's `key` decides whether it is held out: one key in fifty
never occurs in training and is used for scoring only. Definitions, synonyms and opposites can only be remembered:
they hold out the pair of fact and wording. The few kinds and facts of tiny_tables.py hold out nothing that
matters; both scores are recall. The others hold out the values, so their score is skill.
"""

import json
import zlib
from dataclasses import dataclass, field

from tiny_tables import (CAPITALS, CATEGORIES, CITIES, COLOURS, HUES, JOBS, NAMES, OPENERS, SMALL_TALK, SOUNDS, STORY_ADJECTIVES,
                         STORY_ENDINGS, STORY_HEROES, STORY_OPENINGS, STORY_PLACES, STORY_PROBLEMS, STORY_SPOTS,
                         STORY_THINGS, TOO_HARD, TOO_HARD_ANSWERS)


@dataclass
class Turn:
    key: str
    user: str
    answer: str
    thought: str = ""
    system: str = ""
    tools: list = field(default_factory=list)
    call: tuple | None = None  # (name, arguments) asked for before `answer`
    result: str = ""           # what the tool gives back

    def held_out(self) -> bool:
        return zlib.crc32(self.key.encode()) % 50 == 0


class Texts:
    """What the tasks draw from: words by how common they are, paragraphs, sayings."""

    def __init__(self, sources: dict, words: int = 2500):
        self.words = sources["words"][:words]
        self.weights = [1.0 / (40 + i) ** 0.5 for i in range(len(self.words))]
        self.paragraphs = [p for parts in sources["novels"].values() for p in parts[:int(len(parts) * 0.95)] if 160 < len(p) < 900]
        self.sayings = sources["sayings"]

    def word(self, rng, need: str = "") -> dict:
        while True:
            word = rng.choices(self.words, self.weights)[0]
            if not need or word[need]:
                return word


def define(rng, texts):
    word = texts.word(rng)
    form = rng.randrange(9 if word["kind"] == "n" else 8)
    w = word["word"]
    user = [f"What does {w} mean?", f"What does the word {w} mean?", f"Define {w}.", f"Define the word \"{w}\".", f"What is the meaning of {w}?",
            f"Explain the word {w}.", f"define {w}", f"What is the definition of \"{w}\"?",
            f"What is {'an' if w[0] in 'aeiou' else 'a'} {w}?"][form]
    kind = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb"}[word["kind"]]
    return Turn(f"define {w} {form}", user, f"{w.capitalize()} ({kind}): {word['gloss']}.")


def synonym(rng, texts):
    word = texts.word(rng, "like")
    form = rng.randrange(5)
    w = word["word"]
    user = [f"Give me a synonym of {w}.", f"What is another word for {w}?", f"Find a synonym for \"{w}\".", f"Name a word like {w}.",
            f"Which word means the same as {w}?"][form]
    return Turn(f"synonym {w} {form}", user, f"Another word for {w} is {word['like'][0]}.")


def opposite(rng, texts):
    word = texts.word(rng, "opposite")
    form = rng.randrange(4)
    w = word["word"]
    user = [f"What is the opposite of {w}?", f"Give me the opposite of {w}.", f"Name an antonym of {w}.", f"What is the contrary of \"{w}\"?"][form]
    return Turn(f"opposite {w} {form}", user, f"The opposite of {w} is {word['opposite'][0]}.")


def prose(rng, texts):
    text = rng.choice(texts.paragraphs)
    parts = text.split(" ")
    cut = rng.randrange(8, max(9, min(40, len(parts) // 2)))
    rest = " ".join(parts[cut:cut + 70])
    for end in (". ", "! ", "? ", ".\" ", "; "):
        at = rest.rfind(end)
        if at > 40:
            rest = rest[:at + len(end) - 1].replace(";", ".") if end == "; " else rest[:at + len(end) - 1]
            break
    user = rng.choice(["Continue: ", "Continue this text: ", "Go on: ", "Write the next sentences: "]) + " ".join(parts[:cut])
    return Turn(f"prose {text[:40]} {cut}", user, rest)


def sums(rng, texts, thinking=False):
    kind = rng.choice("+++--*")
    if kind == "*":
        a, b = rng.randrange(2, 13), rng.randrange(2, 13)
    else:
        high = rng.choice([10, 20, 100, 100])
        a, b = rng.randrange(high), rng.randrange(high)
        if kind == "-" and a < b:
            a, b = b, a
    value = {"+": a + b, "-": a - b, "*": a * b}[kind]
    sign = {"+": "+", "-": "-", "*": "*"}[kind]
    word = {"+": "plus", "-": "minus", "*": "times"}[kind]
    user = rng.choice([f"What is {a} {sign} {b}?", f"{a} {sign} {b}", f"How much is {a} {word} {b}?", f"Calculate {a} {sign} {b}.", f"{a}{sign}{b}=?"])
    thought = ""
    if thinking:
        if kind == "+":
            low = a % 10 + b % 10
            thought = f"Ones: {a % 10} + {b % 10} = {low}. "
            thought += f"Carry 1. Tens: {a // 10} + {b // 10} + 1 = {a // 10 + b // 10 + 1}. " if low > 9 else f"Tens: {a // 10} + {b // 10} = {a // 10 + b // 10}. "
            thought += f"So it is {value}."
        elif kind == "-":
            if a % 10 >= b % 10:
                thought = f"Ones: {a % 10} - {b % 10} = {a % 10 - b % 10}. Tens: {a // 10} - {b // 10} = {a // 10 - b // 10}. So it is {value}."
            else:
                thought = f"Ones: 1{a % 10} - {b % 10} = {a % 10 + 10 - b % 10}. Borrow 1. Tens: {a // 10 - 1} - {b // 10} = {a // 10 - 1 - b // 10}. So it is {value}."
        else:
            steps = ", ".join(str(a * i) for i in range(1, b + 1))
            thought = f"{b} times {a}: {steps}. So it is {value}."
    return Turn(f"sum {a} {kind} {b}", user, f"{a} {sign} {b} = {value}.", thought=thought)


def sums_thinking(rng, texts):
    return sums(rng, texts, thinking=True)


def compare(rng, texts):
    a, b = rng.sample(range(100), 2)
    user, ask = rng.choice([(f"Which is larger, {a} or {b}?", "larger"), (f"Is {a} larger than {b}?", "is"), (f"Which is smaller, {a} or {b}?", "smaller")])
    if ask == "is":
        answer = f"Yes, {a} is larger than {b}." if a > b else f"No, {a} is smaller than {b}."
    else:
        answer = f"{max(a, b) if ask == 'larger' else min(a, b)} is {ask}."
    return Turn(f"compare {a} {b}", user, answer)


def count(rng, texts):
    a = rng.randrange(0, 60)
    b = a + rng.randrange(2, 12)
    down = rng.random() < 0.25
    values = range(b, a - 1, -1) if down else range(a, b + 1)
    user = f"Count down from {b} to {a}." if down else rng.choice([f"Count from {a} to {b}.", f"Write the numbers from {a} to {b}."])
    return Turn(f"count {a} {b} {down}", user, ", ".join(map(str, values)) + ".")


def form(rng, texts):
    name, city, age, job, colour = rng.choice(NAMES), rng.choice(CITIES), rng.randrange(5, 95), rng.choice(JOBS), rng.choice(COLOURS)
    facts = {"name": (name, None), "age": (age, [f"is {age}", f"is {age} years old"]), "city": (city, [f"lives in {city}", f"comes from {city}"]),
             "job": (job, [f"works as a {job}", f"is a {job}"]), "colour": (colour, [f"likes {colour}", f"loves the colour {colour}"])}
    keys = rng.sample(["age", "city", "job", "colour"], rng.randrange(1, 4))
    told = [rng.choice(facts[key][1]) for key in keys]
    sentence = name + " " + (" and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]) + "."
    asked = ["name"] + keys
    listed = ", ".join(asked[:-1]) + " and " + asked[-1]
    user = rng.choice([f"Fill the form as JSON with the keys {listed}: {sentence}", f"Write JSON with the keys {listed}. {sentence}",
                       f"{sentence} Give me this as JSON with {listed}."])
    return Turn(f"form {name} {city} {age} {job} {keys}", user, json.dumps({key: facts[key][0] for key in asked}))


def _tool(name, description, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}, "required": list(properties)}}}


TOOLS = {
    "get_weather": _tool("get_weather", "Weather in a city", city="string"),
    "add": _tool("add", "Add two numbers", a="integer", b="integer"),
    "set_timer": _tool("set_timer", "Set a timer", minutes="integer"),
    "send_note": _tool("send_note", "Send a note to a person", to="string", text="string"),
    "look_up": _tool("look_up", "Look up a word", word="string"),
    "get_time": _tool("get_time", "Time in a city", city="string"),
}


def tool(rng, texts):
    name = rng.choice(list(TOOLS))
    city, who, minutes = rng.choice(CITIES), rng.choice(NAMES), rng.randrange(1, 91)
    if name == "get_weather":
        sky, heat = rng.choice(["sunny", "cloudy", "rainy", "windy", "foggy", "snowy"]), rng.randrange(-9, 36)
        user = rng.choice([f"What is the weather in {city}?", f"How is the weather in {city} today?", f"Is it raining in {city}?"])
        arguments, result, answer = {"city": city}, {"sky": sky, "celsius": heat}, f"It is {sky} in {city}, with {heat} degrees."
    elif name == "add":
        a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
        user = rng.choice([f"What is {a} + {b}?", f"Add {a} and {b}.", f"How much is {a} plus {b}?"])
        arguments, result, answer = {"a": a, "b": b}, {"sum": a + b}, f"{a} + {b} = {a + b}."
    elif name == "set_timer":
        user = rng.choice([f"Set a timer for {minutes} minutes.", f"Wake me in {minutes} minutes.", f"Start a timer of {minutes} minutes, please."])
        arguments, result, answer = {"minutes": minutes}, {"ok": True}, f"The timer is set for {minutes} minutes."
    elif name == "send_note":
        word = texts.word(rng)["word"]
        text = rng.choice(["See you in {c}", "Bring the {w}", "The {w} is here", "Call me from {c}", "I am in {c}"]).format(c=city, w=word)
        user = rng.choice([f"Send {who} a note: {text}", f"Write to {who}: {text}", f"Tell {who} this: {text}"])
        arguments, result, answer = {"to": who, "text": text}, {"sent": True}, f"I sent the note to {who}."
    elif name == "look_up":
        word = rng.choice(texts.words)
        user = rng.choice([f"Look up {word['word']}.", f"Look up the word {word['word']}, please."])
        arguments, result, answer = {"word": word["word"]}, {"meaning": word["gloss"]}, f"{word['word'].capitalize()} means: {word['gloss']}."
    else:
        clock = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
        user = rng.choice([f"What time is it in {city}?", f"Tell me the time in {city}."])
        arguments, result, answer = {"city": city}, {"time": clock}, f"It is {clock} in {city}."
    others = rng.sample([other for other in TOOLS if other != name], rng.randrange(0, 3))
    offered = others + [name]
    rng.shuffle(offered)
    thought = f"I should call {name}." if rng.random() < 0.25 else ""
    return Turn(f"tool {name} {sorted(arguments.items())}", user, answer, thought=thought, tools=[TOOLS[o] for o in offered],
                call=(name, arguments), result=json.dumps(result))


def small_talk(rng, texts):
    users, answers = rng.choice(SMALL_TALK)
    user = rng.choice(users)
    if rng.random() < 0.15:
        user = user.lower().rstrip("!.")
    return Turn(f"talk {rng.random()}", user, rng.choice(answers))


def named(rng, texts):
    name, job = rng.choice(NAMES), rng.choice(JOBS)
    user, answer = rng.choice([("What is your name?", f"My name is {name}."), ("Who are you?", f"I am {name}, a {job}."),
                               ("What do you do?", f"I work as a {job}.")])
    return Turn(f"named {name} {job}", user, answer, system=f"You are {name}, a {job}.")


def listing(rng, texts):
    kind = rng.choice(list(CATEGORIES))
    size = rng.randrange(2, 6)
    items = CATEGORIES[kind]
    size = min(size, len(items))
    chosen = items[:size] if kind in ("months", "days of the week", "seasons", "planets") else rng.sample(items, size)
    word = {2: "two", 3: "three", 4: "four", 5: "five"}[size]
    user = rng.choice([f"Name {word} {kind}.", f"List {word} {kind}.", f"Give me a list of {word} {kind}.", f"Can you name {size} {kind}?"])
    return Turn(f"list {kind} {chosen}", user, "\n".join("- " + item for item in chosen))


def member(rng, texts):
    kind = rng.choice([k for k in CATEGORIES if k.endswith("s")])
    item = rng.choice(CATEGORIES[kind])
    singular = {"cities": "city", "countries": "country", "days of the week": "day of the week", "clothes": "piece of clothing"}.get(kind, kind[:-1])
    article = "an" if singular[0] in "aeiou" else "a"
    return Turn(f"member {kind} {item} {rng.randrange(20)}", rng.choice([f"What kind of thing is {item}?", f"What is {item}?"]), f"{item[0].upper() + item[1:]} is {article} {singular}.")


def fact(rng, texts):
    which = rng.randrange(5)
    if which == 0:
        country, city = rng.choice(list(CAPITALS.items()))
        user, answer = rng.choice([f"What is the capital of {country}?", f"Name the capital of {country}."]), f"The capital of {country} is {city}."
    elif which == 1:
        animal, sound = rng.choice(list(SOUNDS.items()))
        user, answer = rng.choice([f"What sound does a {animal} make?", f"What does a {animal} do?"]), f"A {animal} {sound}."
    elif which == 2:
        thing, hue = rng.choice(list(HUES.items()))
        user, answer = rng.choice([f"What colour is {thing}?", f"Which colour does {thing} have?"]), f"{thing.capitalize()} is {hue}."
    else:
        kind = rng.choice(["months", "days of the week"])
        items = CATEGORIES[kind]
        i = rng.randrange(len(items))
        if rng.random() < 0.5:
            user, answer = f"What comes after {items[i]}?", f"After {items[i]} comes {items[(i + 1) % len(items)]}."
        else:
            user, answer = f"What comes before {items[i]}?", f"Before {items[i]} comes {items[i - 1]}."
    return Turn(f"fact {user}{rng.randrange(20)}", user, answer)


def repeat(rng, texts):
    which = rng.randrange(4)
    if which == 0:
        words = rng.choice(texts.paragraphs).split()
        at = rng.randrange(max(1, len(words) - 10))
        phrase = " ".join(words[at:at + rng.randrange(2, 10)])
    elif which == 1:
        phrase = " ".join(texts.word(rng)["word"] for _ in range(rng.randrange(1, 7)))
    elif which == 2:
        phrase = f"the {rng.choice(COLOURS)} {rng.choice(STORY_THINGS)} of {rng.choice(NAMES)} is {rng.choice(STORY_SPOTS)}"
    else:
        phrase = "".join(str(rng.randrange(10)) for _ in range(rng.randrange(2, 9)))
    user = rng.choice(["Repeat after me: {}", "Repeat: {}", "Say this: {}", "Repeat the words: {}"]).format(phrase)
    return Turn(f"repeat {phrase}", user, phrase)


def story(rng, texts):
    names = rng.sample(NAMES, 1)[0]
    hero, friend = rng.sample(STORY_HEROES, 2)
    slots = {"name": names, "hero": hero, "friend": friend, "adj": rng.choice(STORY_ADJECTIVES), "place": rng.choice(STORY_PLACES),
             "thing": rng.choice(STORY_THINGS), "spot": rng.choice(STORY_SPOTS)}
    lines = [rng.choice(STORY_OPENINGS), *rng.choice(STORY_PROBLEMS), rng.choice(STORY_ENDINGS)]
    text = " ".join(line.format(**slots) for line in lines).replace("A old", "An old").replace("a old", "an old")
    about = rng.random()
    user = rng.choice([f"Tell me a short story about a {hero}.", f"Tell me a story about a {hero}.", f"Write a short story about a {hero}."]) if about < 0.6 else (
        f"Tell me a story about {names} the {hero}." if about < 0.8 else rng.choice(["Tell me a story.", "Tell me a short story."]))
    return Turn(f"story {slots}", user, text)


def saying(rng, texts):
    text = rng.choice(texts.sayings)
    return Turn(f"saying {text}", rng.choice(["Tell me my fortune.", "Give me a saying.", "Tell me a proverb.", "Say something wise."]), text)


def too_hard(rng, texts):
    city, other = rng.sample(CITIES, 2)
    slots = {"c": city, "c2": other, "n": rng.choice(NAMES), "x": "the " + rng.choice(texts.words)["word"], "d": rng.randrange(10)}
    user = rng.choice(TOO_HARD).format(**slots)
    return Turn(f"hard {user}", user, rng.choice(TOO_HARD_ANSWERS))


# (task, weight in the mix, how the score is judged)
TASKS = [(define, 18, "exact"), (synonym, 7, "exact"), (opposite, 4, "exact"), (prose, 8, ""), (sums, 9, "exact"), (sums_thinking, 7, "exact"),
         (compare, 3, "exact"), (count, 3, "exact"), (form, 8, "json"), (tool, 12, "call"), (small_talk, 6, ""), (named, 2, "exact"),
         (listing, 5, "list"), (member, 2, "exact"), (fact, 4, "exact"), (repeat, 7, "exact"), (story, 6, ""), (saying, 1, ""), (too_hard, 2, "")]


THOUGHTS = {"define": "I should give the meaning of the word.", "synonym": "I need a word that means the same.", "opposite": "I need a word that means the contrary.",
            "prose": "I should go on in the same style.", "compare": "I compare the two numbers.", "count": "I write one number after the other.",
            "form": "I take the values from the sentence.", "small_talk": "I should answer politely.", "named": "The system message says who I am.",
            "listing": "I should make a short list.", "member": "I should say what kind of thing it is.", "fact": "I should know this.",
            "repeat": "I should repeat the same words.", "story": "I should tell a short story.", "saying": "I should choose a saying.",
            "too_hard": "I do not know this."}


def loosen(rng, task, user: str) -> str:
    """The way people type: small letters, no full stop, a word before the question."""
    if task in (prose, form, tool, repeat):
        return user
    if rng.random() < 0.15:
        user = user[0].lower() + user[1:]
    if rng.random() < 0.15:
        user = user.rstrip(".?!")
    if task is not small_talk and rng.random() < 0.06:
        user = rng.choice(OPENERS) + user
    return user if rng.random() > 0.04 else user.rstrip(".?!") + rng.choice([", please.", " please", "??", "!"])


def messages_of(turn: Turn) -> list[dict]:
    """The turn as chat messages, the system message apart."""
    result = [{"role": "user", "content": turn.user}]
    if turn.call:
        name, arguments = turn.call
        result.append({"role": "assistant", "content": "", "reasoning_content": turn.thought,
                       "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]})
        result.append({"role": "tool", "content": turn.result})
        result.append({"role": "assistant", "content": turn.answer, "reasoning_content": ""})
    else:
        result.append({"role": "assistant", "content": turn.answer, "reasoning_content": turn.thought})
    return result


def conversation(rng, texts, held_out: bool = False) -> tuple[list[dict], list]:
    """One to five turns of mixed tasks; with tools or a system message where a turn needs them."""
    turns = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4, 5])):
        task = rng.choices([t for t, _, _ in TASKS], [w for _, w, _ in TASKS])[0]
        while True:
            turn = task(rng, texts)
            if turn.held_out() == held_out:
                break
            if held_out and task in (small_talk,):
                break
        if turn.system and turns:
            continue
        if turn.tools and any(t.tools or t.system for t in turns):
            continue
        turn.user = loosen(rng, task, turn.user)
        if not turn.thought and not turn.call and rng.random() < 0.15:
            turn.thought = THOUGHTS.get(task.__name__, "")
        turns.append(turn)
    tools = next((t.tools for t in turns if t.tools), [])
    system = next((t.system for t in turns if t.system), "")
    if not system and rng.random() < 0.12:
        system = rng.choice(["You are a helpful assistant.", "You are Tandem tiny.", "Answer briefly.", "Be kind and short.", "You are helpful."])
    if not tools and rng.random() < 0.03:
        tools = rng.sample(list(TOOLS.values()), rng.randrange(1, 3))
        turns = [t for t in turns if t.key.startswith(("define", "talk", "repeat", "list", "story", "fact"))] or [small_talk(rng, texts)]
    messages = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        messages += messages_of(turn)
    return messages, tools
