"""Relations in words: how a triple's subject and relation are asked for."""

from __future__ import annotations

QUESTIONS = {
    "author": "Who is the author of {s}?",
    "award received": "Which award did {s} receive?",
    "capital": "What is the capital of {s}?",
    "capital of": "What is {s} the capital of?",
    "cast member": "Who is a cast member of {s}?",
    "cause of death": "What was the cause of death of {s}?",
    "child": "Who is the child of {s}?",
    "composer": "Who is the composer of {s}?",
    "country": "In which country is {s}?",
    "country of citizenship": "What is the nationality of {s}?",
    "country of origin": "Which country is {s} from?",
    "creator": "Who created {s}?",
    "date of birth": "When was {s} born?",
    "date of death": "When did {s} die?",
    "director": "Who is the director of {s}?",
    "educated at": "Where was {s} educated?",
    "employer": "Who is the employer of {s}?",
    "father": "Who is the father of {s}?",
    "founded by": "Who founded {s}?",
    "headquarters location": "Where is the headquarters of {s}?",
    "inception": "When was {s} founded?",
    "licensed to broadcast to": "Which place is {s} licensed to broadcast to?",
    "located in the administrative territorial entity": "In which administrative territorial entity is {s} located?",
    "located on terrain feature": "On which terrain feature is {s} located?",
    "location of formation": "Where was {s} formed?",
    "manufacturer": "Who is the manufacturer of {s}?",
    "member of": "What is {s} a member of?",
    "member of political party": "Which political party is {s} a member of?",
    "member of sports team": "Which sports team is {s} a member of?",
    "mother": "Who is the mother of {s}?",
    "named after": "What is {s} named after?",
    "operator": "Who is the operator of {s}?",
    "owned by": "Who owns {s}?",
    "part of": "What is {s} part of?",
    "participant in": "In what did {s} participate?",
    "performer": "Who is the performer of {s}?",
    "place of birth": "Where was {s} born?",
    "place of burial": "Where is {s} buried?",
    "place of death": "Where did {s} die?",
    "producer": "Who is the producer of {s}?",
    "publication date": "When was {s} published?",
    "publisher": "Who is the publisher of {s}?",
    "shares border with": "What shares a border with {s}?",
    "sibling": "Who is the sibling of {s}?",
    "spouse": "Who is the spouse of {s}?",
}


def ask(subject: str, relation: str) -> str:
    """The question that a relation answers about a subject."""
    return QUESTIONS.get(relation, f"What is the {relation} of {{s}}?").format(s=subject)
