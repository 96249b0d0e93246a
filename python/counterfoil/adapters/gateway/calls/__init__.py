"""One call that runs upstream, apart from the connection that asked for it, and how it ends.

`answering` starts it; `adoption` and `keyed` run it their own way.
"""
