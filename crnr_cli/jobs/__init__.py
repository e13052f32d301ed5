"""Build, classify, evaluate, ... as plain functions that return values and never print or exit."""
