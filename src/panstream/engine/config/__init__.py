"""The configuration file, section by section."""
