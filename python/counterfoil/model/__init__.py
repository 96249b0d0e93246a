"""Frozen values that every layer above shares: words of the wire, evidence, verdicts, outcomes."""
