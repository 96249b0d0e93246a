"""The door to Rust: what the extension offers, under its public names."""

from counterfoil._core import __version__ as __version__
