"""Put files into folders by their labels."""
