"""Not in the papers: mean squared error at equal memory."""

from runner import main

if __name__ == "__main__":
    main("new-memory")
