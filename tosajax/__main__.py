"""`python -m tosajax`: the `tosajax` command."""

from tosajax.cli import process

if __name__ == "__main__":
    process()
