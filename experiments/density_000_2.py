"""Figure 2 of "Improved Pan-Private Stream Density Estimation": state differential privacy of Dwork and OptBern."""

from runner import main

if __name__ == "__main__":
    main("000-2")
