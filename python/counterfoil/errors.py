"""The exceptions that Counterfoil raises, as one tree.

The root is made in Rust, so that the extension never imports Python code of ours.
"""

from counterfoil._core import CounterfoilError as CounterfoilError
