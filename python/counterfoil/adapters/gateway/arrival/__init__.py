"""A request as it arrives: read once, checked, and told whose it is.

`application` calls it before anything answers.
"""
