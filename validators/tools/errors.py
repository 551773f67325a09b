"""What a parser raises."""


class ParseError(ValueError):
    """The text is not this tool's output. The message says what was looked for; it never quotes more than a line."""
