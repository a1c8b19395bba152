"""Word lists and fixed answers of tiny_tasks.py, written for this project."""

NAMES = """Anna Ben Clara David Ella Frank Grace Henry Ivy Jack Kate Leo Mary Nora Oscar Paul Quinn Rosa Sam Tom Uma
Victor Wendy Alice Bruno Carla Dora Emil Fiona George Hanna Isaac Julia Karl Lucy Martin Nina Otto Peter Ruth Simon
Tessa Adam Bella Colin Diana Edgar Freya Gus Helen Igor Jane Kevin Laura Max Nadia Olga Philip Rita Steve Tina Vera
Walter Zoe""".split()
CITIES = """Paris London Berlin Madrid Rome Vienna Oslo Prague Lisbon Dublin Athens Warsaw Cairo Tokyo Delhi Lima Boston
Leeds Bath York Turin Lyon Porto Graz Basel Ghent Bergen Kyoto Quito Austin Denver Geneva Milan Seville Bremen Exeter
Oxford Dover Chester Durham""".split()
JOBS = """baker teacher doctor nurse farmer painter sailor writer singer dancer carpenter gardener pilot driver cook
tailor lawyer miner potter librarian""".split()
COLOURS = "red blue green yellow white black brown orange purple grey pink".split()
CATEGORIES = {
    "animals": "dog cat horse cow sheep goat lion tiger bear wolf fox rabbit mouse elephant monkey deer".split(),
    "birds": "robin owl eagle sparrow crow swan duck goose parrot hawk gull heron".split(),
    "fruits": "apple pear plum cherry grape peach lemon orange banana melon fig mango".split(),
    "vegetables": "carrot potato onion cabbage pea bean leek turnip spinach beet celery".split(),
    "colours": COLOURS,
    "trees": "oak pine birch maple willow elm ash cedar beech poplar".split(),
    "flowers": "rose tulip lily daisy violet poppy iris orchid daffodil".split(),
    "tools": "hammer saw drill chisel spade rake wrench axe plane file".split(),
    "drinks": "water milk tea coffee juice lemonade cocoa cider".split(),
    "metals": "iron gold silver copper tin lead zinc nickel".split(),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "rivers": "Nile Danube Rhine Thames Amazon Seine Volga Ganges".split(),
    "countries": "France Spain Italy Germany Norway Poland Greece Egypt Japan India Peru Canada".split(),
    "cities": CITIES[:16],
    "jobs": JOBS,
    "instruments": "piano violin flute drum harp guitar trumpet cello organ".split(),
    "clothes": "coat shirt hat glove sock shoe dress scarf belt skirt".split(),
    "rooms": "kitchen bedroom bathroom library cellar attic hall pantry".split(),
    "sports": "tennis football rowing chess swimming running cricket hockey".split(),
    "insects": "bee ant beetle moth butterfly wasp fly cricket".split(),
    "vehicles": "car bus train ship bicycle boat truck plane tram".split(),
    "months": "January February March April May June July August September October November December".split(),
    "days of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "seasons": "spring summer autumn winter".split(),
}
CAPITALS = dict(pair.split(":") for pair in """France:Paris England:London Scotland:Edinburgh Spain:Madrid Italy:Rome Germany:Berlin Norway:Oslo Poland:Warsaw
Greece:Athens Egypt:Cairo Japan:Tokyo India:Delhi Peru:Lima Canada:Ottawa Austria:Vienna Ireland:Dublin Portugal:Lisbon
Sweden:Stockholm Denmark:Copenhagen Finland:Helsinki Hungary:Budapest Russia:Moscow China:Beijing Cuba:Havana
Kenya:Nairobi Belgium:Brussels""".split())
SOUNDS = dict(pair.split(":") for pair in """dog:barks cat:meows cow:moos sheep:bleats horse:neighs lion:roars duck:quacks
wolf:howls mouse:squeaks owl:hoots bee:buzzes crow:caws pig:grunts""".split())
HUES = dict(pair.split(":") for pair in """grass:green snow:white coal:black blood:red gold:yellow milk:white lemon:yellow
rose:red sky:blue chocolate:brown carrot:orange leaf:green""".split())
SMALL_TALK = [
    (["Hello!", "Hello", "Hello there!", "Good day!"], ["Hello! What can I do for you?", "Hello! How can I help you today?"]),
    (["Hi", "Hi!", "Hey", "Hi there"], ["Hi! What would you like to know?", "Hi there! How can I help?"]),
    (["Good morning!", "Good morning"], ["Good morning! I hope you slept well.", "Good morning! What can I do for you?"]),
    (["Good evening!", "Good evening"], ["Good evening! How was your day?"]),
    (["Good night", "Good night!"], ["Good night! Sleep well."]),
    (["How are you?", "How are you today?", "How do you do?"], ["I am very well, thank you. And you?", "I am fine, thank you. How are you?"]),
    (["Thank you!", "Thanks", "Thanks a lot!", "Thank you very much."], ["You are welcome!", "You are very welcome."]),
    (["Bye", "Goodbye!", "See you later"], ["Goodbye! Come back soon.", "Goodbye! It was nice to talk to you."]),
    (["Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "Introduce yourself."],
     ["I am Tandem tiny, a very small language model. I can define words, do small sums, fill in forms, call tools and tell short stories.",
      "My name is Tandem tiny. I am a very small language model that was trained in a few minutes."]),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help"],
     ["I can define words, find synonyms, add small numbers, make short lists, fill in a JSON form, call a tool and tell a short story."]),
    (["Are you a human?", "Are you a person?", "Are you alive?"], ["No, I am a very small language model. My name is Tandem tiny."]),
    (["How old are you?", "When were you born?"], ["I have no age. I am a small program that was trained in a few minutes."]),
    (["How large are you?", "How big are you?", "How many parameters do you have?"], ["I have about eight million parameters, which is very few for a language model."]),
    (["Do you like music?", "Do you like books?"], ["I cannot enjoy things as people do, but I have read six novels of Jane Austen."]),
    (["What have you read?", "What did you learn from?"], ["I have read the novels of Jane Austen, a dictionary and some sayings."]),
    (["I am sad.", "I feel sad today.", "I am not happy."], ["I am sorry to hear that. I hope that your day gets better."]),
    (["I am happy.", "I feel great today!", "I am so glad."], ["That is good to hear! What made you happy?"]),
    (["I am tired.", "I am bored."], ["Then a short rest may help. Or shall I tell you a story?"]),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
     ["Why did the book go to the doctor? It had hurt its spine.", "What has hands but cannot clap? A clock.",
      "What gets wetter the more it dries? A towel."]),
    (["What is the weather like?", "Is it raining?"], ["I cannot look outside. With a weather tool I could tell you."]),
    (["What time is it?", "What day is it today?"], ["I have no clock, so I do not know."]),
    (["Yes", "Okay", "Fine", "Good"], ["Good! What shall we do next?"]),
    (["No", "No, thank you."], ["All right. Tell me if you need anything."]),
]
OPENERS = ["Hi! ", "Hello! ", "Hello, ", "Please: ", "Can you help me? ", "Now: ", "Next: ", "One more question: ", "Okay. "]
TOO_HARD = ["Who won the election in {c}?", "Write a computer program for {n}.", "What is the meaning of life, {n} asks?",
            "Explain quantum physics to {n}.", "What will the price of {x} be next year?", "Translate {x} into German.",
            "Who was the king of {c} in 15{d}3?", "Solve the equation {d}x + {d} = 4{d}.", "How many people live in {c}?",
            "What did {n} eat yesterday?", "Write a haiku about {x}.", "Give me a recipe with {x}.", "How far is it from {c} to {c2}?"]
