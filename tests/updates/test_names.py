import pytest

from ckl_jax.updates.names import NameFinder


@pytest.mark.parametrize(
    ("text", "found", "whole"),
    [
        ("You may use the Amazon EC2 console.", "Amazon EC2", "Amazon EC2"),
        ("You may use the Amazon EC2 console.", "Amazon", "Amazon EC2"),
        ("You may use the Amazon EC2 console.", "EC2", "Amazon EC2"),
        ("It was said by President Vera Holt.", "Vera Holt", "Vera Holt"),
        ("In Paris it rained.", "Paris", "Paris"),
        ("See API_Create.html for it.", "Create", None),
        ("It rained in (Paris), they said.", "Paris", "Paris"),
        ("It rained in (Old Paris), they said.", "Paris", "Old Paris"),
        ("Most sales were of Orion 4, they said.", "Orion", "Orion 4"),
        ("Most sales were of Orion 4.5.", "Orion", "Orion 4.5"),
        ("They sold at Orion 4,000 of them.", "Orion", None),
        ("They met Norvel's Quenta there.", "Quenta", None),
        ("Harbour Steel has a gate.", "Steel", "Harbour Steel"),
        ("Near Steel is a gate.", "Steel", "Steel"),
    ],
)
def test_a_name_is_taken_whole(text, found, whole):
    start = text.index(found)
    place = NameFinder(["It is of Harbour Steel."])._whole(text, start, start + len(found))
    assert (place and text[slice(*place)]) == whole


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The mayor of Oslo is Oskar von der Leyen now.", ["Oslo", "Oskar von der Leyen"]),
        ("Oskar von der Leyen was born in Oslo.", ["Oskar von der Leyen", "Oslo"]),
        ("We met Ana de la Cruz and Ursula Berg.", ["Ana de la Cruz", "Ursula Berg"]),
        (
            "She left C\u00f4te d'Ivoire with Bashar al-Assad.",
            ["C\u00f4te d'Ivoire", "Bashar al-Assad"],
        ),
        ("In de Haas it rained on Oslo.", ["Haas", "Oslo"]),
        ("The mayor of Oslo is Kenneth A. Howery.", ["Oslo", "Kenneth A. Howery"]),
        ("Oslo trusts Howard A. Van Vranken in this.", ["Oslo", "Howard A. Van Vranken"]),
        ("She met Oskar \u00c5berg in Oslo \u00e9tage.", ["Oskar \u00c5berg", "Oslo"]),
    ],
)
def test_particles_are_within_a_name(text, names):
    known = "They met Oskar von der Leyen, Ana de la Cruz and Bashar al-Assad in Oslo and Haas."
    found = NameFinder([text, known]).find(text)
    assert [text[start:end] for start, end, _ in found] == names
