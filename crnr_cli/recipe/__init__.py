"""Recipes turn raw values into unit vectors: fitted to the gallery, stored in it, applied to queries."""
