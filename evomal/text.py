"""Text for people."""


def cut(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis where it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
