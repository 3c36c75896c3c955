"""State on many workers (sharded), or secret-shared on two machines (two_party)."""
