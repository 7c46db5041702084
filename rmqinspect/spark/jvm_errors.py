"""Messages of the JVM, in one line."""


def first_line(error: Exception) -> str:
    """Return the first line of a JVM error, without its stack trace."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java)
    return text.strip().partition("\n")[0]
