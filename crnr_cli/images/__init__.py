"""Image files are decoded to pixels, in separate processes."""
