"""Files go to folders by their labels."""
