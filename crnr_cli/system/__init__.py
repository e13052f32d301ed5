"""The machine: files, cores, memory and processes. Nothing here depends on galleries."""
