"""The state store in PostgreSQL: many processes, many hosts."""
