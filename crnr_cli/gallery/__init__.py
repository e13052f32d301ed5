"""The gallery: reading, fitting and storing it, and using it to classify queries."""
