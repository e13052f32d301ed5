"""Raw values become unit vectors: fitted on the gallery, stored in it, applied to queries."""
