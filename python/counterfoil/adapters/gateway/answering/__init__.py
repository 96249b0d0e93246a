"""Which way a request is answered, and each of these ways: a call, an `initialize`, a note, a GET, a DELETE.

`application` calls `answering`, which decides; a way knows nothing of the others.
"""
