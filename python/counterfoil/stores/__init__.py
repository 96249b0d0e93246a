"""Where histories and ledgers are kept: memory, SQLite."""
