"""Figure 4.7 of "Data Analytics with Differential Privacy": quantised Laplace: state differential privacy."""

from runner import main

if __name__ == "__main__":
    main("002-4.7")