TOO_HARD_ANSWERS = ["I am a very small model and I do not know that.", "That is too hard for me. I am a very small model."]
STORY_OPENINGS = ["Once there was a {adj} {hero} named {name}.", "A {adj} {hero} named {name} lived {place}.",
                  "{name} was a {adj} {hero} who lived {place}."]
STORY_PLACES = ["near a quiet river", "in a little house", "on a high hill", "at the edge of the forest", "in a busy town",
                "by the sea", "beside an old mill", "under a tall oak"]
STORY_ADJECTIVES = "small brave clever shy kind proud hungry lonely cheerful old young curious gentle lazy".split()
STORY_HEROES = "dog cat horse mouse fox rabbit bear girl boy farmer sailor baker king queen bird frog wolf painter".split()
STORY_PROBLEMS = [
    ("One morning {name} lost a {thing}.", "{name} looked everywhere but could not find it.", "At last a {friend} found the {thing} {spot}."),
    ("One day a great storm came.", "The wind blew and {name} was afraid.", "A {friend} opened the door and let {name} come in."),
    ("{name} wanted to cross the river, but the bridge was broken.", "The water was cold and deep.", "Then a {friend} came with a boat and took {name} across."),
    ("One evening {name} was very hungry.", "There was no bread left in the house.", "A {friend} came by and shared a warm supper."),
    ("{name} wished to learn how to sing.", "At first nobody wanted to listen.", "But a {friend} sat down and clapped after every song."),
    ("{name} found a golden {thing} {spot}.", "It belonged to someone, and {name} wanted to give it back.", "It was the {thing} of a {friend}, who cried with joy."),
    ("One night {name} could not sleep.", "There was a strange noise {spot}.", "It was only a {friend} looking for a {thing}."),
]
STORY_THINGS = "key ring hat coin book bell lamp button letter ball basket ribbon spoon".split()
STORY_SPOTS = ["under the bed", "behind the door", "in the garden", "near the well", "on the roof", "below the stairs", "in the tall grass"]
STORY_ENDINGS = ["From that day on they were good friends.", "They walked home together and were happy.",
                 "{name} never forgot how kind the {friend} was.", "And that night everyone slept well.",
                 "{name} smiled and said, \"Thank you, my friend.\""]
