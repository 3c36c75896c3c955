"""Figure 7 of "Improved Pan-Private Stream Density Estimation": mean squared error against the sample size."""

from runner import main

if __name__ == "__main__":
    main("000-7")
