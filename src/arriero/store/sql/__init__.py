"""Statements of the same names on SQLite and PostgreSQL, executed and read by the same code."""
