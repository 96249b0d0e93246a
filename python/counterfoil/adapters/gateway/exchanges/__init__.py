"""One request on its way, and what more than one way of answering needs for it.

`answering` makes these parts once, and its ways use them; nothing here decides which way is taken.
"""
