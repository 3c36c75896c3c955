"""Figure 6 of "Improved Pan-Private Stream Density Estimation": empirical mean squared error."""

from runner import main

if __name__ == "__main__":
    main("000-6")
