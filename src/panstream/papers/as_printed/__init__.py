"""The papers' algorithms exactly as printed: negative controls."""
