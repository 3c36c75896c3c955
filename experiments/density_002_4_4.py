"""Figure 4.4 of "Data Analytics with Differential Privacy": optimal Bernoulli: state differential privacy."""

from runner import main

if __name__ == "__main__":
    main("002-4.4")
