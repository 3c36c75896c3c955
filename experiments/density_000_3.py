"""Figure 3 of "Improved Pan-Private Stream Density Estimation": allocated and actual privacy budget of Dwork."""

from runner import main

if __name__ == "__main__":
    main("000-3")
