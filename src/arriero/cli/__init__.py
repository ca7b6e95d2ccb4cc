"""The command line: parse, call, show. No rule lives here."""
