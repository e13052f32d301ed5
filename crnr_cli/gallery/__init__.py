"""The gallery: read, fitted, kept in a file, asked."""
