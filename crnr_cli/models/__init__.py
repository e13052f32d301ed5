"""The files of networks: the known networks, their folder and content, and how they expect images."""
