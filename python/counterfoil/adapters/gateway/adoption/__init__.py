"""Adoption: an identical call takes over the one whose answer nobody got.

`answering` calls its `front`.
"""
