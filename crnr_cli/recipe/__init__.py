"""How raw values become unit vectors: fitted to the gallery, stored in it, and applied to queries."""
