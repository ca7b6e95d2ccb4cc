"""Operations of operators and programs, each declared once: its command and its route of the HTTP API are built from the declaration."""
