"""Three hospitals as Flower nodes."""
