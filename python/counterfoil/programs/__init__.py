"""The programs behind `counterfoil NAME`; each has `add_arguments(parser)` and `run(arguments) -> int`."""
