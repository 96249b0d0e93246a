"""The replay store of one process: its synchronous face, readers, wake-ups and counters."""
