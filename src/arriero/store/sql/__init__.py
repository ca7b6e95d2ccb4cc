"""Rows inside one transaction, by family; over statements of the same names where SQLite and PostgreSQL do the same."""
