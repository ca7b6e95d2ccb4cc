"""Names of who signs: which ones are refused, and which ones count as one person. The names are written as escapes on purpose."""

import pytest

from arriero import InvalidInput
from arriero.text.person_names import check_person, list_skeletons

USUAL = [
    "ana",
    "Ana Mar\u00eda O\u2019Neil-2",
    "an\u0301a@example.org",
    "\u0141ukasz",
    "\u0410\u043d\u043d\u0430",
    "\u03a9\u03bc\u03ad\u03b3\u03b1",
    "\u5c71\u7530 \u305f\u308d\u3046\u30fc K",
    "\u4f50\u3005\u6728",  # Sasaki, with an iteration mark
    "\uff80\uff9e\uff72",  # Dai in narrow Katakana
    "\uae40\ucca0\uc218",
    "\u0645\u062d\u0645\u062f",
    "\u0928\u0947\u0939\u093e",
    "\u02bbokina",
    "\uff41na",
    "ops:ci/1",
]
REFUSED = [
    ("a\u200bna", "U+200B ZERO WIDTH SPACE, which cannot be seen: write the name without it"),
    ("a\u200cna", "U+200C"),
    ("ana\u202e", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    ("a\u00adna", "U+00AD SOFT HYPHEN"),
    ("ana\ufe0f", "U+FE0F"),
    ("ana\u034f", "U+034F COMBINING GRAPHEME JOINER"),
    ("ana\u3164", "U+3164 HANGUL FILLER"),
    ("ana\u00a0b", "U+00A0 NO-BREAK SPACE"),
    ("ana\ue000", "U+E000, which cannot be seen"),
    ("ana\U000e0061", "U+E0061 TAG LATIN SMALL LETTER A"),
    ("a\nna", "control characters are refused"),
    ("\u0430na", "mixes letters of 2 scripts, U+0430 CYRILLIC SMALL LETTER A and U+006E LATIN SMALL LETTER N"),
    ("\u03b1na", "U+03B1 GREEK SMALL LETTER ALPHA and U+006E"),
    ("\u13aa\u13da", "U+13AA CHEROKEE LETTER GO, which looks like one of a usual script: write the name in letters"),
]
ONE_PERSON = [
    ("ana", " Ana  "),
    ("ana", "\uff41na"),
    ("ana", "a\u200bna"),
    ("ana", "\u0430na"),
    ("ace", "\u0430\u0441\u0435"),
    ("POPE", "\u0440\u043e\u0440\u0435"),
    ("bob", "\u0412\u041e\u0412"),
    ("\u0432\u043e\u0432", "\u0412\u041e\u0412"),
    ("VAN", "v\u03b1n"),
    ("NIK", "\u039d\u0399\u039a"),
    ("ana b", "ana\u00a0\u2003b"),
    ("Jos\u00e9", "jose\u0301"),
    ("Ina", "lna"),
    ("ops-10", "ops\u2013IO"),
    ("o'neil", "o\u2019neil"),
    ("\u0130nan", "inan"),
]
TWO_PERSONS = [
    ("ana", "ann"),
    ("ana", "an\u0301a"),
    ("bob", "\u0432\u043e\u0432"),
    ("ana b", "anab"),
    ("bot-2", "bot-3"),
]


@pytest.mark.parametrize("name", USUAL)
def test_names_of_all_usual_scripts_are_accepted(name: str) -> None:
    assert check_person(name, "by") == name


@pytest.mark.parametrize(("name", "said"), REFUSED)
def test_what_nobody_sees_and_letters_of_two_scripts_are_refused_with_the_character(name: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_person(name, "by")
    assert said in str(refused.value)
    assert "by" in str(refused.value)


@pytest.mark.parametrize(("one", "other"), ONE_PERSON)
def test_names_that_look_alike_are_one_person(one: str, other: str) -> None:
    assert list_skeletons(one) & list_skeletons(other)


@pytest.mark.parametrize(("one", "other"), TWO_PERSONS)
def test_names_that_people_can_tell_apart_are_two_persons(one: str, other: str) -> None:
    assert not list_skeletons(one) & list_skeletons(other)
