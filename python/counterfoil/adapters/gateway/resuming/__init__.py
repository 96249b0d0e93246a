"""A resume: one verdict, decided before the first byte, and what this client is told of it.

`answering` calls it for a GET.
"""
