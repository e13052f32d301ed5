"""What tests of more than one room share."""
