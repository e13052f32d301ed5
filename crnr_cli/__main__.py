"""`python -m crnr_cli` is the same as `crnr`."""

from crnr_cli.cli import main

if __name__ == "__main__":
    main()
