"""Not in the papers: what the published estimators really lose."""

from runner import main

if __name__ == "__main__":
    main("new-loss")
