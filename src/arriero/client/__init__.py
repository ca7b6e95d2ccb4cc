"""The API that users call: App, handles of tasks and convoys, ledgers, replies. No rule lives here."""
