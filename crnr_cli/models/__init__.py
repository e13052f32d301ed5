"""The files of networks: which there are, where they lie, what they contain, and how they want images."""
