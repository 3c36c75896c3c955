"""What the engine prints: answers, explanations, privacy statements."""
