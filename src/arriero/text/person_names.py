"""Names of operators and programs that sign what they do: which ones are refused, and which ones count as one operator.

A name that holds a character nobody sees, or letters of two scripts, is refused where it comes in. Names from before that rule,
and names that are written in another script as a whole, are compared by their skeletons (Unicode Technical Standard 39).
"""

import unicodedata

from ..errors import InvalidInput
from ..payloads.codec import check_id

# Drawn as nothing or as empty space, although their category is that of a letter or a mark: fillers, joiners, selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
# Control, format, surrogate, private and unassigned characters; separators of lines and paragraphs.
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Scripts that Unicode Standard Annex 31 recommends for identifiers, by the first word of their characters' names. All others are
# hardly used for names of today, and hold many letters that look like Latin ones.
# fmt: off
_SCRIPTS = frozenset((
    "ARABIC", "ARMENIAN", "BENGALI", "BOPOMOFO", "CJK", "CYRILLIC", "DEVANAGARI", "ETHIOPIC", "GEORGIAN",
    "GREEK", "GUJARATI", "GURMUKHI", "HANGUL", "HEBREW", "HIRAGANA", "KANNADA", "KATAKANA", "KHMER", "LAO",
    "LATIN", "MALAYALAM", "MYANMAR", "ORIYA", "SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN",
))
# fmt: on
# Letters whose names begin with another word than their script: the iteration mark in Sasaki, the sound marks of narrow Katakana.
_SCRIPT_OF_WORD = {"IDEOGRAPHIC": "CJK", "COMBINING": "KATAKANA"}
# Scripts that operators write within one name. Latin letters may stand in each of them: none looks like a letter of these.
_WRITTEN_TOGETHER = tuple(
    frozenset(scripts.split()) for scripts in ("LATIN CJK HIRAGANA KATAKANA", "LATIN CJK BOPOMOFO", "LATIN CJK HANGUL")
)
# Letters and digits of these scripts that look like a Latin letter or a digit, from the table of confusable characters of
# Unicode. I, l and 1 are one here, and O and 0.
_LOOKS_LIKE = {
    "2": "\u01a7\ua644\ua75a",
    "3": "\u01b7\u021c\u0417\u04e0\ua76a\ua7ab",
    "5": "\u01bc",
    "6": "\u0431",
    "8": "\u0222\u0223\u09ea\u0a6a",
    "9": "\u09ed\u0a67\u0b68\u0d6d\ua76e",
    "A": "\u0391\u0410",
    "B": "\u0392\u0412\ua7b4",
    "C": "\u0421",
    "E": "\u0395\u0415",
    "F": "\u03dc\ua798",
    "G": "\u050c",
    "H": "\u0397\u041d",
    "J": "\u037f\u0408\ua7b2",
    "K": "\u039a\u041a",
    "M": "\u039c\u03fa\u041c",
    "N": "\u039d",
    "O": "\u039f\u041e\u0555\u09e6\u0b20\u0b66\u12d0",
    "P": "\u03a1\u0420",
    "R": "\u01a6",
    "S": "\u0405\u054f",
    "T": "\u03a4\u0422",
    "U": "\u054d\u1200",
    "V": "\u0474\u06f7",
    "W": "\u051c",
    "X": "\u03a7\u0425\ua7b3",
    "Y": "\u03a5\u0423\u04ae",
    "Z": "\u0396",
    "a": "\u0251\u03b1\u0430",
    "b": "\u0184\u042c",
    "c": "\u0441\u1d04",
    "d": "\u0501",
    "e": "\u0435\u04bd\uab32",
    "f": "\u0584\u1e9d\ua799\uab35",
    "g": "\u018d\u0261\u0581\u1d83",
    "h": "\u04bb\u0570",
    "i": "\u0131\u0269\u026a\u03b9\u0456\u04cf\ua647",
    "j": "\u03f3\u0458",
    "l": "1I\u0196\u01c0\u0399\u0406\u04c0\u06f1",
    "n": "\u0578\u057c",
    "o": (
        "\u03bf\u03c3\u043e\u0585\u06f5\u0966\u0a66\u0ae6\u0be6\u0c66\u0ce6\u0d20\u0d66\u0e50\u0ed0\u101d"
        "\u1040\u10ff\u1d0f\u1d11\uab3d"
    ),
    "p": "\u03c1\u0440",
    "q": "\u051b\u0563\u0566",
    "r": "\u0433\u1d26\uab47\uab48",
    "s": "\u01bd\u0455\ua731",
    "u": "\u028b\u03c5\u057d\u1d1c\ua79f\uab4e\uab52",
    "v": "\u03bd\u0475\u1d20",
    "w": "\u026f\u0461\u051d\u0561\u1d21",
    "x": "\u0445",
    "y": "\u0263\u028f\u03b3\u0443\u04af\u10e7\u1d8c\u1eff\uab5a",
    "z": "\u1d22",
}
_TO_LATIN = str.maketrans({letter: latin for latin, letters in _LOOKS_LIKE.items() for letter in letters} | {"0": "O"})


