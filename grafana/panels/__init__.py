"""The panels, one file an area; each entry is one question with its queries."""
