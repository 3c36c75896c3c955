"""The forms printed in the papers, each claiming its true loss: for figures and as negative controls, never for data."""
