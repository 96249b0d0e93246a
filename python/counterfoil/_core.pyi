"""The typed description of the Rust extension; checked by stubtest."""

__version__: str

class CounterfoilError(Exception): ...
