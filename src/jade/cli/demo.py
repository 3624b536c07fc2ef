"""`jade demo`: a made-up country, its index, three questions."""


def command() -> None:
    """Make a small world, index it and ask the team three questions."""
