"""The gallery: how it is read, fitted, stored in a file, and used to classify queries."""
