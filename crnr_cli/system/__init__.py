"""The machine: files, cores, memory, processes. It knows nothing of galleries."""
