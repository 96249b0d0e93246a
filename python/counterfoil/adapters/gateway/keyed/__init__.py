"""Calls with a key of their own (`io.counterfoil/call`), over a ledger.

`answering` runs them here.
"""
