"""Figure 5 of "Improved Pan-Private Stream Density Estimation": theoretical and empirical mean squared error."""

from runner import main

if __name__ == "__main__":
    main("000-5")
