"""Figure 1 of "Improved Pan-Private Stream Density Estimation": proposed sample size for Dwork and OptBern."""

from runner import main

if __name__ == "__main__":
    main("000-1")
