"""What the JVM says, in one line."""


def first_line(error: Exception) -> str:
    """Return what an error of the JVM says, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java)
    return text.strip().partition("\n")[0]
