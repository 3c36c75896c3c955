"""The papers' algorithms exactly as printed, as negative controls; their claims state the true loss."""
