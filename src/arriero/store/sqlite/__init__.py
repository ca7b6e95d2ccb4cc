"""The state store in a file of SQLite, for one machine."""
