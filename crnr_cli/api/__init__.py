"""What Python programs import: a gallery, its answers and its explanations."""