def check_person(value: object, what: str) -> str:
    """Check the name of who signs: an id that operators can distinguish from every other one by looking at it. Raises InvalidInput."""
    name = check_id(value, what)
    if name.isascii():  # and without control characters: one script, all of it seen
        return name
    for character in name:
        if _is_unseen(character) or (character.isspace() and character != " "):
            raise InvalidInput(
                f"{what} {name!a} holds the character {_describe(character)}, which cannot be seen: write the name without it"
            )
    _refuse_mixed_scripts(name, what)
    return name


def list_skeletons(name: str) -> frozenset[str]:
    """List what operators may read a name as. Two names that share a skeleton are one operator.

    There are two skeletons, because capital and small letters look like different ones: the capital of the Cyrillic letter ve
    looks like B, the small one does not look like b.
    """
    shown = unicodedata.normalize("NFKD", name)
    seen = "".join(_simplify(one) for one in shown if one.isspace() or not _is_unseen(one))
    plain = " ".join(seen.split())
    return frozenset(_fold(text) for text in (plain, plain.translate(_TO_LATIN)))


def _simplify(character: str) -> str:
    """Simplify signs: there are many dashes, dots and apostrophes, and nobody distinguishes them."""
    is_sign = unicodedata.category(character)[0] in "PS" or _is_modifier(character)
    return "-" if is_sign else character


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text.casefold())
    return folded.replace("i\u0307", "i").replace("j\u0307", "j")  # both have a dot already


def _is_unseen(character: str) -> bool:
    return character in _UNSEEN or unicodedata.category(character) in _UNSEEN_CATEGORIES


def _is_modifier(character: str) -> bool:
    """Return whether a letter is written like a sign, as the okina of Hawaiian."""
    return unicodedata.name(character, "").startswith("MODIFIER ")


def _describe(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def _refuse_mixed_scripts(name: str, what: str) -> None:
    """Refuse letters of two scripts, or of one that is hardly used. Raises InvalidInput."""
    first: dict[str, str] = {}  # a letter of each script
    for character in name:
        if character.isalpha() and not _is_modifier(character):
            first.setdefault(_find_script(character), character)
    for script, character in first.items():
        if script not in _SCRIPTS:
            raise InvalidInput(
                f"{what} {name!a} holds the letter {_describe(character)}, which looks like one of a usual script: write the name in"
                " letters of one usual script, like Latin"
            )
    if len(first) > 1 and not any(first.keys() <= together for together in _WRITTEN_TOGETHER):
        letters = " and ".join(map(_describe, first.values()))
        raise InvalidInput(
            f"{what} {name!a} mixes letters of {len(first)} scripts, {letters}: write the name in letters of one script"
        )


def _find_script(letter: str) -> str:
    """Find the script of a letter by what it stands for: a wide or a raised A is a Latin letter."""
    plain = unicodedata.normalize("NFKD", letter)[:1]
    word = unicodedata.name(plain, "").partition(" ")[0].partition("-")[0]
    return _SCRIPT_OF_WORD.get(word, word)
