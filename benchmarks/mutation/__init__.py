"""Small changes to the lines that privacy depends on, and a quick way to find out whether a test notices them."""
