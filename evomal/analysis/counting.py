"""Numbers of things, in words."""


def counted(number: int, noun: str) -> str:
    """The number with the noun, in the plural where it takes one."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
