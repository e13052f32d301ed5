"""crnr: label files by comparing them with a gallery of labelled examples."""

__version__ = "0.1.0"
