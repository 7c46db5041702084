"""How fast the tool is, beside what the same bytes cost others. See README.md."""
