"""`python -m counterfoil`: the same as the command."""

from counterfoil.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
