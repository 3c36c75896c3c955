"""Figure 4 of "Improved Pan-Private Stream Density Estimation": empirical probability of error."""

from runner import main

if __name__ == "__main__":
    main("000-4")
